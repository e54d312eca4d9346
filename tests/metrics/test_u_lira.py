"""U-LiRA against a loop over models and records, in cases known beforehand, and its interval over models."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

from jaxaudit.errors import InputError
from jaxaudit.metrics import Estimate, u_lira, u_lira_rate

KEY = jax.random.key(5)


def by_loop(unlearned: np.ndarray, retrained: np.ndarray) -> np.ndarray:
    """The accuracy for each record."""
    found = []
    for record in range(unlearned.shape[1]):
        sides, right = [unlearned[:, record], retrained[:, record]], [[], []]
        for own in range(2):
            for model, value in enumerate(sides[own]):
                others = [np.delete(side, model) if side is sides[own] else side for side in sides]
                density = [norm.logpdf(value, side.mean(), side.std(ddof=1)) for side in others]
                right[own].append(density[own] > density[1 - own])
        found.append((np.mean(right[0]) + np.mean(right[1])) / 2)
    return np.array(found)


@pytest.mark.parametrize(("models", "others", "shift"), [(4, 9, 0.0), (12, 12, 1.0), (9, 5, 90.0)])
def test_it_is_a_loop_over_models_and_records(models: int, others: int, shift: float):
    random = np.random.default_rng(models)
    unlearned = shift + random.normal(size=(models, 7)) * random.uniform(0.1, 3, 7)
    retrained = random.normal(size=(others, 7))
    found = u_lira(KEY, unlearned, retrained)
    np.testing.assert_allclose(found.per_record, by_loop(unlearned, retrained))
    assert found.accuracy.value == pytest.approx(found.per_record.mean())
    assert 0 <= found.accuracy.low <= found.accuracy.value <= found.accuracy.high <= 1


def rate_by_loop(unlearned: np.ndarray, retrained: np.ndarray, rate: float) -> float:
    """The largest share of unlearned pairs above a threshold that at most this share of retrained pairs exceeds."""
    evidence: list[list[np.ndarray]] = [[], []]
    for record in range(unlearned.shape[1]):
        sides = [unlearned[:, record], retrained[:, record]]
        for own in range(2):
            for model, value in enumerate(sides[own]):
                fits = [np.delete(side, model) if place == own else side for place, side in enumerate(sides)]
                of_unlearned, of_retrained = (norm.logpdf(value, fit.mean(), fit.std(ddof=1)) for fit in fits)
                evidence[own].append(of_unlearned - of_retrained)
    found, alarms = np.array(evidence[0]), np.array(evidence[1])
    allowed = [threshold for threshold in alarms if np.mean(alarms > threshold) <= rate]
    return float(np.mean(found > min(allowed)))


@pytest.mark.parametrize(("models", "others", "shift", "rate"), [(5, 20, 1.0, 0.1), (12, 10, 2.0, 0.15)])
def test_the_rate_is_a_loop_over_models_and_records(models: int, others: int, shift: float, rate: float):
    random = np.random.default_rng(models)
    unlearned, retrained = shift + random.normal(size=(models, 10)), random.normal(size=(others, 10))
    found = u_lira_rate(KEY, unlearned, retrained, false_positive_rate=rate)
    assert found.value == pytest.approx(rate_by_loop(unlearned, retrained, rate))
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_a_rate_of_too_few_pairs_is_none_and_of_none_at_all_refused():
    random = np.random.default_rng(1)
    assert np.isnan(u_lira_rate(KEY, *random.normal(size=(2, 9, 111))).value)
    assert not np.isnan(u_lira_rate(KEY, *random.normal(size=(2, 10, 100)), replicates=2).value)
    for rate in (0.0, 1.0, float("nan")):
        with pytest.raises(InputError, match="rate of false alarms"):
            u_lira_rate(KEY, *random.normal(size=(2, 10, 100)), false_positive_rate=rate)


def test_equal_sides_are_not_told():
    """And somewhat below one half with few models, as the docstring says."""
    random = np.random.default_rng(3)
    found = [u_lira(KEY, *random.normal(size=(2, 8, 500)), replicates=2).accuracy.value for _ in range(5)]
    assert 0.42 < np.mean(found) < 0.5
    same = np.zeros((6, 3))
    assert u_lira(KEY, same, same).accuracy == Estimate(0.5, 0.5, 0.5)


def test_what_is_certain_is_told_from_what_is_not():
    certain = np.full((6, 3), np.inf)
    assert u_lira(KEY, certain, np.random.default_rng(1).normal(size=(6, 3))).accuracy.value == 1


@pytest.mark.outer
def test_an_interval_covers_the_mean_over_other_models():
    """Of 16 models a side whose records share something: at least 85% of 100 intervals at 95%, at a fixed key.

    Of 150 drawn like these 96% did. At 93% fewer than 85 of 100 would with probability 0.2%.
    """
    random = np.random.default_rng(4)

    def side(shift: float) -> np.ndarray:
        return random.normal(size=(16, 20)) + 0.7 * random.normal(size=(16, 1)) + shift

    found = [u_lira(key, side(1.0), side(0.0), replicates=100).accuracy for key in jax.random.split(KEY, 100)]
    mean = np.mean([each.value for each in found])
    assert np.mean([each.low <= mean <= each.high for each in found]) >= 0.85


@pytest.mark.parametrize(
    ("unlearned", "how", "said"),
    [
        (np.zeros((3, 2)), {}, "3 models are too few"),
        (np.zeros((5, 0)), {}, "about 0 records, retrained ones about 2"),
        (np.full((5, 2), np.nan), {}, "NaN"),
        (np.zeros((5, 2)), {"replicates": 0}, "got 0 and 0.95"),
    ],
)
def test_what_cannot_be_compared_is_refused(unlearned: np.ndarray, how: dict, said: str):
    with pytest.raises(InputError, match=said):
        u_lira(KEY, unlearned, np.zeros((5, 2)), **how)

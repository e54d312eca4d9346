"""The unlearning challenge's score against a loop over attacks, by hand, and its interval over models."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.errors import InputError
from jaxaudit.metrics import Answers, challenge_score
from jaxaudit.metrics.forgetting_quality import epsilons, points

KEY = jax.random.key(5)


def epsilon_by_loop(unlearned: np.ndarray, retrained: np.ndarray) -> float:
    """One record: every attack as the docstring has it, and thresholds tried at values, between them and at bounds."""

    def of_rates(fpr: float, fnr: float) -> float:
        if fpr == 0 and fnr == 0:
            return math.inf
        if fpr == 0 or fnr == 0:
            return math.nan
        found = [0.0]
        for one, other in ((fpr, fnr), (fnr, fpr)):
            if 1 - 1e-5 - one > 0:
                found.append(math.log(1 - 1e-5 - one) - math.log(other))
        return max(found)

    spans = [float(side.max() - side.min()) for side in (unlearned, retrained)]
    if min(spans) < 0.01 * max(spans):
        return 50.0
    found = [0.0]
    values = sorted({*unlearned.tolist(), *retrained.tolist()})
    upper, lower = (retrained, unlearned) if np.median(retrained) > np.median(unlearned) else (unlearned, retrained)
    found += [of_rates(float((lower >= t).mean()), float((upper < t).mean())) for t in values]
    inner, outer = (unlearned, retrained) if spans[0] < spans[1] else (retrained, unlearned)
    top, width, crumb = float(inner.max()), min(spans), 1e-9
    ends = {top - 2, top + 2, *(v + c for v in values for c in (-crumb, 0, crumb))}
    for high in ends:
        lows = {high - width - 2, high - width + 2, *ends}
        for low in lows:
            if abs(high - top) <= 2 and abs(high - low - width) <= 2 and low <= high:
                inside, false = ((side >= low) & (side <= high) for side in (inner, outer))
                found.append(of_rates(float(false.mean()), float(1 - inside.mean())))
    return min(50.0, max(each for each in found if not math.isnan(each)))


# Quarters, so that no interval ends within rounding of a bound: bounds are eighths away.
quarters = st.integers(-24, 24).map(lambda n: n / 4)


@settings(max_examples=25)
@given(data=st.data(), sizes=st.tuples(st.integers(4, 7), st.integers(4, 7)))
def test_an_epsilon_is_that_of_every_attack(data: st.DataObject, sizes: tuple[int, int]):
    unlearned, retrained = (
        np.array([data.draw(st.lists(quarters, min_size=size, max_size=size)) for _ in range(3)]).T for size in sizes
    )
    expected = [epsilon_by_loop(*(side[:, record] for side in (unlearned, retrained))) for record in range(3)]
    np.testing.assert_allclose(epsilons(unlearned, retrained), expected, rtol=1e-6)


def test_points_by_hand():
    epsilon = np.array([0.0, 0.49, 0.5, 0.99, 1.0, 2.9, 3.0, 50.0])
    np.testing.assert_array_equal(points(epsilon, 16), [1, 1, 0.5, 0.5, 0.25, 1 / 32, 0, 0])
    # With 512 models, as in the challenge, up to ceil(log 511) = 7.
    np.testing.assert_array_equal(points(np.array([6.9, 7.0]), 512), [2.0**-13, 0])


def test_the_score_is_f_times_two_ratios():
    random = np.random.default_rng(1)
    accuracies = random.uniform(0.5, 1, (2, 2, 12))
    unlearned, retrained = (Answers(random.normal(size=(12, 6)), *each) for each in accuracies)
    found = challenge_score(KEY, unlearned, retrained)
    assert found.score is not None
    np.testing.assert_array_equal(found.epsilon, epsilons(unlearned.log_odds, retrained.log_odds))
    assert found.quality.value == pytest.approx(points(np.array(found.epsilon), 12).mean())
    remaining, test = accuracies.mean(axis=2)[0] / accuracies.mean(axis=2)[1]
    assert (found.remaining_ratio, found.test_ratio) == (pytest.approx(remaining), pytest.approx(test))
    assert found.score.value == pytest.approx(found.quality.value * remaining * test)
    for each in (found.quality, found.score):
        assert 0 <= each.low < each.value < each.high


def test_records_in_blocks_are_as_all_at_once(monkeypatch):
    random = np.random.default_rng(2)
    unlearned, retrained = random.normal(size=(2, 12, 9))
    whole = epsilons(unlearned, retrained)
    monkeypatch.setattr("jaxaudit.metrics.forgetting_quality.ENTRIES", 2 * 24**2)
    np.testing.assert_array_equal(epsilons(unlearned, retrained), whole)


def test_certainty_is_cut():
    """A probability of exactly 1 or 0 is as far as the published code's constant lets it be."""
    random = np.random.default_rng(3)
    side = random.normal(size=(8, 2))
    certain = np.full((8, 2), np.inf)
    ones = np.ones(8)
    found = challenge_score(KEY, Answers(certain, ones, ones), Answers(side, ones, ones))
    np.testing.assert_array_equal(found.epsilon, 50)
    assert found.score is not None
    assert found.score.value == 0


@pytest.mark.outer
def test_an_interval_covers_the_mean_over_other_models():
    """Of 16 models a side that share what they say of all records: at least 85% of 100 intervals at 95%.

    Of 150 drawn like these 96% did. At 93% fewer than 85 of 100 would with probability 0.2%; the key is fixed.
    """
    random = np.random.default_rng(4)

    def side() -> Answers:
        return Answers(random.normal(size=(16, 20)) + 0.7 * random.normal(size=(16, 1)), np.ones(16), np.ones(16))

    found = [challenge_score(key, side(), side()).quality for key in jax.random.split(KEY, 100)]
    mean = np.mean([each.value for each in found])
    assert np.mean([each.low <= mean <= each.high for each in found]) >= 0.85


def test_retraining_once_more_is_not_perfect():
    """F of equal distributions is far from 1, whatever the number of models: what the docstring says of reading it."""
    random = np.random.default_rng(6)
    for models in (8, 32, 128):
        sides = random.normal(size=(2, models, 60))
        assert 0.1 < points(epsilons(*sides), models).mean() < 0.3


SIDE = Answers(np.zeros((5, 2)), np.ones(5), np.ones(5))


@pytest.mark.parametrize(
    ("change", "how", "said"),
    [
        ({"log_odds": np.zeros((3, 2))}, {}, "3 models are too few"),
        ({"log_odds": np.zeros((5, 3))}, {}, "about 3 records, retrained ones about 2"),
        ({"log_odds": np.full((5, 2), np.nan)}, {}, "NaN"),
        ({}, {"replicates": 1}, "got 1 and 0.95"),
        ({}, {"level": 1.0}, "got 100 and 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict, how: dict, said: str):
    with pytest.raises(InputError, match=said):
        challenge_score(KEY, SIDE._replace(**change), SIDE, **how)


def test_accuracies_of_other_models_are_refused():
    with pytest.raises(InputError, match="5 models, but accuracies of 4 and 5"):
        challenge_score(KEY, SIDE, SIDE._replace(remaining_accuracy=np.ones(4)))

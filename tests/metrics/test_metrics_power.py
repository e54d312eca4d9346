"""The probability of detection, as predicted, against the test itself on simulated scores."""

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.permutation import permutation_test
from jaxaudit.metrics.power import (
    Separation,
    detection_probability,
    min_detectable_fraction,
    records_needed,
    separation,
)

TOLD = Separation(0.3, 0.05, 0.04, 0.003, 31)
RUNS = 400


def simulated_chance(measured: Separation, query: int, holdout: int, fraction: float, seed: int) -> float:
    """The share of simulated targets that the permutation test detects."""
    random = np.random.default_rng(seed)
    noticed = 0
    for run in range(RUNS):
        effect = random.normal(measured.difference, np.sqrt(measured.between))
        used = random.permutation(query) < round(fraction * query)
        spread = np.where(used, np.sqrt(measured.inside), np.sqrt(measured.outside))
        mine = used * effect + spread * random.normal(size=query)
        others = np.sqrt(measured.outside) * random.normal(size=holdout)
        test = permutation_test(jax.random.fold_in(jax.random.key(seed), run), mine, others, permutations=199)
        noticed += test.p_larger <= 0.05
    return noticed / RUNS


@pytest.mark.parametrize(
    ("query", "holdout", "fraction"), [(100, 100, 0.0), (100, 100, 0.25), (60, 240, 0.5), (400, 100, 0.1)]
)
def test_predicted_chance_is_the_simulated_one(query, holdout, fraction):
    """Within what 400 simulated targets can tell, 99.9% of the time, and 0.03 for the approximation."""
    predicted = detection_probability(TOLD, query, holdout, fraction)
    found = simulated_chance(TOLD, query, holdout, fraction, seed=5)
    sampling = stats.norm.ppf(0.9995) * np.sqrt(predicted * (1 - predicted) / RUNS)
    assert abs(found - predicted) <= sampling + 0.03


def test_separation_of_known_scores():
    """Log-odds that differ by nothing have no separation; those far apart are separated perfectly."""
    random = np.random.default_rng(3)
    membership = random.random((16, 300)) < 0.5
    noise = random.normal(size=(16, 300))
    nothing, everything = separation(noise, membership), separation(noise + 20 * membership, membership)
    # Each model's difference has a standard error of about 0.01; 16 of them, and 5 standard errors.
    assert abs(nothing.difference) < 0.02
    assert everything.difference > 0.95
    assert nothing.models == everything.models == 16


def test_models_that_differ_are_seen_to():
    random = np.random.default_rng(4)
    membership = random.random((24, 600)) < 0.5
    strength = np.where(np.arange(24) % 2, 0.5, 3.5)[:, None]
    measured = separation(random.normal(size=(24, 600)) + strength * membership, membership)
    alike = separation(random.normal(size=(24, 600)) + 2 * membership, membership)
    assert measured.between > 0.005 > 0.001 > alike.between


def test_more_records_detect_more():
    probabilities = [detection_probability(TOLD, n, n, 0.1) for n in (50, 200, 800)]
    assert probabilities == sorted(probabilities)
    least = [min_detectable_fraction(TOLD, n, n, 31) or 1.0 for n in (50, 200, 800)]
    assert least == sorted(least, reverse=True)


def test_fewer_shadow_models_promise_less():
    few, many = min_detectable_fraction(TOLD, 500, 500, 6), min_detectable_fraction(TOLD, 500, 500, 60)
    assert few is not None
    assert many is not None
    assert few > many


def test_records_needed_is_the_first_size_that_does():
    needed = records_needed(TOLD, 0.2)
    assert needed is not None
    assert (
        detection_probability(TOLD, needed, needed, 0.2)
        >= 0.95
        > detection_probability(TOLD, needed - 1, needed - 1, 0.2)
    )


def test_where_no_size_does():
    useless = Separation(0.0, 0.04, 0.04, 0.0, 31)
    assert records_needed(useless, 1.0, most=1000) is None
    assert min_detectable_fraction(useless, 1000, 1000, 31) is None
    # Models that differ this much would need luck, however many records there are.
    assert records_needed(Separation(0.3, 0.05, 0.04, 0.3**2, 31), 0.5) is None


def test_scores_without_spread():
    perfect = Separation(1.0, 0.0, 0.0, 0.0, 31)
    assert detection_probability(perfect, 10, 10, 0.0) == 0
    assert detection_probability(perfect, 10, 10, 1.0) == 1


def test_too_few_records_to_know_a_spread(monkeypatch):
    membership = np.array([[True, False, False]] * 5)
    with pytest.raises(InputError, match="a model has 1 records in or out of its training set"):
        separation(np.zeros((5, 3)), membership)

"""rho: the paper's identities, SciPy's numbers, the interval's formula, the verdict."""

import jax
import numpy as np
import pytest
from references import ks_by_scipy
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.ks import Rho, noise_floor, paper_rule, rho, verdict

KEY = jax.random.key(5)


def confidences(seed: int, models: int, records: int, a: float, b: float) -> np.ndarray:
    return np.random.default_rng(seed).beta(a, b, (models, records)).astype(np.float32)


@pytest.fixture(scope="module")
def shadows() -> tuple[np.ndarray, np.ndarray]:
    return confidences(1, 4, 300, 8, 1), confidences(2, 4, 300, 2, 2)


def test_target_that_is_the_query_model_gives_0(shadows):
    assert (rho(KEY, *shadows, shadows[0]).values == 0).all()


def test_target_that_is_the_calibration_model_gives_1(shadows):
    found = rho(KEY, *shadows, shadows[1])
    assert (found.values == 1).all()
    assert found.low == found.high == 1


def test_values_are_ratios_of_scipys_distances(shadows):
    query, calibration = shadows
    target = confidences(3, 1, 300, 4, 1)
    found = rho(KEY, query, calibration, target)
    to_target = [ks_by_scipy(row, target[0]) for row in query]
    to_calibration = [ks_by_scipy(row, other) for row, other in zip(query, calibration, strict=True)]
    np.testing.assert_allclose(found.values, np.divide(to_target, to_calibration), rtol=1e-6)
    np.testing.assert_allclose(found.distances, to_target, rtol=1e-6)
    assert found.median == pytest.approx(np.median(found.values))


def test_interval_is_its_formula(shadows):
    """Against a loop that resamples records one draw at a time.

    Its bootstrap variance is of other draws: with 2,000 on one side and 400 on the other, the standard error of the
    ratio of two standard deviations is under 4%, so 15% fails by chance less than once in 10,000.
    """
    query, calibration = shadows
    target = confidences(3, 1, 300, 4, 1)
    found = rho(KEY, query, calibration, target, bootstrap=2000)
    rng = np.random.default_rng(7)
    variances = []
    for row, other in zip(query, calibration, strict=True):
        draws = []
        for _ in range(400):
            chosen = rng.integers(0, 300, 300)
            to_target = ks_by_scipy(row[chosen], target[0][chosen])
            draws.append(to_target / ks_by_scipy(row[chosen], other[chosen]))
        variances.append(np.var(draws, ddof=1))
    error = np.sqrt(np.var(found.values, ddof=1) / 4 + np.mean(variances))
    reach = stats.t.ppf(0.975, 3) * error
    assert found.high - np.mean(found.values) == pytest.approx(reach, rel=0.15)
    assert found.high - np.mean(found.values) == pytest.approx(np.mean(found.values) - found.low, rel=1e-6)


def test_interval_covers_the_ratio_of_the_populations():
    """A rate of misses above its level would show: 60 audits of 5 replicates, 95% intervals.

    The truth is rho of 400,000 records. With a miss rate of 5%, more than 8 misses in 60 come less than once in 100
    times; the key is fixed.
    """

    def population(records: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        models = 5 if records < 10_000 else 1
        draw = [rng.beta(a, b, (models, records)).astype(np.float32) for a, b in ((8, 1), (2, 2))]
        return draw[0], draw[1], rng.beta(3, 1.5, (1, records)).astype(np.float32)

    truth = rho(KEY, *population(400_000, 1)).values[0]
    intervals = [rho(jax.random.key(seed), *population(500, seed)) for seed in range(100, 160)]
    misses = sum(not found.low <= truth <= found.high for found in intervals)
    assert misses <= 8


def test_one_replicate_has_no_interval(shadows):
    found = rho(KEY, shadows[0][:1], shadows[1][:1], shadows[1][1:2])
    assert np.isnan(found.low)
    assert np.isnan(found.high)
    assert np.isfinite(found.median)
    assert verdict(found) == "inconclusive"


def test_no_denominator_no_ratio(shadows):
    found = rho(KEY, shadows[0], shadows[0], shadows[1])
    assert np.isnan(found.values).all()
    assert verdict(found) == paper_rule(found.median) == "inconclusive"


def test_interval_is_not_below_0(shadows):
    query = confidences(1, 2, 30, 8, 1)
    assert rho(KEY, query, confidences(2, 2, 30, 5, 1), query[:1]).low == 0


def test_same_key_same_interval(shadows):
    target = confidences(3, 1, 300, 4, 1)
    first, again = (rho(KEY, *shadows, target) for _ in range(2))
    assert (first.low, first.high) == (again.low, again.high)
    assert rho(jax.random.key(6), *shadows, target).low != first.low


def test_shapes_that_disagree(shadows):
    with pytest.raises(
        InputError, match=r"of one shape .*query \(4, 300\), calibration \(4, 300\) and target \(2, 300\)"
    ):
        rho(KEY, *shadows, shadows[0][:2])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_confidences_that_are_no_numbers(shadows, bad):
    target = shadows[0][:1].copy()
    target[0, 3] = bad
    with pytest.raises(
        InputError, match="1 confidences of the target model are NaN or infinite; did its training diverge"
    ):
        rho(KEY, *shadows, target)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.0, 1.2, "forgotten"),
        (0.99, 1.2, "inconclusive"),
        (0.5, 1.0, "inconclusive"),
        (0.5, 0.999, "not forgotten"),
        (np.nan, np.nan, "inconclusive"),
    ],
)
def test_verdict(low, high, expected):
    none = np.zeros(0)
    assert verdict(Rho(none, 1.0, low, high, none, none)) == expected


@pytest.mark.parametrize(
    ("median", "expected"), [(1.0, "forgotten"), (0.999, "not forgotten"), (np.nan, "inconclusive")]
)
def test_paper_rule(median, expected):
    assert paper_rule(median) == expected


def test_noise_floor_has_every_pair():
    rows = confidences(4, 4, 50, 5, 1)
    expected = [ks_by_scipy(rows[i], rows[j]) for i in range(4) for j in range(i + 1, 4)]
    np.testing.assert_allclose(noise_floor(rows), expected, rtol=1e-6)
    assert noise_floor(rows[:1]).shape == (0,)

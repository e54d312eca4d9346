"""rho: its identities, its interval against the formula written out, and how often that covers."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.references import ks_by_scipy

from jaxaudit.errors import InputError
from jaxaudit.kernels import bootstrap_ks_paired
from jaxaudit.metrics import Rho, noise_floor, paper_rule, rho, verdict

KEY = jax.random.key(4)
REPLICATES, RECORDS = 4, 90


def confidences(seed: int, *shape: int, power: float = 1.0) -> np.ndarray:
    """Numbers in (0, 1) with distribution function x**power."""
    return (np.random.default_rng(seed).random(shape) ** (1 / power)).astype(np.float32)


QUERY = confidences(1, REPLICATES, RECORDS, power=6)
CALIBRATION = confidences(2, REPLICATES, RECORDS, power=1)
TARGET = confidences(3, REPLICATES, RECORDS, power=3)


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([1, 30]))
def test_rho_is_the_ratio_of_scipys_distances(seed, decimals, records):
    query, calibration, target = np.round(confidences(seed, 3, 2, records), decimals)
    answer = rho(KEY, query, calibration, target, bootstrap=2)
    for k in range(2):
        top, bottom = ks_by_scipy(query[k], target[k]), ks_by_scipy(query[k], calibration[k])
        # float32 distances, and a rounding of their ratio.
        np.testing.assert_allclose(answer.distances[k], top, rtol=2.0**-22)
        np.testing.assert_allclose(answer.calibration_distances[k], bottom, rtol=2.0**-22)
        np.testing.assert_allclose(answer.values[k], top / bottom if bottom else np.nan, rtol=2.0**-20)
    np.testing.assert_equal(answer.median, float(np.median(answer.values)))


def test_a_target_that_is_the_calibration_model_has_rho_exactly_one():
    answer = rho(KEY, QUERY, CALIBRATION, CALIBRATION)
    assert np.array_equal(answer.values, np.ones(REPLICATES))
    assert answer.median == answer.low == answer.high == 1
    assert verdict(answer) == "forgotten"


def test_the_interval_is_the_formula_with_the_same_draws():
    answer = rho(KEY, QUERY, CALIBRATION, TARGET, bootstrap=50)
    spreads = []
    for k, key in enumerate(jax.random.split(KEY, REPLICATES)):
        draws = np.asarray(bootstrap_ks_paired(key, QUERY[k], np.stack([TARGET[k], CALIBRATION[k]]), 50), np.float64)
        spreads.append(np.var(draws[:, 0] / draws[:, 1], ddof=1))
    ratios = [ks_by_scipy(q, t) / ks_by_scipy(q, c) for q, c, t in zip(QUERY, CALIBRATION, TARGET, strict=True)]
    error = np.sqrt(np.var(ratios, ddof=1) / REPLICATES + np.mean(spreads))
    reach = stats.t.ppf(0.975, REPLICATES - 1) * error
    np.testing.assert_allclose(answer.low, np.mean(ratios) - reach, rtol=1e-5)
    np.testing.assert_allclose(answer.high, np.mean(ratios) + reach, rtol=1e-5)


def test_the_interval_is_cut_at_zero():
    near = QUERY.copy()
    near[:, 0] = 0.5
    near[0] = TARGET[0]
    answer = rho(KEY, QUERY, CALIBRATION, near)
    assert answer.low == 0
    assert answer.high > np.mean(answer.values)


def test_there_is_no_interval_from_one_replicate_or_where_a_denominator_is_zero():
    answer = rho(KEY, QUERY[:1], CALIBRATION[:1], TARGET[:1])
    assert np.isnan([answer.low, answer.high]).all()
    assert answer.median == answer.values[0] > 0
    assert verdict(answer) == "inconclusive"
    calibration = CALIBRATION.copy()
    calibration[2] = QUERY[2]
    answer = rho(KEY, QUERY, calibration, TARGET)
    assert np.isnan(answer.values).tolist() == [False, False, True, False]
    assert np.isnan([answer.median, answer.low, answer.high]).all()
    assert verdict(answer) == "inconclusive"


def test_there_is_no_interval_where_hardly_a_resample_has_a_denominator():
    # Two models that differ in one record of 40: a resample misses it with probability 0.36, both of two with 0.13.
    query = np.full((2, 40), 0.5, np.float32)
    calibration = query.copy()
    calibration[:, 7] = 0.6
    answers = [rho(jax.random.key(seed), query, calibration, calibration, bootstrap=2) for seed in range(12)]
    assert all(np.array_equal(answer.values, np.ones(2)) for answer in answers)
    known = [not np.isnan(answer.low) for answer in answers]
    assert 0 < sum(known) < 12
    for answer, has in zip(answers, known, strict=True):
        assert (answer.low == answer.high == 1) if has else np.isnan(answer.high)


def power_distance(a: float, b: float) -> float:
    """The KS distance of the distribution functions x**a and x**b on [0, 1], largest where their densities agree."""
    if a == b:
        return 0.0
    x = (a / b) ** (1 / (b - a))
    return abs(x**a - x**b)


JITTER = 0.1


def seeded(random: np.random.Generator, power: float) -> float:
    """What another training seed makes of a model's power."""
    return power * np.exp(JITTER * random.normal())


def simulate(random: np.random.Generator, powers: tuple[float, float, float], records: int) -> Rho:
    """rho of models whose confidences are of Beta(power, 1); some records are hard for every model."""
    hardness = random.normal(size=records)

    def model(power: float) -> np.ndarray:
        return stats.norm.cdf(np.sqrt(0.5) * (hardness + random.normal(size=records))) ** (1 / power)

    query, calibration = (np.stack([model(seeded(random, power)) for _ in range(4)]) for power in powers[:2])
    return rho(KEY, query, calibration, model(powers[2])[None], bootstrap=40)


@pytest.mark.outer
@pytest.mark.parametrize("powers", [(6.0, 1.0, 3.0), (6.0, 1.5, 1.5), (6.0, 2.0, 1.0)])
def test_the_interval_covers_at_its_level(powers):
    random, target = np.random.default_rng(17), powers[2]
    pairs = [(seeded(random, powers[0]), seeded(random, powers[1])) for _ in range(2000)]
    truth = np.mean([power_distance(q, target) / power_distance(q, c) for q, c in pairs])
    answers = [simulate(random, powers, records=150) for _ in range(60)]
    missed = sum(not answer.low <= truth <= answer.high for answer in answers)
    # At 5% misses of 60, 12 or more have a chance of 3e-5. (Fewer are expected: the spread over seeds holds some of
    # the spread over records, which then counts twice.)
    assert missed < 12
    # And it says something: a ratio twice as large, or half, is mostly outside.
    assert sum(answer.low <= 2 * truth <= answer.high for answer in answers) < 30
    assert sum(answer.low <= truth / 2 <= answer.high for answer in answers) < 30


@pytest.mark.parametrize(
    ("mean", "reach", "expected"),
    [
        (1.25, 0.25, "forgotten"),
        (1.25, 0.05, "forgotten"),
        (1.25, 0.251, "inconclusive"),
        (0.75, 0.251, "inconclusive"),
        (0.75, 0.249, "not forgotten"),
        (0.0, 0.0, "not forgotten"),
        (1.25, np.nan, "inconclusive"),
    ],
)
def test_the_verdict_is_where_the_whole_interval_lies_whatever_the_level_of_the_one_shown(mean, reach, expected):
    values, error = (mean,) * 5, reach / stats.t.ppf(0.975, 4) * (1 - 1e-12)
    for low, high in ((mean, mean), (0.0, 9.0)):
        assert verdict(Rho(values, mean, low, high, values, (1.0,) * 5, error)) == expected


def test_the_papers_rule_is_one_number():
    expected = ["not forgotten", "not forgotten", "forgotten", "forgotten", "inconclusive"]
    assert [paper_rule(median) for median in (0.0, 0.999, 1.0, 7.0, np.nan)] == expected


def test_the_noise_floor_is_every_pair_of_query_models():
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    expected = [ks_by_scipy(QUERY[a], QUERY[b]) for a, b in pairs]
    np.testing.assert_allclose(noise_floor(QUERY), expected, rtol=2.0**-22)
    assert noise_floor(QUERY[:1]).shape == (0,)


def test_confidences_of_other_shapes_are_refused(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    for name, others in (("calibration", (CALIBRATION[:3], TARGET)), ("target", (CALIBRATION, TARGET[:1, :50]))):
        with pytest.raises(InputError, match=rf"^`{name}_confidences` has shape \(\d, \d\d\) but must have \(\d, "):
            rho(KEY, QUERY, *others)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_confidences_that_are_not_finite_are_refused(which, bad):
    arrays = [QUERY.copy(), CALIBRATION.copy(), TARGET.copy()]
    arrays[which][1, 5:8] = bad
    name = ("query", "calibration", "target")[which]
    with pytest.raises(
        InputError, match=rf"^`{name}_confidences` must be .*; got (nan|inf), as 3 of \d+ numbers: did training"
    ):
        rho(KEY, *arrays)

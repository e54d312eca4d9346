"""The shadow test: error rates where its assumption holds, and silence where it does not."""

import numpy as np
import pytest
from scipy import stats
from support.simulated_shadows import halves, provider

from jaxaudit.errors import InputError
from jaxaudit.metrics.scores import Profile
from jaxaudit.metrics.shadow import mixture_likeness, mixture_log_likelihood, shadow_test
from jaxaudit.metrics.usage import Usage

SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
RECORDS = 16
NEVER, PART, FULLY = 19, 6, 19


def shadows_and_target(trial: int, fraction: float, gap: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A target of the same making as the shadow models, their log-odds and their membership."""
    generator = np.random.default_rng([12, trial])
    records = provider(generator, RECORDS, gap)
    part = halves(generator, PART, RECORDS, RECORDS // 2)
    membership = np.concatenate([np.zeros((NEVER, RECORDS), bool), part, np.ones((FULLY, RECORDS), bool)])
    target = records.outputs(generator, np.arange(RECORDS) < round(fraction * RECORDS))
    return target, records.outputs(generator, membership), membership


def audit(trial: int, fraction: float, *, gap: float = 3.0, share: float = 0.0) -> Usage:
    return shadow_test(*shadows_and_target(trial, fraction, gap), share=share)


@pytest.mark.outer
@pytest.mark.parametrize(("fraction", "which"), [(0.0, "p_never"), (1.0, "p_fully")])
def test_p_values_are_uniform_where_the_target_is_one_of_the_shadow_models(fraction: float, which: str) -> None:
    trials = 25
    p_values = np.array([getattr(audit(trial, fraction), which) for trial in range(trials)])
    for u in (0.05, 0.25):
        assert stats.binom.ppf(SURE, trials, u) <= (p_values <= u).sum() <= stats.binom.ppf(1 - SURE, trials, u)


@pytest.mark.outer
def test_the_preflight_p_value_is_small_no_more_often_than_stated() -> None:
    trials = 50
    p_values = np.array([mixture_likeness(*shadows_and_target(trial, trial % 2, 3.0)) for trial in range(trials)])
    assert (p_values <= 0.05).sum() <= stats.binom.ppf(1 - SURE, trials, 0.05)


def test_use_is_found_and_no_use_is_called_forgotten_with_its_number() -> None:
    used, unused = audit(1, 1.0, gap=12.0), audit(2, 0.0, gap=12.0)
    assert used.verdict == "not forgotten"
    assert used.fraction_high > 0.9
    assert unused.verdict == "forgotten"
    assert unused.detectable is not None
    assert unused.detectable <= 0.25


def test_shared_calibration_data_makes_the_test_more_careful() -> None:
    fresh, shared = audit(3, 0.2, gap=3.0), audit(3, 0.2, gap=3.0, share=0.9)
    assert shared.p_never >= fresh.p_never
    assert shared.fraction_high - shared.fraction_low >= fresh.fraction_high - fresh.fraction_low
    assert (shared.detectable or 2.0) > (fresh.detectable or 2.0)


def test_a_target_unlike_the_shadow_models_gets_no_verdict() -> None:
    target, shadows, membership = shadows_and_target(4, 1.0, 3.0)
    usage = shadow_test(target[::-1], shadows, membership)
    assert usage.verdict == "inconclusive"
    assert "does not resemble the shadow models" in usage.reasons[0]


def test_the_mixture_is_that_of_a_loop_over_records_and_shares() -> None:
    generator = np.random.default_rng(13)
    outside, gap, out_variance, in_variance, outputs = (generator.uniform(0.5, 2, 12) for _ in range(5))
    found = []
    for used in np.linspace(0, 1, 21):
        each = []
        for x, out, more, v, w in zip(outputs, outside, gap, out_variance, in_variance, strict=True):
            without, within = stats.norm.pdf(x, out, np.sqrt(4 * v)), stats.norm.pdf(x, out + more, np.sqrt(4 * w))
            each.append(np.log((1 - used) * without + used * within))
        found.append(np.mean(each))
    shadows = Profile(outside, outside + gap, out_variance, in_variance, out_variance)
    assert mixture_log_likelihood(outputs, shadows, stretch=2.0) == pytest.approx(max(found))


@pytest.mark.outer
def test_designs_that_differ_widen_the_error_and_are_not_stretched() -> None:
    """Five designs whose outputs lie apart: p-values stay uniform for a target of a sixth."""
    trials, small = 60, 0
    for trial in range(trials):
        generator = np.random.default_rng([21, trial])
        records = provider(generator, 40, 3.0)
        membership = np.concatenate([np.zeros((40, 40), bool), np.ones((20, 40), bool)])
        shadows = records.outputs(generator, membership)
        designs = np.arange(60) % 5
        moved = generator.normal(0, 1, 6)
        target = records.outputs(generator, np.zeros(40, bool)) + moved[5]
        usage = shadow_test(target, shadows + moved[designs][:, None], membership, designs, share=0.0)
        small += usage.p_never <= 0.05
    assert small <= stats.binom.ppf(1 - SURE, trials, 0.05)


def test_refusals() -> None:
    target, shadows, membership = shadows_and_target(5, 0.0, 3.0)
    with pytest.raises(InputError, match="share of the calibration set"):
        shadow_test(target, shadows, membership, share=1.0)
    with pytest.raises(InputError, match="at least 19 of each"):
        shadow_test(target, shadows[1:], membership[1:])

"""The shadow test: error rates where its assumption holds, and silence where it does not."""

import numpy as np
import pytest
from scipy import stats
from support.simulated_shadows import halves, provider

from jaxaudit.errors import InputError
from jaxaudit.metrics.scores import Profile
from jaxaudit.metrics.shadow import likeness, misfit, shadow_test
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


@pytest.mark.parametrize(("fraction", "which"), [(0.0, "p_never"), (1.0, "p_fully")])
def test_p_values_are_uniform_where_the_target_is_one_of_the_shadow_models(fraction: float, which: str) -> None:
    trials = 25
    p_values = np.array([getattr(audit(trial, fraction), which) for trial in range(trials)])
    for u in (0.05, 0.25):
        assert stats.binom.ppf(SURE, trials, u) <= (p_values <= u).sum() <= stats.binom.ppf(1 - SURE, trials, u)


def test_the_preflight_p_value_is_small_no_more_often_than_stated() -> None:
    trials = 50
    p_values = np.array([likeness(*shadows_and_target(trial, trial % 2, 3.0)) for trial in range(trials)])
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


def test_misfit_is_that_of_a_search_over_all_mixtures() -> None:
    generator = np.random.default_rng(13)
    outside, gap, variance, outputs = (generator.uniform(0.5, 2, 12) for _ in range(4))
    shares = np.linspace(0, 1, 4001)[:, None]
    slow = ((outputs - outside - shares * gap) ** 2 / variance).mean(axis=1).min()
    found = misfit(outputs, Profile(outside, outside + gap, variance, variance, variance))
    assert found == pytest.approx(slow, rel=1e-5)


def test_refusals() -> None:
    target, shadows, membership = shadows_and_target(5, 0.0, 3.0)
    with pytest.raises(InputError, match="share of the calibration set"):
        shadow_test(target, shadows, membership, share=1.0)
    with pytest.raises(InputError, match="at least 19 of each"):
        shadow_test(target, shadows[1:], membership[1:])

"""The change of the used fraction between two models, on simulated log-odds of known use."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from support.simulated_shadows import halves, provider

from jaxaudit.metrics.before_after import Change, before_after
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.usage import Usage

SURE = 1e-4
"""A correct procedure fails a test of this file for one in ten thousand keys; the keys are fixed."""
SIZE, TRIALS = 24, 60


def audits(
    trial: int,
    fractions: tuple[float, float],
    *,
    size: int = SIZE,
    held: int = SIZE,
    models: int = 11,
    alone: bool = True,
) -> tuple[Change, list[Usage]]:
    """The change, and the two audits alone; both models used the first records of the query set."""
    generator = np.random.default_rng([31, trial])
    records = provider(generator, size + held, 4.0)
    membership = halves(generator, models, size + held, size)
    used = [np.arange(size + held) < round(fraction * size) for fraction in fractions]
    # A model that goes on from another has most of its noise, too.
    common = generator.normal(size=size + held)
    pair = [records.outputs(generator, row) * 0.5 + (records.level + records.gap * row + common) * 0.5 for row in used]
    shadows, key = records.outputs(generator, membership), jax.random.key(trial)
    found = [
        holdout_test(key, each[:size], each[size:], shadows, membership, permutations=199) for each in pair if alone
    ]
    return before_after(key, pair[0], pair[1], size, shadows, membership, permutations=199), found


def test_the_change_is_the_difference_of_two_audits() -> None:
    for trial in range(4):
        change: Any
        change, (before, after) = audits(trial, (0.7, 0.3), size=60, held=50, models=20)
        assert change.p_never_before == before.p_never
        if after.fraction > 0 and before.fraction < 1:
            assert change.fraction == pytest.approx(before.fraction - after.fraction, abs=1e-9)
        assert change.low <= change.fraction <= change.high


@pytest.mark.outer
@pytest.mark.parametrize("fractions", [(1.0, 0.0), (1.0, 0.5), (0.5, 0.0)])
def test_the_interval_covers_the_change(fractions: tuple[float, float]) -> None:
    found: list[Any] = [audits(1000 + trial, fractions, alone=False)[0] for trial in range(TRIALS)]
    truth = fractions[0] - fractions[1]
    covered = sum(change.low <= truth <= change.high for change in found)
    assert covered >= stats.binom.ppf(SURE, TRIALS, 0.95)
    assert np.median([change.fraction for change in found]) == pytest.approx(truth, abs=0.12)


@pytest.mark.outer
def test_a_pair_needs_less_than_two_audits() -> None:
    widths = []
    for trial in range(20):
        change, (before, after) = audits(2000 + trial, (0.7, 0.3), size=60, held=60, models=20)
        two = np.hypot(before.fraction_high - before.fraction_low, after.fraction_high - after.fraction_low)
        widths.append((change.high - change.low) / two)
    assert np.median(widths) < 0.9


@pytest.mark.outer
@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_no_change_has_a_small_p_value_no_more_often_than_stated(fraction: float) -> None:
    p_values = np.array([audits(3000 + trial, (fraction, fraction), alone=False)[0].p_value for trial in range(TRIALS)])
    for u in (0.05, 0.2):
        assert (p_values <= u).sum() <= stats.binom.ppf(1 - SURE, TRIALS, u)
    assert (p_values <= 0.5).sum() >= stats.binom.ppf(SURE, TRIALS, 0.5)


def test_a_model_that_did_not_change_did_not_change() -> None:
    generator = np.random.default_rng(4)
    records, membership = provider(generator, 2 * SIZE, 8.0), halves(generator, 20, 2 * SIZE, SIZE)
    same, shadows = records.outputs(generator, np.arange(2 * SIZE) < SIZE), records.outputs(generator, membership)
    change = before_after(jax.random.key(1), same, same, SIZE, shadows, membership)
    assert (change.fraction, change.low, change.high, change.p_value) == (0.0, 0.0, 0.0, 1.0)
    other = before_after(jax.random.key(1), records.level, same, SIZE, shadows, membership)
    assert other.high < 0


def test_what_training_does_not_change_is_unknown() -> None:
    generator = np.random.default_rng(5)
    records, membership = provider(generator, 2 * SIZE, 0.0), halves(generator, 6, 2 * SIZE, SIZE)
    pair, shadows = records.outputs(generator, np.zeros((2, 2 * SIZE), bool)), records.outputs(generator, membership)
    change = before_after(jax.random.key(1), pair[0], pair[1], SIZE, shadows, membership)
    assert (change.low, change.high) == (-1.0, 1.0)


def test_groups_are_permuted_whole() -> None:
    generator = np.random.default_rng(6)
    groups = np.arange(48) // 4
    level, noise = generator.normal(size=48), generator.normal(size=12)[groups]
    dealt = np.stack([np.isin(groups, generator.permutation(12)[:6]) for _ in range(12)])
    shadows = level + 4 * dealt + generator.normal(size=dealt.shape)
    pair = level + np.stack([noise, -noise])
    by_records, by_groups = (
        before_after(jax.random.key(2), pair[0], pair[1], 24, shadows, dealt, groups=each) for each in (None, groups)
    )
    assert by_groups.fraction == by_records.fraction
    assert by_groups.high - by_groups.low > 1.3 * (by_records.high - by_records.low)

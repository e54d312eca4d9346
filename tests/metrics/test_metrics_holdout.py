"""The permutation test and the holdout test: error rates as stated, of records and of whole groups."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats
from support.simulated_shadows import halves, provider

from jaxaudit.errors import InputError
from jaxaudit.metrics import Usage, dealt_alike, holdout_test, permutation_test
from jaxaudit.metrics.holdout import mean_variance, swapped
from jaxaudit.metrics.permutation import permuted_differences

SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
SIZE = 24
TRIALS = 60


def audit(
    trial: int,
    fraction: float,
    *,
    models: int = 11,
    gap: float = 4.0,
    strange: bool = False,
    size: int = SIZE,
    deal: Callable[..., np.ndarray] = halves,
) -> Usage:
    """One audit of a target that used a fraction; a strange one is like no shadow model."""
    generator = np.random.default_rng([9, trial])
    records = provider(generator, 2 * size, gap)
    membership = deal(generator, models, 2 * size, size)
    used = np.arange(2 * size) < round(fraction * size)
    target = records.outputs(generator, used)
    if strange:
        target = 5 - 0.2 * target**2
    return holdout_test(
        jax.random.key(trial),
        target[:size],
        target[size:],
        records.outputs(generator, membership),
        membership,
        permutations=199,
    )


@pytest.mark.parametrize(("first", "second"), [(3, 6), (6, 3)])
def test_the_permutation_test_is_that_of_all_splits(first: int, second: int) -> None:
    values = np.random.default_rng(2).normal(size=first + second) + (np.arange(first + second) < first)
    splits = [list(chosen) for chosen in combinations(range(first + second), first)]
    differences = np.array([values[split].mean() - np.delete(values, split).mean() for split in splits])
    observed = values[:first].mean() - values[first:].mean()
    exact = (differences >= observed - 1e-12).mean()
    test = permutation_test(jax.random.key(1), values[:first], values[first:], permutations=4999)
    assert test.difference == pytest.approx(observed)
    assert abs(test.p_larger - exact) < stats.norm.isf(SURE) * np.sqrt(exact * (1 - exact) / 5000) + 1 / 5000


@pytest.mark.outer
def test_the_level_holds_whatever_the_target_is() -> None:
    p_values = np.array([audit(trial, 0.0, strange=True).p_never for trial in range(TRIALS)])
    for u in (0.05, 0.2):
        assert (p_values <= u).sum() <= stats.binom.ppf(1 - SURE, TRIALS, u)
    assert (p_values <= 0.5).sum() >= stats.binom.ppf(SURE, TRIALS, 0.5)


def coins(generator: np.random.Generator, models: int, records: int, size: int) -> np.ndarray:
    """Every record is drawn for itself: `train.py` of Carlini et al. (2022) with `--pkeep 0.5`."""
    return kept(lambda: generator.uniform(0, 1, (models, records)) <= 0.5, size)


def balanced(generator: np.random.Generator, models: int, records: int, size: int) -> np.ndarray:
    """Each record is in half of the models: the same with `--num_experiments`."""
    return kept(lambda: generator.uniform(0, 1, (models, records)).argsort(0) < models // 2, size)


def pairs(generator: np.random.Generator, models: int, records: int, size: int) -> np.ndarray:
    """Of two models, each has what the other lacks: Privacy Meter's `split_dataset_for_training`."""
    first = halves(generator, models // 2, records, size)
    return np.stack([first, ~first], axis=1).reshape(-1, records)


def kept(draw: Callable[[], np.ndarray], size: int) -> np.ndarray:
    """Rows that the holdout test takes; of independent draws, one in 370 is not."""
    while True:
        rows = draw()
        if all(dealt_alike(int(row.sum()), size, rows.shape[1]) for row in rows):
            return rows


@pytest.mark.outer
@pytest.mark.parametrize("deal", [halves, coins, balanced, pairs])
def test_training_sets_of_about_the_query_sets_size_keep_both_error_rates(deal: Callable[..., np.ndarray]) -> None:
    """Numbers of members may vary by chance; 19 models and the target: ranks in twentieths (of pairs, 20 and 21)."""
    models = 20 if deal is pairs else 19
    unused, used = (
        [audit(5000 + trial, share, models=models, size=40, deal=deal) for trial in range(TRIALS)]
        for share in (0.0, 1.0)
    )
    never, full = (np.array([each.p_never for each in unused]), np.array([each.p_fully for each in used]))
    for u in (1 / (models + 1), 0.2, 0.5):
        most = stats.binom.ppf(1 - SURE, TRIALS, u)
        assert (never <= u).sum() <= most
        assert (full <= u + 1e-9).sum() <= most
    assert min((never <= 0.5).sum(), (full <= 0.5).sum()) >= stats.binom.ppf(SURE, TRIALS, 0.4)
    assert np.mean([each.verdict == "not forgotten" for each in used]) > 0.9


@pytest.mark.outer
def test_the_interval_covers_the_used_fraction() -> None:
    found = [audit(1000 + trial, 0.5) for trial in range(TRIALS)]
    covered = sum(usage.fraction_low <= 0.5 <= usage.fraction_high for usage in found)
    assert covered >= stats.binom.ppf(SURE, TRIALS, 0.95)
    assert abs(np.mean([usage.fraction for usage in found]) - 0.5) < 0.1


@pytest.mark.outer
def test_a_target_that_used_half_is_called_forgotten_no_more_often_than_stated() -> None:
    """The test itself detects it at most times; with a gap this small, not always."""
    audits = [audit(2000 + trial, 0.5, gap=3.0) for trial in range(TRIALS)]
    wrong = sum(usage.verdict == "forgotten" for usage in audits)
    assert wrong <= stats.binom.ppf(1 - SURE, TRIALS, 0.05)
    assert sum(usage.upper < 0.5 for usage in audits) <= stats.binom.ppf(1 - SURE, TRIALS, 0.05)
    assert sum(usage.p_never > 0.05 for usage in audits) > wrong


def test_a_target_without_the_query_set_is_forgotten_where_use_would_have_shown() -> None:
    usage: Any = audit(7, 0.0, models=40, gap=12.0, size=240)
    assert usage.verdict == "forgotten"
    assert usage.upper <= 0.25
    assert usage.detectable <= 0.25
    assert usage.p_fully <= 0.05


def test_swapped_sets_are_noticed() -> None:
    usage = settled(10, lambda outputs: outputs, (False, True))
    assert usage.verdict == "inconclusive"
    assert any("over-forgotten" in reason and "exchanged" in reason for reason in usage.reasons)


def settled(seed: int, target_of: Callable[[np.ndarray], np.ndarray], used: tuple[bool, bool]) -> Usage:
    """An audit that would notice little use, of a target that used all or nothing of the query set and the holdout."""
    generator, size = np.random.default_rng(seed), 80
    records, membership = provider(generator, 2 * size, 12.0), halves(generator, 40, 2 * size, size)
    target = target_of(records.outputs(generator, np.repeat(used, size)))
    shadows = records.outputs(generator, membership)
    return holdout_test(jax.random.key(1), target[:size], target[size:], shadows, membership)


@pytest.mark.parametrize("used", [False, True])
def test_a_target_trained_on_both_sets_is_not_called_forgotten(used: bool) -> None:
    usage = settled(12, lambda outputs: outputs, (used, used))
    assert usage.p_never > 0.05
    assert usage.verdict == ("inconclusive" if used else "forgotten")
    assert used == any("trained on the holdout" in reason for reason in usage.reasons)


def test_outputs_that_are_one_value_hide_use() -> None:
    usage = settled(13, lambda outputs: np.where(outputs > -5, 15.0, outputs), (True, False))
    assert usage.p_never > 0.05
    assert usage.verdict == "inconclusive"
    assert any(reason.startswith("100%") for reason in usage.reasons)


def test_outputs_that_hardly_vary_do_not_make_the_audit_finer() -> None:
    usual: Any = settled(14, lambda outputs: outputs, (False, False))
    flat: Any = settled(14, lambda outputs: -12 + 0.1 * outputs, (False, False))
    assert flat.detectable >= 0.8 * usual.detectable
    # Less than one record of 80.
    assert flat.detectable > 1 / 80
    assert flat.fraction_high > 1 / 80


def test_refusals() -> None:
    generator = np.random.default_rng(11)
    membership = halves(generator, 6, 40, 20)
    for size in (32, 8):
        with pytest.raises(InputError, match=rf"{size} records of the 40 query and holdout records.* 20 to 20"):
            holdout_test(jax.random.key(1), np.zeros(size), np.zeros(40 - size), np.zeros((6, 40)), membership)
    with pytest.raises(InputError, match="`size_of_first` must be at least 1"):
        permutation_test(jax.random.key(1), np.zeros(0), np.zeros(3))
    with pytest.raises(InputError, match="`first` must be finite; got inf"):
        permutation_test(jax.random.key(1), np.array([np.inf]), np.zeros(3))
    with pytest.raises(InputError, match="10 permutations"):
        permutation_test(jax.random.key(1), np.zeros(2), np.zeros(3), permutations=10)


GROUP, GROUPS = 5, 12
"""Records of a group, and groups of each side."""


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("grouped", "rotated"), [(True, False), (True, True), (False, True)])
def test_p_values_are_counts_of_permuted_differences(
    grouped: bool, rotated: bool, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose slow twins are in `test_score_permutation.py`; groups are of 1 to 4 records."""
    if rotated:
        monkeypatch.setattr("jaxaudit.metrics.permutation.MOST_PERMUTED", 0)
    random, key = np.random.default_rng(2), jax.random.key(2)
    groups = np.repeat(np.arange(9), random.integers(1, 5, 9)) * 7 % 23
    values = random.integers(0, 3, len(groups)).astype(float) if ties else random.normal(size=len(groups))
    size, how = int((groups == 21).argmax()), {"groups": groups if grouped else None, "permutations": 399}
    test = permutation_test(key, values[:size], values[size:], **how)
    observed, *others = permuted_differences(key, values[:, None], size, **how)[:, 0]
    assert test.difference == pytest.approx(observed)
    assert test.p_larger == (1 + sum(each >= observed - 1e-9 for each in others)) / 400
    assert test.p_smaller == (1 + sum(each <= observed + 1e-9 for each in others)) / 400
    assert (test.p_larger <= 0.05) == (test.difference > test.critical)


def test_the_variance_of_a_mean_over_groups_is_that_of_simulated_means() -> None:
    random, trials = np.random.default_rng(6), 4000
    groups = np.repeat(np.arange(8), 4)
    drawn = random.normal(size=(trials, 8))[:, groups] + 0.5 * random.normal(size=(trials, 32))
    estimates = [mean_variance(each, groups, np.ones(32, bool)) / 32 for each in drawn]
    truth = (1 + 0.25 / 4) / 8
    error = np.std(estimates) / np.sqrt(trials)
    assert abs(np.mean(estimates) - truth) < stats.norm.isf(SURE / 2) * error


def used(trial: int, fraction: float, groups: np.ndarray, judged_by: np.ndarray | None) -> Usage:
    """A target that used a fraction of the query set's groups, judged by groups or by records."""
    random, count = np.random.default_rng([13, trial]), int(groups.max()) + 1
    size, models = len(groups) // 2, 21
    rows = halves(random, models, count, count // 2)[:, groups]
    target_row = np.isin(groups, random.permutation(count // 2)[: round(fraction * count / 2)])
    level = random.normal(0, 2, count)[groups]

    def outputs(rows: np.ndarray) -> np.ndarray:
        shared = random.normal(size=(*rows.shape[:-1], count))[..., groups]
        return level + 2.0 * rows + shared + 0.3 * random.normal(size=rows.shape)

    target, shadows, key = outputs(target_row), outputs(rows), jax.random.key(trial)
    return holdout_test(key, target[:size], target[size:], shadows, rows, groups=judged_by, permutations=199)


@pytest.mark.outer
def test_permuting_groups_keeps_the_level_that_permuting_records_loses() -> None:
    trials, groups = 250, np.repeat(np.arange(2 * GROUPS), GROUP)
    grouped, plain = (
        sum(used(trial, 0.0, groups, by).p_never <= 0.05 for trial in range(trials)) for by in (groups, None)
    )
    assert grouped <= stats.binom.ppf(1 - SURE, trials, 0.05)
    # The lower end of the interval of what permuting records does is above 9%.
    assert stats.binomtest(plain, trials).proportion_ci(0.95).low > 0.09


@pytest.mark.outer
def test_the_interval_covers_where_groups_were_dealt_and_used_whole() -> None:
    trials, groups = 60, np.repeat(np.arange(48), GROUP)
    found = [[used(trial, 0.5, groups, by) for trial in range(trials)] for by in (groups, None)]
    covered = [sum(one.fraction_low <= 0.5 <= one.fraction_high for one in each) for each in found]
    assert covered[0] >= stats.binom.ppf(SURE, trials, 0.95)
    assert covered[1] < covered[0]
    wide, narrow = (np.mean([one.fraction_high - one.fraction_low for one in each]) for each in found)
    assert wide > 1.3 * narrow
    p_values = np.array([used(trial, 1.0, groups, groups).p_fully for trial in range(trials)], float)
    for u in (2 / 22, 11 / 22):
        assert stats.binom.ppf(SURE, trials, u) <= (p_values <= u).sum() <= stats.binom.ppf(1 - SURE, trials, u)


def test_what_is_no_deal_of_groups_is_refused() -> None:
    values, groups = np.arange(12.0), np.repeat(np.arange(6), 2)
    for wrong, size in (
        (groups[:-1], 6),
        (groups, 5),  # the third group lies on both sides
        (groups // 2, 4),  # one of three groups: three deals
        (groups, 0),
    ):
        with pytest.raises(InputError):
            permutation_test(jax.random.key(1), values[:size], values[size:], groups=wrong)
    with pytest.raises(InputError, match=r"^1 groups"):
        permutation_test(jax.random.key(1), values[:5], values[5:], groups=groups)
    shadows, rows = np.zeros((4, 12)), np.array([groups < 3] * 4)
    rows[0, 0] = False
    with pytest.raises(InputError, match="3 whole groups"):
        holdout_test(jax.random.key(1), values[:6], values[6:], shadows, rows, groups=groups)


def test_what_chance_makes_of_honest_models_is_said_to_be_chance() -> None:
    """Of models that used none, 1 in 40 looks less used than the holdout; 1 in 1,000 is called over-forgotten alone."""
    for p_smaller, accused in ((0.0005, True), (0.001, True), (0.0015, False), (0.025, False)):
        (doubt,) = swapped(p_smaller)
        assert ("pushes too far" in doubt, "by chance" in doubt) == (accused, not accused)
    assert swapped(0.0255) == ()

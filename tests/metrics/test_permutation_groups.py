"""Whole groups are permuted where whole groups were dealt: the level then holds."""

import jax
import numpy as np
import pytest
from scipy import stats
from support.simulated_shadows import halves

from jaxaudit.errors import InputError
from jaxaudit.metrics.holdout import holdout_test, mean_variance
from jaxaudit.metrics.permutation import check_groups, permutation_test
from jaxaudit.metrics.usage import Usage
from jaxaudit.randomness import generator_of

SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
GROUP, GROUPS = 5, 12
"""Records of a group, and groups of each side."""


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("query", [2, 5])
def test_the_groups_of_each_permutation_are_those_of_a_loop(ties: bool, query: int) -> None:
    """The slow twin deals the same groups one permutation after the other and takes means of records."""
    random = np.random.default_rng([2, query])
    groups = np.repeat(np.arange(9), random.integers(1, 5, 9))
    values = random.integers(0, 3, len(groups)).astype(float) if ties else random.normal(size=len(groups))
    size = int((groups < query).sum())
    key, permutations = jax.random.key(query), 399
    test = permutation_test(key, values[:size], values[size:], groups=groups * 7 % 23, permutations=permutations)
    names, own = np.unique(groups * 7 % 23, return_inverse=True)
    first = np.isin(names, (groups * 7 % 23)[:size])
    dealt = generator_of(key).permuted(np.tile(first, (permutations, 1)), axis=1)
    observed = values[:size].mean() - values[size:].mean()
    differences = []
    for row in dealt:
        assert row.sum() == query
        differences.append(values[row[own]].mean() - values[~row[own]].mean())
    assert test.difference == pytest.approx(observed)
    assert test.p_larger == (1 + sum(each >= observed - 1e-9 for each in differences)) / (1 + permutations)
    assert test.p_smaller == (1 + sum(each <= observed + 1e-9 for each in differences)) / (1 + permutations)
    assert (test.p_larger <= 0.05) == (test.difference > test.critical)


def test_themean_variance_of_a_mean_over_groups_is_that_of_simulated_means() -> None:
    random, trials = np.random.default_rng(6), 4000
    groups = np.repeat(np.arange(8), 4)
    drawn = random.normal(size=(trials, 8))[:, groups] + 0.5 * random.normal(size=(trials, 32))
    estimates = [mean_variance(each, groups, np.ones(32, bool)) / 32 for each in drawn]
    truth = (1 + 0.25 / 4) / 8
    error = np.std(estimates) / np.sqrt(trials)
    assert abs(np.mean(estimates) - truth) < stats.norm.isf(SURE / 2) * error


def audits(trials: int) -> np.ndarray:
    """p-values of targets that used nothing, by groups and by records; each group's records are near-copies."""
    found = []
    groups = np.repeat(np.arange(2 * GROUPS), GROUP)
    size = GROUPS * GROUP
    for trial in range(trials):
        random = np.random.default_rng([12, trial])
        level = random.normal(0, 2, 2 * GROUPS)[groups] + 0.2 * random.normal(size=2 * size)
        # What a model happens to think of a group it thinks of all of its near-copies.
        models, gap = 13, 1.0
        rows = halves(random, models, 2 * GROUPS, GROUPS)[:, groups]
        said = level + gap * rows + 0.8 * random.normal(size=(models, 2 * GROUPS))[:, groups]
        said += 0.3 * random.normal(size=said.shape)
        target = level + 0.8 * random.normal(size=2 * GROUPS)[groups] + 0.3 * random.normal(size=2 * size)
        by_records = halves(random, models, 2 * size, size)
        key = jax.random.key(trial)
        grouped = holdout_test(key, target[:size], target[size:], said, rows, groups=groups, permutations=199)
        said = level + gap * by_records + 0.8 * random.normal(size=(models, 2 * GROUPS))[:, groups]
        said += 0.3 * random.normal(size=said.shape)
        plain = holdout_test(key, target[:size], target[size:], said, by_records, permutations=199)
        found.append((grouped.p_never, plain.p_never))
    return np.array(found)


@pytest.mark.outer
def test_permuting_groups_keeps_the_level_that_permuting_records_loses() -> None:
    trials = 250
    grouped, plain = (audits(trials) <= 0.05).sum(axis=0)
    assert grouped <= stats.binom.ppf(1 - SURE, trials, 0.05)
    # The lower end of the interval of what permuting records does is above 9%.
    assert stats.binomtest(int(plain), trials).proportion_ci(0.95).low > 0.09


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
    assert check_groups(groups, 6, 12) == 3
    for wrong, size in (
        (groups[:-1], 6),
        (groups, 5),  # the third group lies on both sides
        (groups // 2, 4),  # one of three groups: three deals
        (groups, 0),
    ):
        with pytest.raises(InputError):
            check_groups(wrong, size, 12)
    with pytest.raises(InputError, match=r"^1 groups"):
        permutation_test(jax.random.key(1), values[:5], values[5:], groups=groups)
    shadows, rows = np.zeros((4, 12)), np.array([groups < 3] * 4)
    rows[0, 0] = False
    with pytest.raises(InputError, match="3 whole groups"):
        holdout_test(jax.random.key(1), values[:6], values[6:], shadows, rows, groups=groups)

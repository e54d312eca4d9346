"""The deletion test: its level, its limits against a search, their coverage, and what changes nothing."""

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.deletion import deletion_test, limits_by_before, paired

KEY = jax.random.key(4)
SIZE, SURE, TRIALS = 120, 1e-4, 300
"""A correct test fails for one key in ten thousand; the keys are fixed."""


def scores(
    generator: np.random.Generator, used: float, before: float = 1.0, gap: float = 1.5
) -> tuple[np.ndarray, np.ndarray]:
    """Of models after and before a deletion: what makes a record difficult is the same for both."""
    difficulty, gaps = generator.normal(size=2 * SIZE), generator.uniform(0, 2 * gap, 2 * SIZE)
    in_query = np.arange(2 * SIZE) < SIZE
    kept = in_query & (generator.permutation(2 * SIZE) < round(used * 2 * SIZE) if used < 1 else in_query)
    return (
        difficulty + gaps * kept + generator.normal(size=2 * SIZE),
        difficulty + gaps * in_query * before + generator.normal(size=2 * SIZE),
    )


def test_the_limits_are_those_of_a_search_over_all_shares() -> None:
    generator, grid = np.random.default_rng(1), np.linspace(0, 1, 2001)
    for used in (0.0, 0.2, 0.5, 1.0) * 5:
        after, before = scores(generator, used)
        pair = paired(after, before, SIZE, None)
        found = limits_by_before(pair, level=0.8)
        of_holdout = [each / each[SIZE:].std() for each in (after, before)]
        accepted: dict[float, list[float]] = {0.9: [], 0.8: []}
        for share in grid:
            left = of_holdout[0] - share * of_holdout[1]
            error = np.sqrt(left[:SIZE].var(ddof=1) / SIZE + left[SIZE:].var(ddof=1) / SIZE)
            apart = abs(left[:SIZE].mean() - left[SIZE:].mean()) / error
            for level, shares in accepted.items():
                if apart <= stats.t.ppf((1 + level) / 2, SIZE - 1):
                    shares.append(share)
        nearest = min(max(found.fraction, 0.0), 1.0)
        low, high = min([*accepted[0.8], nearest]), max([*accepted[0.8], nearest])
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-3)
        assert found.upper == pytest.approx(max([*accepted[0.9], nearest]), abs=1e-3)


@pytest.mark.parametrize("used", [0.2, 0.5, 0.8])
def test_the_limit_covers_what_was_used(used: float) -> None:
    generator = np.random.default_rng(2)
    found = [deletion_test(KEY, *scores(generator, used), SIZE, permutations=99).usage for _ in range(TRIALS)]
    covered = sum(usage.upper >= used for usage in found)
    assert covered >= stats.binom.ppf(SURE, TRIALS, 0.94)
    assert np.median([usage.fraction for usage in found]) == pytest.approx(used, abs=0.05)


def test_a_model_that_used_none_is_rarely_accused_and_often_cleared() -> None:
    generator = np.random.default_rng(3)
    found = [
        deletion_test(jax.random.key(place), *scores(generator, 0.0), SIZE, permutations=199).usage
        for place in range(TRIALS)
    ]
    assert sum(usage.p_never <= 0.05 for usage in found) <= stats.binom.ppf(1 - SURE, TRIALS, 0.05)
    assert np.mean([usage.verdict == "forgotten" for usage in found]) > 0.4
    used = [deletion_test(KEY, *scores(generator, 1.0), SIZE, permutations=199).usage for _ in range(20)]
    assert {usage.verdict for usage in used} == {"not forgotten"}


def test_softer_or_sharper_answers_change_nothing() -> None:
    after, before = scores(np.random.default_rng(5), 0.5)
    first, second = (deletion_test(KEY, 0.1 * scale + scale * after, before, SIZE).usage for scale in (1.0, 0.2))
    for name in ("p_fully", "fraction", "fraction_low", "fraction_high", "upper", "detectable"):
        assert getattr(second, name) == pytest.approx(getattr(first, name))


@pytest.mark.parametrize("times", [0.2, 1.0, 3.0, 10.0, "noise", "constant"])
def test_a_model_that_still_remembers_all_is_not_cleared_by_how_it_answers(times: float | str) -> None:
    """The same model as before, whose answers are softer, sharper, noisy, or say nothing."""
    found = []
    for seed in range(30):
        random = np.random.default_rng(seed)
        classes, hard, in_query = random.integers(4, size=1000), random.normal(size=1000), np.arange(1000) < 500
        before = 2.2 + 0.9 * hard + 0.4 * random.normal(size=1000) + 0.5 * in_query
        after = np.full(1000, 3.5) if times == "constant" else before + 5 * random.normal(size=1000)
        after = before * times if isinstance(times, float) else after
        predictors = np.c_[np.eye(4)[classes], hard, hard**2]
        found.append(deletion_test(KEY, after, before, 500, predictors, permutations=199).usage)
    assert not any(usage.verdict == "forgotten" for usage in found)
    if isinstance(times, float):
        assert np.median([usage.fraction for usage in found]) == pytest.approx(1, abs=0.02)
    if times == "constant":
        assert {usage.p_never for usage in found} == {1.0}
        assert not any(usage.has_fraction for usage in found)


def test_without_memory_before_nothing_is_cleared() -> None:
    generator = np.random.default_rng(6)
    for _ in range(20):
        after, before = scores(generator, 0.0, before=0.0)
        answer = deletion_test(KEY, after, before, SIZE)
        if answer.p_memory > 0.05:
            assert answer.usage.verdict != "forgotten"
            assert not answer.usage.has_fraction
            assert answer.usage.p_fully is None


def test_exchanged_files_are_noticed() -> None:
    after, before = scores(np.random.default_rng(7), 0.0)
    exchanged = np.r_[before[SIZE:], before[:SIZE]]
    assert "exchanged" in " ".join(deletion_test(KEY, after, exchanged, SIZE).usage.reasons)
    assert deletion_test(KEY, after, exchanged, SIZE).usage.verdict == "inconclusive"


def test_whole_groups_are_less_certain_than_as_many_records() -> None:
    """Records that are copies of one another count once."""
    after, before = scores(np.random.default_rng(8), 0.3)
    copied = np.repeat(np.arange(2 * SIZE), 4)
    one = deletion_test(KEY, after, before, SIZE).usage
    groups = deletion_test(KEY, after[copied], before[copied], 4 * SIZE, groups=copied).usage
    records = deletion_test(KEY, after[copied], before[copied], 4 * SIZE).usage
    assert groups.upper == pytest.approx(one.upper, abs=0.01)
    assert records.upper < one.upper - 0.02


def test_scores_that_do_not_fit_are_refused() -> None:
    after, before = scores(np.random.default_rng(9), 0.0)
    after[3] = np.nan
    with pytest.raises(InputError):
        deletion_test(KEY, after, before, SIZE)


def test_constant_scores_show_nothing() -> None:
    usage = deletion_test(KEY, np.zeros(2 * SIZE), np.zeros(2 * SIZE), SIZE).usage
    assert (usage.verdict, usage.p_never, usage.p_fully) == ("inconclusive", 1.0, None)

"""Memory of a query set by known members and by the model before a deletion: limits of a search, and error rates."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.simulated_shadows import provider

from jaxaudit.errors import InputError
from jaxaudit.metrics import MemoryAnswer, deletion_test, difficulty, members_test, residual_scores
from jaxaudit.metrics.memory import LEAST_MEMBERS, NO_MEMORY, RULE_LEVEL, paired, rule_test, set_means
from jaxaudit.metrics.usage import UNKNOWN, Ratio

SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
TRIALS = 400
SIZES = (80, 100, 60)
NONE, SMALL, LARGE = 0.0, 1.0, 6.0
"""Memories: by how much log-odds are higher of records that were used, at most."""


class World:
    """One target that used a share of the query set, none of the holdout and all members."""

    def __init__(self, trial: int, share: float, memory: float, *, sizes: tuple[int, int, int] = SIZES, whole: int = 1):
        generator = np.random.default_rng([41, trial])
        self.trial, self.sizes = trial, sizes
        dealt = provider(generator, sum(sizes) // whole, memory)
        level, gap = (np.repeat(each, whole) for each in dealt)
        used = np.repeat(np.arange(3), sizes) == 2
        of_query = np.arange(sizes[0] // whole) < round(share * sizes[0] / whole)
        used[: sizes[0]] = np.repeat(generator.permutation(of_query), whole)
        self.groups = np.repeat(np.arange(sum(sizes) // whole), whole)
        self.odds = level + gap * used + generator.normal(size=len(level)) / whole
        self.predictors = np.repeat(dealt.level + generator.normal(size=len(dealt.level)), whole)[:, None]

    def answer(self, **options: Any) -> MemoryAnswer:
        key = jax.random.key(self.trial)
        return members_test(
            key, residual_scores(self.odds, self.predictors), self.sizes, **{"permutations": 99, **options}
        )

    def ratio(self, *, grouped: bool = False) -> Ratio:
        return set_means(residual_scores(self.odds, self.predictors), self.sizes, self.groups if grouped else None)


def most(rate: float, trials: int = TRIALS) -> float:
    return float(stats.binom.ppf(1 - SURE, trials, rate))


def least(rate: float, trials: int = TRIALS) -> float:
    return float(stats.binom.ppf(SURE, trials, rate))


MEANS, VARIANCES = st.floats(-2, 2), st.floats(1e-4, 0.5)


@settings(max_examples=300)
@given(st.tuples(MEANS, MEANS, MEANS), st.tuples(VARIANCES, VARIANCES, VARIANCES), st.integers(1, 400))
def test_the_limits_are_those_of_a_search_over_all_fractions(means: Any, variances: Any, freedom: int) -> None:
    grid = np.linspace(0, 1, 2001)
    (query, holdout, members), (of_query, of_holdout, of_members) = means, variances
    combined = (of_query + of_holdout, -2 * of_holdout, of_members + of_holdout)
    found = Ratio(query - holdout, members - holdout, combined, freedom).limits(level=0.8)
    if members <= holdout:
        assert found[1:] == UNKNOWN[1:]
        assert np.isnan(found.fraction)
        return
    estimate = (query - holdout) / (members - holdout)
    assert found.fraction == pytest.approx(estimate)
    possible = float(np.clip(estimate, 0, 1))
    for (low, high), confidence in (((found.low, found.high), 0.8), ((0.0, found.upper), 0.9)):
        quantile = stats.t.ppf((1 + confidence) / 2, freedom)
        if members - holdout <= quantile * np.sqrt(of_members + of_holdout):
            assert (low, high) == (0.0, 1.0)
            continue
        variance = of_query + grid**2 * of_members + (1 - grid) ** 2 * of_holdout
        apart = np.abs(query - grid * members - (1 - grid) * holdout)
        accepted = [*grid[apart <= quantile * np.sqrt(variance)], possible]
        assert high == pytest.approx(max(accepted), abs=1e-3)
        assert low == pytest.approx(min(accepted) if confidence == 0.8 else 0.0, abs=1e-3)


def test_the_least_that_would_be_detected_has_the_stated_power() -> None:
    known = Ratio(0.1, 1.0, (0.01, -0.012, 0.007), 999)
    share: Any = known.limits().detectable
    assert stats.norm.sf(stats.norm.isf(0.05) - share / 0.1) == pytest.approx(0.95)
    assert known._replace(whole=0.3).limits().detectable is None


@pytest.mark.outer
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("memory", [NONE, SMALL, LARGE])
def test_limit_and_interval_cover_the_truth_whatever_is_remembered(memory: float, share: float) -> None:
    found = [World(trial, share, memory).ratio().limits(level=0.9) for trial in range(TRIALS)]
    below = sum(each.upper < share - 1e-9 for each in found)
    missed = sum(not each.low - 1e-9 <= share <= each.high + 1e-9 for each in found)
    assert below <= most(0.05)
    assert missed <= most(0.1)
    if memory == LARGE and share in (0.25, 0.5):
        # A limit that always covers says nothing.
        assert below >= least(0.03)
        assert np.median([each.upper for each in found]) < share + 0.35
    if memory == NONE:
        assert sum(each.upper == 1 for each in found) >= least(0.9)


@pytest.mark.outer
def test_limits_of_groups_cover_where_those_of_records_do_not() -> None:
    """Ten near-copies of each record were dealt together."""
    worlds = [World(trial, 0.5, LARGE, sizes=(400, 400, 400), whole=10) for trial in range(TRIALS)]
    missed = {
        grouped: sum(
            not each.low <= 0.5 <= each.high
            for each in (world.ratio(grouped=grouped).limits(level=0.9) for world in worlds)
        )
        for grouped in (True, False)
    }
    assert missed[True] <= most(0.1)
    assert missed[False] > most(0.1)


@pytest.mark.outer
def test_a_target_that_remembers_nothing_has_no_limit_whatever_it_used() -> None:
    """It shows a memory by chance in 5% of the cases, and is then called forgotten in a few of these at most."""
    trials, shown = 150, []
    for trial in range(trials):
        answer = World(trial, trial % 2, NONE).answer()
        usage = answer.usage
        if answer.p_memory <= 0.05:
            shown.append(usage.verdict)
            continue
        assert usage.verdict != "forgotten"
        assert (usage.fraction_low, usage.fraction_high, usage.upper, usage.p_fully) == (0.0, 1.0, 1.0, None)
        assert np.isnan(usage.fraction)
        assert NO_MEMORY in usage.reasons or usage.verdict == "not forgotten" or usage.invalid
    assert len(shown) <= most(0.05, trials)
    assert shown.count("forgotten") <= most(0.002, trials)


@pytest.mark.outer
@pytest.mark.parametrize("whole", [1, 5])
def test_both_p_values_are_exact_under_their_hypotheses(whole: int) -> None:
    """Whatever the target is: one that is surest of what it knows least. By records, and by groups of five."""
    trials = 150
    for share, name in ((0.0, "p_never"), (1.0, "p_fully")):
        p_values = []
        for trial in range(trials):
            world = World(1000 + trial, share, LARGE, whole=whole)
            world.odds = 3 - 0.2 * world.odds**2 if trial % 2 and name == "p_never" else world.odds
            usage = world.answer(groups=world.groups if whole > 1 else None).usage
            p_values.append(1.0 if getattr(usage, name) is None else getattr(usage, name))
        for u in (0.05, 0.2, 0.5):
            assert sum(p <= u for p in p_values) <= most(u, trials)
        assert sum(p <= 0.5 for p in p_values) >= least(0.5, trials) / 2


@pytest.mark.outer
def test_verdicts_are_wrong_no_more_often_than_stated_and_right_mostly() -> None:
    """`forgotten` of just above the stated share, `not forgotten` of no use; sets of 400, 400 and 400."""
    trials, sizes = 100, (400, 400, 400)
    verdicts = {
        share: [World(trial, share, LARGE, sizes=sizes).answer().usage.verdict for trial in range(trials)]
        for share in (0.0, 0.26, 1.0)
    }
    assert verdicts[0.26].count("forgotten") <= most(0.05, trials)
    assert verdicts[0.0].count("not forgotten") <= most(0.05, trials)
    assert verdicts[0.0].count("forgotten") > trials / 2
    assert verdicts[1.0].count("not forgotten") == trials


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_holdout_in_the_place_of_the_members_gives_no_verdict(share: float) -> None:
    """And a reason."""
    sizes = (200, 200, 200)
    for trial in range(10):
        world = World(trial, share, LARGE, sizes=sizes)
        order = np.r_[:200, 400:600, 200:400]
        world.odds, world.predictors = world.odds[order], world.predictors[order]
        usage = world.answer(permutations=1999).usage
        assert usage.verdict == "inconclusive"
        assert usage.reasons == usage.invalid != ()


@pytest.mark.parametrize("wrong", ["few", "nan", "sizes", "groups"])
def test_what_cannot_be_judged_is_refused(wrong: str) -> None:
    world = World(1, 0.5, LARGE, sizes=(60, 60, LEAST_MEMBERS - 1 if wrong == "few" else LEAST_MEMBERS))
    options: dict[str, Any] = {}
    if wrong == "nan":
        world.odds[7] = np.nan
    if wrong == "sizes":
        world.sizes = (60, 61, LEAST_MEMBERS)
    if wrong == "groups":
        options["groups"] = np.arange(len(world.odds)) % 60
    with pytest.raises(InputError):
        world.answer(**options)


def test_neighbours_need_a_key_and_classes_alone_do_not() -> None:
    labels, inputs = np.arange(40) % 2, np.zeros((40, 3))
    assert difficulty(None, labels).shape == (40, 2)
    with pytest.raises(InputError):
        difficulty(None, labels, inputs)


KEY = jax.random.key(4)
SIZE, NEARLY, DELETIONS = 120, 1e-4, 300
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


@pytest.mark.outer
@pytest.mark.parametrize("used", [0.2, 0.5, 0.8])
def test_the_limit_covers_what_was_used(used: float) -> None:
    generator = np.random.default_rng(2)
    found = [deletion_test(KEY, *scores(generator, used), SIZE, permutations=99).usage for _ in range(DELETIONS)]
    covered = sum(usage.upper >= used for usage in found)
    assert covered >= stats.binom.ppf(NEARLY, DELETIONS, 0.94)
    assert np.median([usage.fraction for usage in found]) == pytest.approx(used, abs=0.05)


@pytest.mark.outer
def test_a_model_that_used_none_is_rarely_accused_and_often_cleared() -> None:
    generator = np.random.default_rng(3)
    found = [
        deletion_test(jax.random.key(place), *scores(generator, 0.0), SIZE, permutations=199).usage
        for place in range(DELETIONS)
    ]
    assert sum(usage.p_never <= 0.05 for usage in found) <= stats.binom.ppf(1 - NEARLY, DELETIONS, 0.05)
    assert np.mean([usage.verdict == "forgotten" for usage in found]) > 0.4
    used = [deletion_test(KEY, *scores(generator, 1.0), SIZE, permutations=199).usage for _ in range(20)]
    assert {usage.verdict for usage in used} == {"not forgotten"}


@pytest.mark.parametrize("times", [0.2, 10.0, "noise", "constant"])
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


CLASSES = 3
RULES = {
    "fold": lambda odds, classes, random: np.where(odds > 1, 1 - 0.5 * (odds - 1), odds),
    "reversed": lambda odds, classes, random: -odds,
    "cap": lambda odds, classes, random: np.minimum(odds, 1),
    "steps": lambda odds, classes, random: np.ceil(odds),
    "teeth": lambda odds, classes, random: odds % 1,
    "noise": lambda odds, classes, random: odds + 2 * random.normal(size=len(odds)),
    "by class": lambda odds, classes, random: np.where(
        odds > classes, classes - 0.3 * classes * (odds - classes), odds
    ),
    "one value": lambda odds, classes, random: np.ones_like(odds),
}
"""What an owner who deleted nothing makes of the log-odds of the model before."""


def ruled(rule: str, seed: int, copies: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Answers after a rule and before it, classes, and groups of near-copies; some classes are harder than others."""
    random = np.random.default_rng(seed)
    classes, in_query = random.integers(CLASSES, size=2 * SIZE), np.arange(2 * SIZE) < SIZE
    before = classes + random.normal(size=2 * SIZE) + in_query * random.uniform(0, 3, 2 * SIZE)
    groups = np.repeat(np.arange(2 * SIZE), copies)
    before = before[groups] + (0.05 * random.normal(size=len(groups)) if copies > 1 else 0)
    return RULES[rule](before, classes[groups], random), before, classes[groups], groups


@pytest.mark.outer
@pytest.mark.parametrize(("rule", "copies"), [*((rule, 1) for rule in RULES), ("reversed", 3)])
def test_a_rule_for_all_answers_passes_as_a_deletion_no_more_often_than_stated(rule: str, copies: int) -> None:
    passed = 0
    for seed in range(DELETIONS // 2):
        after, before, classes, groups = ruled(rule, seed, copies)
        passed += rule_test(KEY, after, before, copies * SIZE, classes, groups) <= RULE_LEVEL
    assert passed <= stats.binom.ppf(1 - NEARLY, DELETIONS // 2, 2 * RULE_LEVEL)


def test_a_rule_that_makes_both_sets_alike_clears_nobody_and_a_deletion_does() -> None:
    """The fold at which both sets look most alike; without the check it is cleared."""
    cleared = []
    for seed in range(20):
        _, before, classes, _ = ruled("cap", seed)
        predictors = np.eye(CLASSES)[classes]
        folds = (np.where(before > at, 2 * at - before, before) for at in np.linspace(0, 3, 31))
        after = min(folds, key=lambda odds: abs(paired(odds, before, SIZE, None).part))
        usage = deletion_test(KEY, after, before, SIZE, predictors, labels=classes, permutations=99).usage
        assert usage.verdict != "forgotten"
        cleared.append(any("a rule" in reason for reason in usage.reasons))
        if cleared[-1]:
            assert (usage.has_fraction, usage.upper) == (False, 1.0)
    assert np.mean(cleared) > 0.3
    generator = np.random.default_rng(10)
    honest = [rule_test(KEY, *scores(generator, 0.0), SIZE) <= RULE_LEVEL for _ in range(100)]
    assert np.mean(honest) > 0.7


def test_the_comparison_at_equal_answers_is_that_of_a_fit_within_each_stratum() -> None:
    """The slow twin: least squares in each stratum, one after the other."""
    random = np.random.default_rng(11)
    before, after = random.permutation(72) + 0.0, random.permutation(72) + 0.0
    products = []
    for part in np.array_split(np.argsort(before), 6):
        design = np.c_[np.ones(12), np.arange(12)]
        left = [
            values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
            for values in ((part < 36).astype(float), after[part])
        ]
        products.append(left[0] * left[1] * np.sqrt(12 / 10))
    statistic = np.sum(products) / np.sqrt(np.sum(np.square(products)))
    assert rule_test(KEY, after, before, 36) == pytest.approx(stats.t.cdf(statistic, 5))


def test_a_pair_has_the_variance_of_each_weighted_difference_of_its_scores() -> None:
    after, before = scores(np.random.default_rng(1), 0.5)
    found, of_holdout = paired(after, before, SIZE, None), [each / each[SIZE:].std() for each in (after, before)]
    for share in (0.0, 0.4, 1.0):
        left = of_holdout[0] - share * of_holdout[1]
        assert found.part - share * found.whole == pytest.approx(left[:SIZE].mean() - left[SIZE:].mean())
        variance = (left[:SIZE].var(ddof=1) + left[SIZE:].var(ddof=1)) / SIZE
        assert found.variance @ share ** np.arange(3) == pytest.approx(variance)
    assert found.freedom == SIZE - 1

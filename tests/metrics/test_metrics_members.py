"""The members test: its limits against a slow twin, and its error rates as stated, whatever the target remembers."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.simulated_shadows import provider

from jaxaudit.errors import InputError
from jaxaudit.metrics import MemoryAnswer, difficulty, members_test, residual_scores
from jaxaudit.metrics.memory import LEAST_MEMBERS, NO_MEMORY, set_means
from jaxaudit.metrics.usage import UNKNOWN, Ratio

SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
TRIALS = 400
SIZES = (80, 100, 60)
NONE, SMALL, LARGE = 0.0, 1.0, 6.0
"""Memories: by how much log-odds are higher of records that were used, at most."""


class World:
    """One target that used a share of the query set, none of the holdout and all members.

    Outputs vary by record as much as they may, the predictors tell some of it, and records of a group are alike.
    """

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
        cuts = np.cumsum(self.sizes)[:2]
        query, holdout, members = np.split(residual_scores(self.odds, self.predictors), cuts)
        return set_means(query, holdout, members, tuple(np.split(self.groups, cuts)) if grouped else (None, None, None))


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


def test_another_exact_p_value_takes_the_place_of_its_own() -> None:
    world = World(4, 0.0, LARGE)
    own, other = world.answer(), world.answer(p_never=0.01)
    assert (other.usage.p_never, other.usage.verdict) == (0.01, "not forgotten")
    for name in ("p_fully", "fraction", "fraction_low", "fraction_high", "detectable"):
        assert getattr(own.usage, name) == getattr(other.usage, name)


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

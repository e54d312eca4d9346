"""Tests of single groups, alone and beside models that drift: against slow twins, and error rates over many deals."""

from fractions import Fraction
from itertools import combinations
from statistics import NormalDist, mean, median, variance
from typing import Any

import jax
import numpy as np
import pytest
from scipy import optimize, stats

from jaxaudit.metrics import (
    among_groups,
    benjamini_hochberg,
    beyond_groups,
    drift_test,
    holm,
    sizes_apart,
    unlike_in_size,
    within_group,
)
from jaxaudit.metrics import score_tests as module
from jaxaudit.metrics.score_tests import standard_means

DEALS = 400
KEY = jax.random.key(51)


def _slow_standard(values: dict[int, list[float]]) -> tuple[dict[int, float], dict[int, float]]:
    """Each group's mean in standard deviations from the median, and these deviations, number by number."""
    n, count = sum(map(len, values.values())), len(values)
    means = {name: sum(of_group) / len(of_group) for name, of_group in values.items()}
    centre = median(means.values())
    within = sum((value - means[name]) ** 2 for name, of_group in values.items() for value in of_group)
    within = within / (n - count) if n > count else 0.0

    def too_large(between: float) -> float:
        squares = [
            (mean - centre) ** 2 / (between + within / len(values[name]) + 1e-300) for name, mean in means.items()
        ]
        return median(squares) - stats.chi2.median(1)

    root: Any = optimize.brentq(too_large, 0, 1e6, xtol=1e-14) if too_large(0) > 0 else 0.0
    between = float(root)
    deviations = {name: (between + within / len(of_group)) ** 0.5 for name, of_group in values.items()}
    return {name: (mean - centre) / deviations[name] for name, mean in means.items()}, deviations


def _sample(random: np.random.Generator, sizes: list[int], spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Heavy-tailed scores with a shift for each group."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return spread * random.standard_t(3, len(sizes))[groups] + random.standard_t(3, len(groups)), groups


@pytest.mark.parametrize("sizes", [[5] * 8, [1, 2, 9, 4, 3, 1, 7, 2], [1] * 8])
def test_a_groups_rank_is_that_of_a_slow_twin(sizes: list[int]) -> None:
    scores, groups = _sample(np.random.default_rng(1), sizes)
    values = {name: scores[groups == name].tolist() for name in range(8)}
    z, _ = _slow_standard(values)
    size = int(sum(sizes[:3]))
    tests = among_groups(scores, groups, size)
    centre = np.mean([np.mean(values[name]) for name in range(3, 8)])
    for name, test in enumerate(tests):
        above = sum(z[other] >= z[name] for other in range(3, 8))
        assert Fraction(test.p_never).limit_denominator(100) == Fraction(1 + above, 6)
        assert test.least == 1 / 6
        assert test.effect == pytest.approx(np.mean(values[name]) - centre)
    t = [
        (z[name] - np.mean([z[other] for other in range(3, 8)]))
        / (np.std([z[other] for other in range(3, 8)], ddof=1) * (1 + 1 / 5) ** 0.5)
        for name in range(3)
    ]
    assert np.allclose(beyond_groups(scores, groups, size), stats.t.sf(t, 4))


def test_a_group_of_its_own_records_is_dealt_in_every_way() -> None:
    scores = np.random.default_rng(2).normal(size=9)
    possible = [
        scores[list(chosen)].mean() - np.delete(scores, list(chosen)).mean() for chosen in combinations(range(9), 4)
    ]
    test = within_group(KEY, scores, 4)
    assert test.effect == pytest.approx(possible[0])
    assert test.p_never == pytest.approx(np.mean(np.array(possible) >= possible[0] - 1e-12))
    assert test.least == 1 / 126


@pytest.mark.parametrize("by", ["ranks", "random deals", "all deals"])
def test_p_values_of_groups_that_were_not_used_are_exact(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over deals, at most 5% of the first group's p-values are at most 5%; the bound is that of 99.9% for a true 5%."""
    random, p_values = np.random.default_rng(5), []
    if by == "random deals":
        monkeypatch.setattr(module, "ENUMERATED", 10)
        monkeypatch.setattr(module, "ENOUGH", 5)
    for deal in range(DEALS):
        if by == "ranks":
            sizes = random.integers(1, 9, 60).tolist()
            scores, groups = _sample(random, sizes)
            scores = scores + 2.0 * ((groups > 0) & (groups < 10))
            p_values.append(among_groups(scores, groups, int(sum(sizes[:20])))[0].p_never)
        else:
            p_values.append(within_group(jax.random.fold_in(KEY, deal), random.standard_t(2, 12), 6, 199).p_never)
    assert np.mean(np.array(p_values) <= 0.05) <= stats.binom.ppf(0.999, DEALS, 0.05) / DEALS
    # And not far below: a test that never finds anything would pass, too.
    assert np.mean(np.array(p_values) <= 0.5) > 0.4


@pytest.mark.outer
@pytest.mark.parametrize("used", [0, 5])
@pytest.mark.parametrize("by", ["ranks", "own records"])
def test_false_accusations_are_as_rare_as_stated(by: str, used: int) -> None:
    """Holm: any in at most 5% of deals. Benjamini-Hochberg: a false share of at most 5% on average."""
    random, any_false, false_share, found = np.random.default_rng(6), 0, [], 0
    truth = np.arange(10) < used
    for deal in range(DEALS):
        if by == "ranks":
            scores, groups = _sample(random, random.integers(2, 9, 230).tolist(), 0.5)
            scores = scores + 12.0 * (groups < used)
            size = int((groups < 10).sum())
            p_values = [test.p_never for test in among_groups(scores, groups, size)]
        else:
            key = jax.random.fold_in(KEY, deal)
            p_values = [
                within_group(key, random.standard_t(3, 12) + 4 * truth[group] * (np.arange(12) < 6), 6).p_never
                for group in range(10)
            ]
        accused, suspected = (np.array(how(p_values)) <= 0.05 for how in (holm, benjamini_hochberg))
        assert not (accused & ~suspected).any()
        any_false += bool((accused & ~truth).any())
        false_share.append((suspected & ~truth).sum() / max(suspected.sum(), 1))
        found += int((accused & truth).sum())
    bound = stats.binom.ppf(0.999, DEALS, 0.05) / DEALS
    assert any_false / DEALS <= bound
    assert np.mean(false_share) <= bound
    assert found >= 0.5 * used * DEALS


@pytest.mark.outer
@pytest.mark.parametrize(("used", "holdout"), [([2_000], [20] * 39), ([200], [20] * 39), ([200] * 4, [50] * 99)])
def test_a_small_group_is_not_accused_for_large_ones_that_were_used(used: list[int], holdout: list[int]) -> None:
    """Sizes that were not dealt: the rank of an unused group of 3 is at most 5% in little more than 5% of deals.

    With the mean of all records in place of the median, and a variance between groups by analysis of variance, that was
    so in 20% to 30% of them.
    """
    random, accused = np.random.default_rng(9), 0
    sizes = [*used, 3, *holdout]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    size = int((groups <= len(used)).sum())
    for _ in range(DEALS):
        scores = 0.2 * random.normal(size=len(sizes))[groups] + random.normal(size=len(groups))
        accused += among_groups(scores + (groups < len(used)), groups, size)[-1].p_never <= 0.05
    assert accused / DEALS <= 0.1
    assert unlike_in_size(groups, size).all()


def test_groups_outside_the_sizes_of_the_holdout_are_told() -> None:
    groups = np.repeat(np.arange(6), [1, 2, 4, 5, 4, 2])
    assert unlike_in_size(groups, 12).tolist() == [True, False, False, True]


@pytest.mark.parametrize(("query", "holdout"), [(5, 99), (20, 399)])
def test_groups_with_their_sizes_dealt_are_seldom_refused(query: int, holdout: int) -> None:
    """In at most 1% of deals, by the bound of 99.9%; and p is that of a slow twin."""
    random, refused = np.random.default_rng(10), 0
    for _ in range(DEALS):
        sizes = random.integers(2, 30, query + holdout)
        p_value = sizes_apart(np.repeat(np.arange(query + holdout), sizes), int(sizes[:query].sum()))
        refused += p_value <= 0.01
    assert refused <= stats.binom.ppf(0.999, DEALS, 0.01)
    distance = max(abs(float(np.mean(sizes[:query] <= size) - np.mean(sizes[query:] <= size))) for size in sizes)
    assert p_value == pytest.approx(stats.kstwo.sf(distance, round(query * holdout / (query + holdout))))


@pytest.mark.outer
@pytest.mark.parametrize("alike", [True, False])
def test_skewed_scores_of_other_sizes_accuse_innocent_groups_or_are_refused(alike: bool) -> None:
    """Holm accuses any of five large groups in at most 5% of deals, where those whose sizes stand apart have no rank.

    Without the refusal, p of large groups beside a holdout of mostly small ones was at most 5% in 10% of deals.
    """
    random, accused, refused = np.random.default_rng(11), 0, 0
    for _ in range(DEALS):
        sizes = np.r_[
            random.integers(30, 41, 5), 40, random.integers(30, 41, 98) if alike else random.integers(2, 8, 98)
        ]
        groups, size = np.repeat(np.arange(104), sizes), int(sizes[:5].sum())
        scores = 0.2 * random.exponential(size=104)[groups] + random.exponential(size=len(groups))
        p_values = [test.p_never for test in among_groups(scores, groups, size)]
        is_refused = sizes_apart(groups, size) <= 0.01
        refused += is_refused
        accused += not is_refused and min(holm(p_values)) <= 0.05
    assert accused <= stats.binom.ppf(0.999, DEALS, 0.05)
    assert (refused > 0.99 * DEALS) == (not alike)


def test_adjusted_p_values_of_suspects_are_scipys() -> None:
    p_values = np.random.default_rng(8).uniform(size=30) ** 2
    assert np.allclose(benjamini_hochberg(p_values.tolist()), stats.false_discovery_control(p_values))


TABLES = 400
SELDOM = stats.binom.ppf(0.999, TABLES, 0.05)
"""Of so many tables, at most so many err if 5% do; the bound is that of 99.9%."""
DRIFTS: dict[str, Any] = {
    "alike": lambda random, count: np.ones(count),
    "log-normal variances": lambda random, count: np.exp(0.75 * random.normal(size=count)),
    "a tenth far more": lambda random, count: np.where(np.arange(count) >= count - max(1, count // 10), 5.0, 1.0),
    "one far more": lambda random, count: np.where(np.arange(count) == count - 1, 8.0, 1.0),
    "by records": lambda random, count: np.sqrt(0.25 + 4 / random.integers(1, 31, count)),
}
"""By world, the standard deviation of each group's drift; those that drift most are the last, and innocent."""


def _world(
    random: np.random.Generator, drift: str, models: int, query: int, holdout: int = 0, used: int = 0, **other: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of groups by a target and by models; every model has a shift, and use of some groups shifts all others.

    `recipe` of the target: how much of the groups' difficulty it has beyond the models, and of their drift.
    """
    count = query + holdout
    spread, hard, recipe = DRIFTS[drift](random, count), 2 * random.normal(size=count), other.get("recipe", 0.0)
    # The query set's groups come first, those of the holdout after them: the wildest ones are the query set's.
    spread = np.r_[spread[holdout:], spread[:holdout]]
    noises = spread * random.normal(size=(models + 1, count)) + other.get("shifts", 0.3) * random.normal(
        size=(models + 1, 1)
    )
    target = (1 + 0.15 * recipe) * hard + (1 + 0.3 * recipe) * noises[0]
    if used:
        target = target + 1.5 + other.get("memory", 4.0) * (np.arange(count) < used)
    return target, hard + noises[1:], np.arange(count) >= query


def _slow(target: list[float], unused: list[list[float]], holdout: list[bool]) -> tuple[list[float], list[float]]:
    """The same, number by number."""
    models, count = len(unused), len(target)
    centres = [mean(model[group] for model in unused) for group in range(count)]
    shifts = [mean(model[group] - centres[group] for group in range(count)) for model in unused]
    own = [
        variance([model[group] - centres[group] - shift for model, shift in zip(unused, shifts, strict=True)], 0.0)
        * (count / (count - 1))
        for group in range(count)
    ]
    larger = 1 + 1 / models
    pooled = mean(own) * larger
    apart = [value - centre for value, centre in zip(target, centres, strict=True)]
    if any(holdout):
        asked = [value for value, inside in zip(apart, holdout, strict=True) if inside]
        centre, of_centre, wider = mean(asked), 1 / len(asked), 1.0
    else:
        lower = sorted(apart)[: (count + 2) // 3]
        z = [NormalDist().inv_cdf((place - 0.375) / (count + 0.25)) for place in range(1, len(lower) + 1)]
        slope = sum((a - mean(z)) * (b - mean(lower)) for a, b in zip(z, lower, strict=True)) / sum(
            (a - mean(z)) ** 2 for a in z
        )
        centre, of_centre, wider = mean(lower) - mean(z) * pooled**0.5, 2 / count, max(1.0, slope**2 / pooled)
    free = models + 1
    errors = [
        (wider * ((2 * pooled + (models - 1) * number * larger) / free + of_centre * pooled)) ** 0.5 for number in own
    ]
    effects = [value - centre for value in apart]
    return effects, [
        float(stats.t.sf(effect / error, min(free, 5))) for effect, error in zip(effects, errors, strict=True)
    ]


@pytest.mark.parametrize(("models", "query", "holdout"), [(3, 7, 0), (8, 11, 0), (3, 2, 3), (5, 9, 4)])
@pytest.mark.parametrize("recipe", [0.0, 4.0])
def test_a_drift_is_that_of_a_slow_twin(models: int, query: int, holdout: int, recipe: float) -> None:
    random = np.random.default_rng(models)
    target, unused, in_holdout = _world(random, "log-normal variances", models, query, holdout, recipe=recipe)
    for numbers, slow in zip(
        drift_test(target, unused, in_holdout),
        _slow(target.tolist(), unused.tolist(), in_holdout.tolist()),
        strict=True,
    ):
        assert np.allclose(numbers, slow, rtol=1e-9)


def test_a_case_by_hand() -> None:
    """Three models drift apart in two groups of four by -1, 0 and 1, and not in the others; a target of one group.

    The variances are 4/3, 4/3, 0 and 0, as one of four means is that of the shifts, and 2/3 on average. Of the target's
    distance from the mean of three models they are a third larger: 16/9, and 8/9 on average. With two degrees of
    freedom for the average and two for its own, that of the first group is 4/3, and that of the holdout's centre 8/27:
    the error is the root of 44/27.
    """
    drifts = np.array([[-1.0, 1, 0, 0], [0, 0, 0, 0], [1, -1, 0, 0]])
    effects, p_values = drift_test(np.array([6.0, 0, 0, 0]), drifts, np.array([False, True, True, True]))
    assert np.allclose(effects, [6, 0, 0, 0])
    assert p_values[0] == pytest.approx(stats.t.sf(6 / (44 / 27) ** 0.5, 4))
    assert p_values[1] == pytest.approx(0.5)


@pytest.mark.outer
@pytest.mark.parametrize("holdout", [0, 3, 8])
@pytest.mark.parametrize("models", [3, 5, 8])
@pytest.mark.parametrize("drift", list(DRIFTS))
def test_innocent_groups_are_seldom_accused(drift: str, models: int, holdout: int) -> None:
    """Any after Holm in at most 5% of tables, and at most 5% of suspects (Benjamini-Hochberg) on average."""
    random = np.random.default_rng([models, holdout, list(DRIFTS).index(drift)])
    for used in (0, 3):
        any_false, false_share, innocent = 0, [], np.arange(12) >= used
        for _ in range(TABLES):
            p_values = drift_test(*_world(random, drift, models, 12, holdout, used))[1][:12].tolist()
            accused, suspects = (np.array(how(p_values)) <= 0.05 for how in (holm, benjamini_hochberg))
            any_false += bool((accused & innocent).any())
            false_share.append((suspects & innocent).sum() / max(suspects.sum(), 1))
        assert any_false <= SELDOM
        assert np.mean(false_share) <= SELDOM / TABLES


@pytest.mark.outer
@pytest.mark.parametrize("models", [3, 5, 8])
@pytest.mark.parametrize("other", ["recipe", "recipe and shifts", "tails"])
def test_a_target_or_models_that_differ_more_are_seldom_accused(models: int, other: str) -> None:
    """A target with 15% more of the groups' difficulty, which drifts by 30% more; or drifts with heavy tails."""
    random, any_false = np.random.default_rng([models, 5]), 0
    for _ in range(TABLES):
        world = _world(random, "alike", models, 20, recipe=1.0, shifts=2.0 * other.endswith("shifts"))
        if other == "tails":
            drifts = random.standard_t(3, (models + 1, 20))
            world = drifts[0], drifts[1:], world[2]
        any_false += min(holm(drift_test(*world)[1].tolist())) <= 0.05
    assert any_false <= SELDOM


def test_a_single_group_beside_three_of_a_holdout_keeps_its_level() -> None:
    random, few = np.random.default_rng(7), []
    for _ in range(2 * TABLES):
        few.append(drift_test(*_world(random, "alike", 3, 1, 3))[1][0])
    assert np.mean(np.array(few) <= 0.05) <= stats.binom.ppf(0.999, 2 * TABLES, 0.05) / (2 * TABLES)
    assert np.mean(np.array(few) <= 0.5) > 0.4


def test_groups_that_were_used_are_found() -> None:
    """By their number, of models and of used groups, and with a holdout; none if all were used and there is none."""
    found = {case: _found(*case) for case in ((3, 0, 5), (8, 0, 5), (8, 0, 10), (8, 0, 20), (3, 8, 20), (8, 8, 20))}
    assert 0.15 < found[3, 0, 5] < found[8, 0, 5] - 0.1
    assert found[8, 0, 10] > 0.2
    assert found[8, 0, 20] < 0.02
    assert 0.7 < found[3, 8, 20] < found[8, 8, 20]


def _found(models: int, holdout: int, used: int) -> float:
    """The share of used groups among 20 that are suspected."""
    random, shares = np.random.default_rng(8), []
    for _ in range(150):
        p_values = drift_test(*_world(random, "alike", models, 20, holdout, used, memory=5.0))[1][:20].tolist()
        shares.append(np.mean(np.array(benjamini_hochberg(p_values))[:used] <= 0.05))
    return float(np.mean(shares))


def test_equal_models_and_few_groups_give_numbers() -> None:
    target = np.zeros(7)
    effects, p_values = drift_test(target, np.zeros((3, 7)), np.zeros(7, bool))
    assert not effects.any()
    assert np.isfinite(p_values).all()
    assert p_values.min() > 0.4


def test_no_records_of_a_set_equal_scores_and_a_single_group() -> None:
    for size in (0, 3):
        assert within_group(KEY, np.arange(3.0), size)[:2] == (1.0, 1.0)
    assert within_group(KEY, np.ones(8), 4).p_never == 1
    assert {test.p_never for test in among_groups(np.ones(8), np.arange(8), 3)} == {1.0}
    assert np.isfinite(standard_means(np.arange(3.0), np.zeros(3, int), 3)[1]).all()

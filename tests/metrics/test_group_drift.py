"""Groups beside models that drift: against a slow twin, and how often innocent groups are accused, by world."""

from statistics import NormalDist, mean, variance
from typing import Any

import numpy as np
import pytest
from scipy import stats

from jaxaudit.metrics.group_drift import FEWEST_QUERY, drift_test
from jaxaudit.metrics.usage import benjamini_hochberg, holm

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


def test_shifts_of_models_change_nothing() -> None:
    """A model, or the target, that is better at all groups alike tells of none."""
    target, unused, in_holdout = _world(np.random.default_rng(3), "alike", 4, 12)
    before = drift_test(target, unused, in_holdout)
    after = drift_test(target + 7, unused + np.array([[1.0], [-4], [0], [9]]), in_holdout)
    assert all(np.allclose(*pair) for pair in zip(before, after, strict=True))


def test_models_that_agree_by_chance_in_one_group_do_not_accuse_it() -> None:
    random = np.random.default_rng(4)
    target, unused, in_holdout = _world(random, "alike", 3, 20)
    unused[:, 0] = unused[:, 0].mean()
    # The shifts of models are taken off, so their drift in this group is not nothing.
    target[0] = unused[0, 0] + np.sort(target - unused.mean(axis=0))[10] + 2
    assert drift_test(target, unused, in_holdout)[1][0] > 0.02


@pytest.mark.parametrize("holdout", [0, 3, 8])
@pytest.mark.parametrize("models", [3, 5, 8])
@pytest.mark.parametrize("drift", list(DRIFTS))
def test_innocent_groups_are_seldom_accused(drift: str, models: int, holdout: int) -> None:
    """Any after Holm in at most 5% of tables, and at most 5% of suspects (Benjamini-Hochberg) on average.

    Nothing was used, or a quarter of the groups, which shifts all others, too.
    """
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


@pytest.mark.parametrize("models", [3, 5, 8])
@pytest.mark.parametrize("shifts", [0.0, 2.0])
def test_a_target_of_a_slightly_other_recipe_is_seldom_accused(models: int, shifts: float) -> None:
    """It has 15% more of the groups' difficulty, and drifts by 30% more; the spread of its own groups tells."""
    random, any_false = np.random.default_rng([models, 5]), 0
    for _ in range(TABLES):
        p_values = drift_test(*_world(random, "alike", models, 20, recipe=1.0, shifts=shifts))[1]
        any_false += min(holm(p_values.tolist())) <= 0.05
    assert any_false <= SELDOM


@pytest.mark.parametrize("models", [3, 8])
def test_drifts_with_heavy_tails_accuse_few(models: int) -> None:
    random, any_false = np.random.default_rng([models, 6]), 0
    for _ in range(TABLES):
        numbers = random.standard_t(3, (models + 1, 20))
        any_false += min(holm(drift_test(numbers[0], numbers[1:], np.zeros(20, bool))[1].tolist())) <= 0.05
    assert any_false <= SELDOM


def test_a_single_group_beside_three_of_a_holdout_keeps_its_level() -> None:
    random, few = np.random.default_rng(7), []
    for _ in range(2 * TABLES):
        few.append(drift_test(*_world(random, "alike", 3, 1, 3))[1][0])
    assert np.mean(np.array(few) <= 0.05) <= stats.binom.ppf(0.999, 2 * TABLES, 0.05) / (2 * TABLES)
    assert np.mean(np.array(few) <= 0.5) > 0.4


def test_groups_that_were_used_are_found() -> None:
    """By their number, of models and of used groups, and with a holdout; none if all were used and there is none.

    Memory is five standard deviations of the drift, as of the language models of `experiments/score_rates` on TOFU.
    """
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
    target = np.zeros(FEWEST_QUERY)
    effects, p_values = drift_test(target, np.zeros((3, FEWEST_QUERY)), np.zeros(FEWEST_QUERY, bool))
    assert not effects.any()
    assert np.isfinite(p_values).all()
    assert p_values.min() > 0.4

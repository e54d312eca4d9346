"""The probability of `forgotten` by known members, as predicted, against the members test on simulated outputs."""

import jax
import numpy as np
import pytest
from msgspec.structs import astuple
from scipy import stats

from jaxaudit.metrics.difficulty import difficulty, residual_scores
from jaxaudit.metrics.holdout import mean_variance
from jaxaudit.metrics.members import members_test
from jaxaudit.metrics.power import Separation, detection_probability, separation
from jaxaudit.metrics.power_members import (
    forgotten_probability,
    memory_in_errors,
    memory_of_models,
    remembering,
)
from jaxaudit.metrics.profile import profile
from jaxaudit.metrics.scores import cut

TOLD = Separation(0.3, 0.2, 0.3, 0.002, 31)
RUNS = 400


def simulated(measured: Separation, sizes: tuple[int, int, int], used: float, seed: int) -> tuple[float, float]:
    """The shares of simulated targets that the members test calls `forgotten` and `not forgotten`."""
    random = np.random.default_rng(seed)
    query, holdout, members = sizes
    nothing = np.zeros((sum(sizes), 1))
    verdicts = []
    for run in range(RUNS):
        memory = random.normal(measured.difference, np.sqrt(measured.between))
        inside = np.r_[random.permutation(query) < round(used * query), np.zeros(holdout, bool), np.ones(members, bool)]
        spread = np.sqrt(np.where(inside, measured.inside, measured.outside))
        # So small that the log-probability is linear in the log-odds, and nothing is cut.
        outputs = 0.01 * (memory * inside + spread * random.normal(size=sum(sizes)))
        key = jax.random.fold_in(jax.random.key(1), run)
        verdicts.append(members_test(key, residual_scores(outputs, nothing), sizes, permutations=199).usage.verdict)
    return verdicts.count("forgotten") / RUNS, verdicts.count("not forgotten") / RUNS


@pytest.mark.outer
@pytest.mark.parametrize(
    ("factor", "sizes"),
    [(1.0, (150, 150, 150)), (0.5, (600, 600, 200)), (0.25, (500, 250, 500))],
)
def test_predicted_chances_are_the_simulated_ones(factor: float, sizes: tuple[int, int, int]):
    """Within what 400 simulated targets can tell, 99.9% of the time, and 0.03 for the approximation."""
    measured = remembering(TOLD, factor)
    predicted = (
        forgotten_probability(measured, *sizes),
        *(detection_probability(measured, *sizes[:2], used) for used in (1.0, 0.25)),
    )
    found = (
        simulated(measured, sizes, 0.0, seed=5)[0],
        *(simulated(measured, sizes, used, seed=6)[1] for used in (1.0, 0.25)),
    )
    for promised, share in zip(predicted, found, strict=True):
        sampling = stats.norm.ppf(0.9995) * np.sqrt(promised * (1 - promised) / RUNS)
        assert abs(share - promised) <= sampling + 0.03


def test_a_slow_chance():
    """Means are drawn, and the conditions asked one by one; 200,000 draws have a standard error of 0.0012."""
    measured, (n, m, k), stated = remembering(TOLD, 0.6), (300, 200, 500), 0.25
    random, draws = np.random.default_rng(2), 200_000
    v_query, v_holdout, v_members = measured.outside / n, measured.outside / m, measured.inside / k
    memory = random.normal(measured.difference, np.sqrt(measured.between), draws)
    of_holdout = random.normal(0, np.sqrt(v_holdout), draws)
    a = random.normal(0, np.sqrt(v_query), draws) - of_holdout
    b = memory + random.normal(0, np.sqrt(v_members), draws) - of_holdout
    t = stats.t.ppf(0.95, 199)
    limit = t * np.sqrt(v_query + stated**2 * v_members + (1 - stated) ** 2 * v_holdout)
    told = b > t * np.sqrt(v_members + v_holdout)
    pooled = (k * measured.inside + m * measured.outside) / (m + k) + m * k / (m + k) ** 2 * measured.difference**2
    told &= b > stats.norm.ppf(0.95) * np.sqrt(pooled * (1 / k + 1 / m))
    never = a <= stats.norm.ppf(0.95) * np.sqrt(v_query + v_holdout)
    found = float((never & told & (stated * b - a > limit)).mean())
    assert abs(forgotten_probability(measured, n, m, k) - found) < 0.006


def test_more_records_memory_and_groups():
    chances = [forgotten_probability(TOLD, n, n, n) for n in (50, 200, 800)]
    assert chances == sorted(chances)
    chances = [forgotten_probability(remembering(TOLD, factor), 300, 300, 300) for factor in (0.25, 0.5, 1.0)]
    assert chances == sorted(chances)
    assert forgotten_probability(TOLD, 200, 200, 200, units=0.02) < forgotten_probability(TOLD, 200, 200, 200)
    assert forgotten_probability(TOLD, 200, 200, 200, stated=0.1) < forgotten_probability(TOLD, 200, 200, 200)
    assert remembering(TOLD, 1.0) == TOLD


def of_shadow_models(odds: np.ndarray, membership: np.ndarray) -> np.ndarray:
    """What they tell of a record's difficulty, as `residual_scores_of_models` says it."""
    found = profile(cut(odds), membership)
    without, gap = found.outside, found.inside - found.outside
    sure = 1 / (1 + np.exp(-without))
    return np.stack(
        [without, without**2, np.log(sure), sure, np.tanh(without / 3), gap, gap * np.tanh(without / 3)], axis=1
    )


def outputs() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log-odds of 20 models on records of two classes, some of them hard; membership, classes and draws."""
    random = np.random.default_rng(8)
    membership = random.random((20, 300)) < 0.5
    labels = np.arange(300) % 2
    of_draws = random.normal(size=(10, 300))[np.arange(20) // 2]
    odds = 1.5 * random.normal(size=300) + labels + 0.7 * membership + 0.5 * of_draws + random.normal(size=(20, 300))
    return odds, membership, labels, np.arange(20) // 2


@pytest.mark.parametrize("grouped", [False, True])
def test_a_slow_memory(grouped: bool):
    odds, membership, labels, draws = outputs()
    groups = np.arange(300) // 5 if grouped else None
    designs = draws % 2
    stretch = separation(odds, membership, draws, designs).stretch
    assert stretch > 1.1
    inputs = np.random.default_rng(3).normal(size=(300, 4)) + labels[:, None]
    key = jax.random.key(5)
    predictors = difficulty(key, labels, inputs, groups)
    found = memory_of_models(odds, membership, predictors, designs, groups, stretch=stretch)
    # Away from the mean of the others, beside what all of one design have in common.
    away = np.empty_like(odds)
    for model, row in enumerate(membership):
        others = np.arange(20) != model
        known = profile(odds[others], membership[others])
        away[model] = odds[model] - np.where(row, known.inside, known.outside)
    for place, measured in enumerate((found.alone, found.helped)):
        gaps, insides, outsides, noise = [], [], [], []
        for model, row in enumerate(membership):
            others = np.arange(20) != model
            if place:
                alike = others & (designs == designs[model])
                moved = odds[model] + (stretch - 1) * (away[model] - away[alike].mean(axis=0))
                told = of_shadow_models(odds[others], membership[others])
                scores = residual_scores(cut(moved), np.concatenate([predictors, told], axis=1))
            else:
                scores = residual_scores(odds[model], predictors)
            gaps.append(scores[row].mean() - scores[~row].mean())
            insides.append(mean_variance(scores, groups, row))
            outsides.append(mean_variance(scores, groups, ~row))
            noise.append(insides[-1] / row.sum() + outsides[-1] / (~row).sum())
        between = max(np.var(gaps, ddof=1) - np.mean(noise), 0)
        expected = (np.mean(gaps), np.mean(insides), np.mean(outsides), between)
        assert astuple(measured)[:4] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert found.units == (0.2 if grouped else 1.0)
    # What shadow models say of a record's difficulty makes the memory stand out.
    assert memory_in_errors(found.helped, 300, 300) > memory_in_errors(found.alone, 300, 300) > 3


def test_without_shadow_models_that_say_anything():
    odds, membership, labels, _ = outputs()
    predictors = difficulty(None, labels)
    found = memory_of_models(odds, membership, predictors, stretch=1.3, helped=False)
    assert found.helped == found.alone == memory_of_models(odds, membership, predictors).alone

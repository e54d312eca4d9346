"""The exact test of scores: against slow twins, and its error rate over many random deals."""

from itertools import combinations
from typing import Any

import jax
import numpy as np
import pytest
from scipy import optimize, stats

from jaxaudit.metrics import permutation as module
from jaxaudit.metrics.permutation import permuted_differences, share_as_large
from jaxaudit.metrics.score_permutation import PENALTIES, SHRINKAGE, combined, normal_scores, residuals, score_test

DEALS = 300


def _key(number: int) -> jax.Array:
    return jax.random.fold_in(jax.random.key(35), number)


def _all_differences(values, units, size, n):
    """The difference of means for every deal of whole units with as many of them in the query set as now."""
    names = np.unique(units)
    first = np.unique(units[:size])
    for chosen in combinations(names, len(first)):
        inside = np.isin(units, chosen)
        yield values[inside].mean(axis=0) - values[~inside].mean(axis=0)


@pytest.mark.parametrize("groups", [None, np.array([0, 0, 1, 2, 3, 4, 4, 5, 6, 7])])
def test_differences_are_those_of_other_deals(groups: np.ndarray | None) -> None:
    values = np.random.default_rng(1).normal(size=(10, 2))
    found = permuted_differences(_key(1), values, 5, groups=groups, permutations=400)
    possible = np.array(list(_all_differences(values, np.arange(10) if groups is None else groups, 5, 10)))
    assert np.allclose(found[0], values[:5].mean(axis=0) - values[5:].mean(axis=0))
    nearest = np.abs(found[:, None] - possible[None]).max(axis=2).min(axis=1)
    assert nearest.max() < 1e-12
    assert len(np.unique(found[:, 0].round(9))) > len(possible) * 0.6


def test_differences_within_strata_are_those_of_all_their_splits() -> None:
    values = np.random.default_rng(3).normal(size=(10, 2)) + 5
    strata = np.array([2, 2, 0, 0, 9, 2, 0, 2, 0, 2])
    found = permuted_differences(_key(3), values, 5, strata=strata, permutations=600)
    counts = {name: int((strata[:5] == name).sum()) for name in (0, 2, 9)}
    # Numbers are taken from their stratum's mean.
    apart = values - np.stack([values[strata == name].mean(axis=0) for name in strata])
    possible = [
        apart[list(chosen)].sum(axis=0) * 0.4
        for chosen in combinations(range(10), 5)
        if all(sum(strata[place] == name for place in chosen) == count for name, count in counts.items())
    ]
    assert np.allclose(found[0], apart[:5].sum(axis=0) * 0.4)
    nearest = np.abs(found[:, None] - np.array(possible)[None]).max(axis=2).min(axis=1)
    assert nearest.max() < 1e-12
    assert len(np.unique(found[:, 0].round(9))) == len(possible)


def test_differences_within_pairs_flip_signs() -> None:
    values = np.random.default_rng(2).normal(size=(8, 1))
    pairs = np.array([0, 1, 2, 3, 2, 0, 3, 1])
    apart = np.array([values[i] - values[4 + np.flatnonzero(pairs[4:] == pairs[i])[0]] for i in range(4)])
    found = permuted_differences(_key(2), values, 4, pairs=pairs, permutations=200)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T
    possible = signs @ apart[:, 0] / 4
    assert np.allclose(found[0, 0], apart.mean())
    assert np.abs(found[:, 0][:, None] - possible).min(axis=1).max() < 1e-12


def test_rotations_are_those_of_the_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PERMUTED", 10)
    values = np.random.default_rng(3).normal(size=(30, 2))
    found = permuted_differences(_key(3), values, 11, permutations=50)
    generator = module.generator_of(_key(3))
    order, steps = generator.permutation(30), generator.integers(30, size=50)
    for row, step in zip(found[1:], steps, strict=True):
        # The query set's places, moved on by so many steps in the random order.
        inside = np.zeros(30, bool)
        inside[order[(np.flatnonzero(order < 11) + step) % 30]] = True
        assert np.allclose(row, values[inside].mean(axis=0) - values[~inside].mean(axis=0))


def test_equal_statistics_count() -> None:
    assert share_as_large(np.zeros(20)) == 1
    assert share_as_large(np.r_[1.0, np.zeros(19)]) == 0.05


@pytest.mark.parametrize("dealt", ["records", "groups", "pairs", "rotated"])
@pytest.mark.parametrize("known", [False, True])
def test_p_values_are_exact(dealt: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 5% of deals of what was never used give p of at most 5%; the bound is that of 99.9% for a true 5%."""
    if dealt == "rotated":
        monkeypatch.setattr(module, "MOST_PERMUTED", 10)
    random = np.random.default_rng(4)
    p_values = []
    for deal in range(DEALS):
        # Near-copies within groups and pairs, heavy tails, and a covariate that explains most of a score.
        of_unit = np.repeat(random.standard_t(2, 30), 2)
        covariate = of_unit[:, None] + random.normal(size=(60, 1))
        scores = np.stack([of_unit + random.normal(size=60), covariate[:, 0] ** 3 + random.normal(size=60)], axis=1)
        more: dict[str, Any]
        if dealt == "groups":
            order = np.concatenate([[2 * i, 2 * i + 1] for i in random.permutation(30)])
            more = {"groups": order // 2}
        elif dealt == "pairs":
            flips = random.integers(0, 2, 30)
            order = np.r_[2 * np.arange(30) + flips, 2 * np.arange(30) + 1 - flips]
            more = {"pairs": order // 2}
        else:
            order, more = random.permutation(60), {}
        left = residuals(normal_scores(scores[order]), covariate[order] if known else np.zeros((60, 0)))
        p_values.append(score_test(_key(deal), left, np.array([-1, 0]), 30, permutations=199, **more).p_never)
    assert np.mean(np.array(p_values) <= 0.05) <= stats.binom.ppf(0.999, DEALS, 0.05) / DEALS
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_residuals_are_those_of_ridge_regression() -> None:
    random = np.random.default_rng(5)
    predictors = random.normal(size=(80, 6)) * [1, 10, 0.1, 1, 1, 1]
    scores = predictors[:, :1] + random.normal(size=(80, 3))
    found = residuals(scores, predictors)
    scaled = (predictors - predictors.mean(axis=0)) / predictors.std(axis=0)
    design = np.concatenate([np.ones((80, 1)), scaled], axis=1)
    for column in range(3):
        tried = []
        for penalty in PENALTIES:
            hat = design @ np.linalg.solve(design.T @ design + 80 * penalty * np.diag([0, *[1] * 6]), design.T)
            left = scores[:, column] - hat @ scores[:, column]
            tried.append(((left**2).mean() / (1 - np.trace(hat) / 80) ** 2, left / left.std()))
        assert np.allclose(found[:, column], min(tried, key=lambda each: each[0])[1], atol=1e-8)


def test_constant_predictors_and_copies_change_nothing() -> None:
    random = np.random.default_rng(6)
    scores, predictor = random.normal(size=(50, 1)), random.normal(size=(50, 1))
    once = residuals(scores, predictor)
    assert np.allclose(residuals(scores, np.concatenate([predictor, np.ones((50, 1))], axis=1)), once)
    assert np.isfinite(residuals(scores, np.repeat(predictor, 60, axis=1))).all()


def test_monotone_functions_of_a_score_change_nothing() -> None:
    values = np.random.default_rng(7).normal(size=40)
    assert np.array_equal(normal_scores(values), normal_scores(np.exp(values)))


def test_one_score_of_known_direction_is_one_sided() -> None:
    differences = np.random.default_rng(8).normal(size=(100, 1))
    assert np.array_equal(np.argsort(combined(differences, np.array([1]))), np.argsort(differences[:, 0]))
    assert np.array_equal(combined(differences, np.array([0])), combined(-differences, np.array([0])))
    scores = np.random.default_rng(8).normal(size=(60, 1))
    found = permuted_differences(_key(8), scores, 30)[:, 0]
    for direction in (1, -1):
        test = score_test(_key(8), scores, np.array([direction]), 30)
        assert test.p_never == np.mean(direction * found >= direction * found[0])
        assert test.p_smaller == np.mean(direction * found <= direction * found[0])


def _correlated(random, deals: int, kinds: int, correlation: float) -> np.ndarray:
    common = random.normal(size=(deals, 1))
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * random.normal(size=(deals, kinds))


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("kinds", [2, 3, 5, 8])
def test_the_statistic_is_the_largest_of_all_means_with_weights_that_are_not_negative(
    kinds: int, correlation: float
) -> None:
    """Its slow twin tries every set of scores that may have a weight, and non-negative least squares for each deal."""
    random = np.random.default_rng([10, kinds])
    directions = random.choice([-1, 1], kinds)
    differences = _correlated(random, 60, kinds, correlation) * directions
    z = differences * directions / np.sqrt((differences**2).mean(axis=0))
    shrunken = (z.T @ z / 60 + SHRINKAGE * np.eye(kinds)) / (1 + SHRINKAGE)
    root = np.linalg.cholesky(shrunken)
    best = []
    for row in z:
        tried = [float(row.max())]
        for count in range(2, kinds + 1):
            for chosen in map(list, combinations(range(kinds), count)):
                weights = np.linalg.solve(shrunken[np.ix_(chosen, chosen)], row[chosen])
                if (weights >= 0).all():
                    tried.append(float(np.sqrt(weights @ row[chosen])))
        best.append(max(tried))
        weights, _ = optimize.nnls(root.T, np.linalg.solve(root, row))
        if weights.any():
            assert np.isclose(best[-1], weights @ row / np.linalg.norm(root.T @ weights), rtol=1e-9)
    assert np.allclose(combined(differences, directions), best, rtol=1e-7, atol=0)


def test_differences_against_their_directions_show_no_use() -> None:
    """However the scores are correlated: of two that both fell, the one that fell less does not look used."""
    random = np.random.default_rng(11)
    differences = np.concatenate([-np.abs(random.normal(size=(30, 2))), _correlated(random, 500, 2, 0.95)])
    assert (combined(differences, np.array([1, 1]))[:30] < 0).all()


@pytest.mark.parametrize("moved", [1, 2, 3])
def test_scores_that_moved_against_their_direction_are_called_used_in_at_most_5_percent(moved: int) -> None:
    """In 300 tables of correlated scores; the bound is that of 99.9% for a true 5%."""
    random = np.random.default_rng([12, moved])
    p_values = []
    for table in range(DEALS):
        scores = _correlated(random, 120, 3, 0.9)
        scores[:60, :moved] -= 0.5
        p_values.append(score_test(_key(100 + table), scores, np.ones(3, int), 60, permutations=199).p_never)
    assert np.mean(np.array(p_values) <= 0.05) <= stats.binom.ppf(0.999, DEALS, 0.05) / DEALS


def test_scores_of_unknown_direction_count_only_where_none_is_known() -> None:
    random = np.random.default_rng(13)
    scores = _correlated(random, 100, 2, 0.5)
    scores[:50, 1] -= 1
    first = score_test(_key(13), scores[:, :1], np.array([1]), 50)
    assert score_test(_key(13), scores, np.array([1, 0]), 50) == first
    neither = score_test(_key(13), scores, np.array([0, 0]), 50)
    assert neither.p_never < 0.01 < first.p_never
    assert (neither.p_smaller, neither.directed) == (1, False)
    assert score_test(_key(13), -scores, np.array([0, 0]), 50) == neither


def test_a_score_that_never_differs_changes_nothing() -> None:
    differences = np.random.default_rng(14).normal(size=(50, 2))
    wider = np.concatenate([differences, np.zeros((50, 1))], axis=1)
    assert np.allclose(combined(wider, np.ones(3, int)), combined(differences, np.ones(2, int)))
    assert not combined(np.zeros((50, 2)), np.ones(2, int)).any()


def test_a_query_set_that_looks_less_used_is_noticed() -> None:
    scores = np.random.default_rng(9).normal(size=(100, 1)) - (np.arange(100) < 50)[:, None]
    found = score_test(_key(9), scores, np.array([1]), 50)
    assert found.p_never > 0.99
    assert found.p_smaller < 0.01

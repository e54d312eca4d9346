"""The exact test of scores, and the share that is left: against slow twins, and error rates over many random deals."""

from itertools import combinations
from typing import Any

import jax
import numpy as np
import pytest
from scipy import optimize, stats

from jaxaudit.metrics import blind_baseline, cut_scores, holdout_blind, normal_scores, residuals, score_test, share_left
from jaxaudit.metrics import permutation as module
from jaxaudit.metrics.permutation import permuted_differences, share_as_large
from jaxaudit.metrics.score_tests import PENALTIES, SHRINKAGE, combined

DEALS = 300


def _key(number: int) -> jax.Array:
    return jax.random.fold_in(jax.random.key(35), number)


def _all_differences(values, units, size):
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
    possible = np.array(list(_all_differences(values, np.arange(10) if groups is None else groups, 5)))
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


def _dealt(random: np.random.Generator, units: int, how: str) -> tuple[np.ndarray, dict[str, Any]]:
    """A random order of units of two records, of pairs of them, or of records, and how that is said to a test."""
    if how == "groups":
        order = (2 * random.permutation(units)[:, None] + np.arange(2)).ravel()
    elif how == "pairs":
        flips = random.integers(0, 2, units)
        order = np.r_[2 * np.arange(units) + flips, 2 * np.arange(units) + 1 - flips]
    else:
        return random.permutation(2 * units), {}
    return order, {how: order // 2}


@pytest.mark.outer
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
        order, more = _dealt(random, 30, dealt)
        predictors = covariate[order] if known else np.zeros((60, 0))
        cut = np.apply_along_axis(cut_scores, 0, scores[order])
        left = np.stack([residuals(scale, predictors) for scale in (normal_scores(scores[order]), cut)])
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


def test_what_tells_nothing_more_changes_nothing() -> None:
    """Constant predictors and copies, monotone functions of a score, and a score that never differs."""
    random = np.random.default_rng(6)
    scores, predictor = random.normal(size=(50, 1)), random.normal(size=(50, 1))
    once = residuals(scores, predictor)
    assert np.allclose(residuals(scores, np.concatenate([predictor, np.ones((50, 1))], axis=1)), once)
    assert np.isfinite(residuals(scores, np.repeat(predictor, 60, axis=1))).all()
    values = np.random.default_rng(7).normal(size=40)
    assert np.array_equal(normal_scores(values), normal_scores(np.exp(values)))
    differences = np.random.default_rng(14).normal(size=(50, 2))
    wider = np.concatenate([differences, np.zeros((50, 1))], axis=1)
    assert np.allclose(combined(wider, np.ones(3, int)), combined(differences, np.ones(2, int)))
    assert not combined(np.zeros((50, 2)), np.ones(2, int)).any()


def test_the_larger_of_two_statistics_counts() -> None:
    """A slow twin, deal by deal; and few records with far lower scores are found, which ranks hardly tell."""
    values = np.abs(np.random.default_rng(3).normal(size=400)) ** 3
    values[:200] = np.minimum(values[:200], np.quantile(values, 0.8))
    scales = np.stack([normal_scores(values), cut_scores(values)])[:, :, None]
    found = score_test(_key(16), scales, np.array([-1]), 200)
    by_ranks = score_test(_key(16), scales[:1], np.array([-1]), 200)
    differences = permuted_differences(_key(16), scales[:, :, 0].T, 200)
    deviations = [np.sqrt(np.mean(column**2)) for column in differences.T]
    statistics = [max(-row[0] / deviations[0], -row[1] / deviations[1]) for row in differences]
    assert found.p_never == np.mean([each >= statistics[0] - 1e-9 for each in statistics])
    assert found.p_never < 0.01 < 0.05 < by_ranks.p_never


def test_one_wild_number_decides_no_mean() -> None:
    values = np.random.default_rng(17).normal(size=150)
    cut = cut_scores(values)
    ranked = sorted(values)
    twin = np.array([min(max(value, ranked[2]), ranked[-3]) for value in values])
    assert np.allclose(cut, (twin - twin.mean()) / twin.std())
    for wild in (1e75, -1e75):
        values[np.argmax(np.sign(wild) * values)] = wild
        assert np.allclose(cut_scores(values), cut)
    assert not cut_scores(np.r_[1e75, np.full(99, 0.1)]).any()


def test_one_score_of_known_direction_is_one_sided() -> None:
    differences = np.random.default_rng(8).normal(size=(100, 1))
    assert np.array_equal(np.argsort(combined(differences, np.array([1]))), np.argsort(differences[:, 0]))
    assert np.array_equal(combined(differences, np.array([0])), combined(-differences, np.array([0])))
    scores = np.random.default_rng(8).normal(size=(60, 1))
    found = permuted_differences(_key(8), scores, 30)[:, 0]
    for direction in (1, -1):
        test = score_test(_key(8), scores[None], np.array([direction]), 30)
        assert test.p_never == np.mean(direction * found >= direction * found[0])
        assert test.p_smaller == np.mean(direction * found <= direction * found[0])


def _correlated(random, deals: int, kinds: int, correlation: float) -> np.ndarray:
    common = random.normal(size=(deals, 1))
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * random.normal(size=(deals, kinds))


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("kinds", [2, 5])
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


@pytest.mark.outer
@pytest.mark.parametrize("moved", [1, 2, 3])
def test_scores_that_moved_against_their_direction_are_called_used_in_at_most_5_percent(moved: int) -> None:
    """In 300 tables of correlated scores; the bound is that of 99.9% for a true 5%."""
    random = np.random.default_rng([12, moved])
    p_values = []
    for table in range(DEALS):
        scores = _correlated(random, 120, 3, 0.9)
        scores[:60, :moved] -= 0.5
        p_values.append(score_test(_key(100 + table), scores[None], np.ones(3, int), 60, permutations=199).p_never)
    assert np.mean(np.array(p_values) <= 0.05) <= stats.binom.ppf(0.999, DEALS, 0.05) / DEALS


def test_scores_of_unknown_direction_count_only_where_none_is_known() -> None:
    random = np.random.default_rng(13)
    scores = _correlated(random, 100, 2, 0.5)
    scores[:50, 1] -= 1
    first = score_test(_key(13), scores[None, :, :1], np.array([1]), 50)
    assert score_test(_key(13), scores[None], np.array([1, 0]), 50) == first
    neither = score_test(_key(13), scores[None], np.array([0, 0]), 50)
    assert neither.p_never < 0.01 < first.p_never
    assert (neither.p_smaller, neither.directed) == (1, False)
    assert score_test(_key(13), -scores[None], np.array([0, 0]), 50) == neither


def _worlds(random, size: int, records: int, models: int, used: float, seeds: float):
    """Scores of a target, of models without and with the query set; every model has an error of its own."""
    hard, memory = random.normal(size=records), random.uniform(0.2, 1.5, records)
    memory[size:] = 0

    def model(share: float):
        inside = random.uniform(size=records) < share
        return (
            hard
            + memory * inside
            + seeds * random.normal() * (np.arange(records) < size)
            + 0.3 * random.normal(size=records)
        )

    return model(used), np.stack([model(0) for _ in range(models)]), np.stack([model(1) for _ in range(models)])


@pytest.mark.outer
@pytest.mark.parametrize(("models", "seeds"), [(2, 0.1), (2, 0.2), (3, 0.1), (4, 0.2)])
def test_models_that_agree_by_chance_accuse_nobody(models: int, seeds: float) -> None:
    """By few models, p is at most 5% in at most 5% of worlds, and at most 0.2% in 0.2%, as for 20 targets.

    By Satterthwaite's degrees of freedom, two models gave 7.4% to 7.7%, and 2.2% to 3.1%. The bounds are of 99.9%.
    """
    random, worlds = np.random.default_rng(17), 1_500
    found = np.array([share_left(*_worlds(random, 60, 60, models, 0.0, seeds), 60).p_unused for _ in range(worlds)])
    for level in (0.05, 0.002):
        assert (found <= level).sum() <= stats.binom.ppf(0.999, worlds, level)


@pytest.mark.outer
@pytest.mark.parametrize("used", [0.0, 0.25, 1.0])
@pytest.mark.parametrize(("unused_models", "used_models"), [(2, 2), (3, 3), (8, 8), (8, 2)])
def test_few_models_give_wide_limits(unused_models: int, used_models: int, used: float) -> None:
    """An interval, an upper limit, and a p-value of full use err in at most 5% of worlds, by the bound of 99.9%.

    Where the models of both kinds differ too little to tell, there is no limit, and no error. With Satterthwaite's
    degrees of freedom of all seeds alike, 2 and 2 models missed up to 9%, and 8 and 2 up to 19%.
    """
    random, worlds, missed, above, rejected = np.random.default_rng([unused_models, used_models]), 500, 0, 0, 0
    for _ in range(worlds):
        target, unused, full = _worlds(random, 60, 60, 8, used, 0.2)
        found = share_left(target, unused[:unused_models], full[:used_models], 60)
        missed += not found.limits.low - 1e-9 <= used <= found.limits.high + 1e-9
        above += found.limits.upper < used - 1e-9
        rejected += used == 1 and found.p_used is not None and found.p_used <= 0.05
    most = stats.binom.ppf(0.999, worlds, 0.05)
    assert max(missed, above, rejected) <= most


def _slow_share(target: Any, unused: Any, full: Any) -> tuple[float, float, float]:
    """The share's interval and the p-value of full use, without a holdout, from a search over shares."""
    n, low, high = len(target), np.mean(unused, axis=0), np.mean(full, axis=0)
    kinds = np.array([np.var(np.mean(models, axis=1), ddof=1) for models in (unused, full)])
    free = np.array([n - 1, len(unused) - 1, len(full) - 1])
    of_unused, of_full = np.maximum(kinds, kinds @ free[1:] / free[1:].sum())

    def parts(share: np.ndarray) -> np.ndarray:
        records = np.var(target - low - share[:, None] * (high - low), axis=1, ddof=1) / n
        own = (1 - share) * of_unused, share * of_full
        of_means = (1 - share) ** 2 * of_unused / len(unused), share**2 * of_full / len(full)
        return np.stack([records, own[0] + of_means[0], own[1] + of_means[1]])

    def error(share: float) -> tuple[float, float]:
        """Its square, and its degrees of freedom."""
        each = parts(np.array([share]))[:, 0]
        return each.sum(), each.sum() / (each / free).sum()

    difference, effect = np.mean(target - low), np.mean(high - low)
    quantile = stats.t.ppf(0.975, error(float(np.clip(difference / effect, 0, 1)))[1])
    shares = np.linspace(0, 1, 20_001)
    kept = shares[np.abs(difference - shares * effect) <= quantile * np.sqrt(parts(shares).sum(axis=0))]
    square, freedom = error(1.0)
    return kept.min(), kept.max(), float(stats.t.cdf((difference - effect) / np.sqrt(square), freedom))


@pytest.mark.parametrize(("models", "more"), [(2, 2), (3, 5), (8, 2)])
def test_limits_are_those_of_a_slow_twin(models: int, more: int) -> None:
    random = np.random.default_rng(18)
    for _ in range(4):
        target, unused, full = _worlds(random, 60, 60, 8, 0.4, 0.05)
        found = share_left(target, unused[:models], full[:more], 60)
        low, high, p_used = _slow_share(target, unused[:models], full[:more])
        assert [found.limits.low, found.limits.high] == pytest.approx([low, high], abs=1e-4)
        assert found.p_used == pytest.approx(p_used)


def test_models_that_hardly_differ_show_nothing() -> None:
    random = np.random.default_rng(13)
    same = random.normal(size=(4, 50))
    found = share_left(random.normal(size=50), same, same[:3] - 0.5, 50)
    assert np.isnan(found.limits.fraction)
    assert found.limits.upper == 1
    assert found.p_used is None


def test_one_model_of_each_kind_gives_no_p_value_of_seeds() -> None:
    random = np.random.default_rng(14)
    found = share_left(*_worlds(random, 80, 80, 1, 0.5, 0.0), 80)
    assert found.p_unused is None
    assert found.limits.low < 0.5 < found.limits.high


def test_groups_widen_the_limits() -> None:
    random = np.random.default_rng(15)
    groups = np.repeat(np.arange(10), 6)
    memory = np.repeat(random.uniform(size=10) < 0.5, 6)

    def noise():
        return 0.1 * random.normal(size=60)

    target, unused, used = memory + noise(), np.stack([noise(), noise()]), 1 + np.stack([noise(), noise()])
    by_record, by_group = (share_left(target, unused, used, 60, groups=each).limits for each in (None, groups))
    assert by_group.high - by_group.low > 1.5 * (by_record.high - by_record.low)


@pytest.mark.outer
@pytest.mark.parametrize("dealt", ["records", "groups", "pairs"])
def test_false_alarms_of_the_blind_baseline(dealt: str) -> None:
    """Sets that were dealt at random are told apart in at most 1% of deals, by the bound of 99.9%."""
    random, alarms = np.random.default_rng(16), 0
    for number in range(100):
        column = np.repeat(random.standard_t(2, 20), 2)
        order, more = _dealt(random, 20, dealt)
        texts = [f"record {index // 2} is {'long ' * (index % 7)}" for index in order]
        found = blind_baseline(jax.random.fold_in(jax.random.key(1), number), {"c": column[order]}, texts, 20, **more)
        alarms += not holdout_blind(found).passed
    assert alarms <= stats.binom.ppf(0.999, 100, 0.01)


def test_texts_of_another_style_are_told_apart() -> None:
    texts = [f"the patient number {i} came in" for i in range(40)] + [f"number {i}, a customer" for i in range(40)]
    found = holdout_blind(blind_baseline(jax.random.key(1), {"tokens": np.arange(80.0) % 7}, texts, 40))
    assert not found.passed
    assert found.decisive
    assert "patient" not in found.message
    assert "words" in found.message


@pytest.mark.parametrize("columns", [{}, {"one number": np.full(6, 0.1)}])
@pytest.mark.parametrize("texts", [None, ["the same"] * 6, ["", "!", "", "...", "", ""]])
def test_what_tells_nothing_of_any_record_is_no_check_that_passed(columns: Any, texts: Any) -> None:
    found = holdout_blind(blind_baseline(jax.random.key(1), columns, texts, 3))
    assert (found.passed, found.value, found.decisive) == (False, None, False)
    measured = holdout_blind(blind_baseline(jax.random.key(1), {**columns, "c": np.arange(6.0) % 4}, texts, 3))
    assert measured.passed
    assert measured.value is not None


def test_equal_statistics_count() -> None:
    assert share_as_large(np.zeros(20)) == 1
    assert share_as_large(np.r_[1.0, np.zeros(19)]) == 0.05

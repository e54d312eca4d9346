"""What power promises, against simulated targets: use that is noticed, and `forgotten` by known members."""

from typing import Any

import jax
import numpy as np
import pytest
from msgspec.structs import astuple
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics import (
    Separation,
    cut,
    detection_probability,
    difficulty,
    forgotten_probability,
    members_test,
    memory_in_errors,
    memory_of_models,
    min_detectable_fraction,
    profile,
    records_needed,
    remembering,
    residual_scores,
    residual_scores_of_models,
    separation,
)
from jaxaudit.metrics.holdout import mean_variance

TOLD = Separation(0.3, 0.05, 0.04, 0.003, 31)
RUNS = 400


def test_separation_of_known_scores():
    """Log-odds that differ by nothing have no separation; those far apart are separated perfectly."""
    random = np.random.default_rng(3)
    membership = random.random((16, 300)) < 0.5
    noise = random.normal(size=(16, 300))
    nothing, everything = separation(noise, membership), separation(noise + 20 * membership, membership)
    # Scores are sums of two of variance 1. Each model's difference has a standard error of at most 2 sqrt(4 / 300);
    # 16 of them, and 5 standard errors.
    assert abs(nothing.difference) < 0.29
    # There the learned score is taken, which is from 0 to 1.
    assert 0.95 < everything.difference < 1
    assert nothing.models == everything.models == 16


def test_records_needed_is_the_first_size_that_does():
    needed: Any = records_needed(TOLD, 0.2)
    assert (
        detection_probability(TOLD, needed, needed, 0.2)
        >= 0.95
        > detection_probability(TOLD, needed - 1, needed - 1, 0.2)
    )


def test_where_no_size_does_and_where_scores_have_no_spread():
    useless = Separation(0.0, 0.04, 0.04, 0.0, 31)
    assert records_needed(useless, 1.0, most=1000) is None
    assert min_detectable_fraction(useless, 1000, 1000, 31) is None
    # Models that differ this much would need luck, however many records there are.
    assert records_needed(Separation(0.3, 0.05, 0.04, 0.3**2, 31), 0.5) is None
    perfect = Separation(1.0, 0.0, 0.0, 0.0, 31)
    assert detection_probability(perfect, 10, 10, 0.0) == 0
    assert detection_probability(perfect, 10, 10, 1.0) == 1


def test_too_few_records_to_know_a_spread():
    membership = np.array([[True, False, False]] * 5)
    with pytest.raises(InputError, match="`records_in_or_out` must be at least 2; got 1"):
        separation(np.zeros((5, 3)), membership)


DRAWS = np.arange(40) // 2


def outputs(part: float, gap: float = 2.0, records: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Models two and two of the same draw, which makes this part of their variance; and membership."""
    random = np.random.default_rng(8)
    membership = random.random((40, records)) < 0.5
    of_draws, usual = random.normal(size=(20, records)), 3 * random.normal(size=records)
    own = np.sqrt(1 - part) * random.normal(size=(40, records))
    return own + np.sqrt(part) * of_draws[DRAWS] + usual + gap * membership, membership


def test_a_slow_stretch():
    log_odds, membership = outputs(0.4)
    residuals = np.empty_like(log_odds)
    for record in range(log_odds.shape[1]):
        terms = np.column_stack([np.ones(40), membership[:, record]])
        fitted = terms @ np.linalg.lstsq(terms, log_odds[:, record])[0]
        residuals[:, record] = log_odds[:, record] - fitted
    residuals = residuals / np.sqrt(profile(log_odds, membership).variance)
    pairs = [(a, b) for a in range(40) for b in range(40) if a != b]
    same = np.mean([residuals[a] @ residuals[b] for a, b in pairs if DRAWS[a] == DRAWS[b]])
    apart = np.mean([residuals[a] @ residuals[b] for a, b in pairs if DRAWS[a] != DRAWS[b]])
    whole = np.mean([each @ each for each in residuals])
    part = (same - apart) / (whole - apart)
    assert separation(log_odds, membership, DRAWS).stretch == pytest.approx(np.sqrt(1 + 4 * part))


def test_a_target_with_data_of_its_own_shows_less():
    """Targets of fresh draws, judged by shadow models of one calibration set, show what is promised for them."""
    log_odds, membership = outputs(0.5)
    promised = separation(log_odds, membership, DRAWS)
    naive = separation(log_odds, membership)
    assert promised.stretch > 1.4
    random = np.random.default_rng(9)
    # The draws of the shadow models scatter around what their calibration set makes of a record, which varies twice
    # as much as they do; those of a target around zero, three times as much: (1 + s) / (1 - s) = 5 in all.
    usual = (log_odds - 2 * membership).mean(axis=0)
    used = random.random((10, 400)) < 0.5
    own = np.sqrt(0.5) * random.normal(size=used.shape) + np.sqrt(0.5 * 5) * random.normal(size=used.shape)
    targets = own + usual + 2 * used
    shown = []
    for target, row in zip(targets, used, strict=True):
        scores = residual_scores_of_models(target[None], [profile(log_odds, membership)])[0]
        shown.append(scores[row].mean() - scores[~row].mean())
    assert abs(np.mean(shown) - promised.difference) < 0.15 * promised.difference
    assert naive.difference > 1.15 * np.mean(shown)


OF_MEMBERS = Separation(0.3, 0.2, 0.3, 0.002, 31)


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
        outputs_of_classes = 0.01 * (memory * inside + spread * random.normal(size=sum(sizes)))
        key = jax.random.fold_in(jax.random.key(1), run)
        verdicts.append(
            members_test(key, residual_scores(outputs_of_classes, nothing), sizes, permutations=199).usage.verdict
        )
    return verdicts.count("forgotten") / RUNS, verdicts.count("not forgotten") / RUNS


@pytest.mark.outer
@pytest.mark.parametrize(("factor", "sizes"), [(1.0, (150, 150, 150)), (0.5, (600, 600, 200)), (0.25, (500, 250, 500))])
def test_predicted_chances_are_the_simulated_ones(factor: float, sizes: tuple[int, int, int]):
    """Within what 400 simulated targets can tell, 99.9% of the time, and 0.03 for the approximation."""
    measured = remembering(OF_MEMBERS, factor)
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
    measured, (n, m, k), stated = remembering(OF_MEMBERS, 0.6), (300, 200, 500), 0.25
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


def of_shadow_models(odds: np.ndarray, membership: np.ndarray) -> np.ndarray:
    """What they tell of a record's difficulty, as `residual_scores_of_models` says it."""
    found = profile(cut(odds), membership)
    without, gap = found.outside, found.inside - found.outside
    sure = 1 / (1 + np.exp(-without))
    return np.stack(
        [without, without**2, np.log(sure), sure, np.tanh(without / 3), gap, gap * np.tanh(without / 3)], axis=1
    )


def outputs_of_classes() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log-odds of 20 models on records of two classes, some of them hard; membership, classes and draws."""
    random = np.random.default_rng(8)
    membership = random.random((20, 300)) < 0.5
    labels = np.arange(300) % 2
    of_draws = random.normal(size=(10, 300))[np.arange(20) // 2]
    odds = 1.5 * random.normal(size=300) + labels + 0.7 * membership + 0.5 * of_draws + random.normal(size=(20, 300))
    return odds, membership, labels, np.arange(20) // 2


@pytest.mark.parametrize("grouped", [False, True])
def test_a_slow_memory(grouped: bool):
    odds, membership, labels, draws = outputs_of_classes()
    groups = np.arange(300) // 5 if grouped else None
    stretch = separation(odds, membership, draws).stretch
    assert stretch > 1.1
    inputs = np.random.default_rng(3).normal(size=(300, 4)) + labels[:, None]
    key = jax.random.key(5)
    predictors = difficulty(key, labels, inputs, groups)
    found = memory_of_models(odds, membership, predictors, groups, stretch=stretch)
    # Away from the mean of the others, beside what all have in common.
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
                moved = odds[model] + (stretch - 1) * (away[model] - away[others].mean(axis=0))
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
    odds, membership, labels, _ = outputs_of_classes()
    predictors = difficulty(None, labels)
    found = memory_of_models(odds, membership, predictors, stretch=1.3, helped=False)
    assert found.helped == found.alone == memory_of_models(odds, membership, predictors).alone


def test_without_pairs_nothing_is_stretched():
    log_odds, membership = outputs(0.5)
    for draws in (np.arange(40), np.zeros(40, int)):
        assert separation(log_odds, membership, draws) == separation(log_odds, membership)

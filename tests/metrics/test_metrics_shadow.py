"""Scores of records by shadow models, and the shadow test by one set and by two: slow twins and error rates."""

import numpy as np
import pytest
from scipy import special, stats
from sklearn.linear_model import LogisticRegression
from support.simulated_shadows import halves, provider

from jaxaudit.errors import InputError
from jaxaudit.metrics import (
    Profile,
    Usage,
    accuracies_on_unused,
    cut,
    likeness,
    log_odds,
    membership_scores,
    profile,
    same_outputs,
    shadow_test,
    vulnerability,
)
from jaxaudit.metrics.attack import STRANGE
from jaxaudit.metrics.scores import RIDGE, fit_weights, profiles_of_others
from jaxaudit.metrics.shadow import mixture_likeness, mixture_log_likelihood, own_scatter, used_shares

GENERATOR = np.random.default_rng(8)
PILE = provider(GENERATOR, 40, 4.0)
MEMBERSHIP = halves(GENERATOR, 11, 40, 20)
OUTPUTS = PILE.outputs(GENERATOR, MEMBERSHIP)
TARGET, SHADOWS, THEIRS = OUTPUTS[0], OUTPUTS[1:], MEMBERSHIP[1:]


def test_a_record_that_no_model_has_gets_the_typical_gap() -> None:
    membership = MEMBERSHIP.copy()
    membership[:, 0] = False
    found = profile(OUTPUTS, membership)
    gaps = found.inside - found.outside
    assert found.outside[0] == pytest.approx(OUTPUTS[:, 0].mean())
    assert gaps[1:].min() <= gaps[0] <= gaps[1:].max()


def test_the_regression_is_scikit_learns() -> None:
    random = np.random.default_rng(9)
    evidence = np.concatenate([np.ones((300, 1)), random.normal(size=(300, 3))], axis=1)
    truth = random.random(300) < special.expit(evidence @ [0.3, 1.0, -2.0, 0.0])
    theirs = LogisticRegression(C=1 / RIDGE, tol=1e-10, max_iter=1000).fit(evidence[:, 1:], truth)
    found = fit_weights(evidence, truth)
    np.testing.assert_allclose(found, [*theirs.intercept_, *theirs.coef_[0]], atol=1e-4)


def test_reordered_records_are_scored_alike() -> None:
    """What makes the permutation test exact: a score depends on the record and not on its place."""
    order = np.random.default_rng(10).permutation(40)
    there = membership_scores(TARGET[order], SHADOWS[:, order], THEIRS[:, order])
    here = membership_scores(TARGET, SHADOWS, THEIRS)
    np.testing.assert_allclose(there.target, here.target[order], rtol=1e-6)


def test_infinite_log_odds_count_as_20() -> None:
    infinite = np.where(TARGET > 1, np.inf, TARGET)
    np.testing.assert_array_equal(
        membership_scores(infinite, SHADOWS, THEIRS).target, membership_scores(cut(infinite), SHADOWS, THEIRS).target
    )


@pytest.mark.parametrize(
    ("target", "shadows", "membership", "message"),
    [
        (TARGET[:-1], SHADOWS, THEIRS, "`target` has shape"),
        (TARGET, SHADOWS[:3], THEIRS[:3], "`finished_models` must be at least 4; got 3"),
        (np.where(TARGET > 1, np.nan, TARGET), SHADOWS, THEIRS, "`target` must be a number; got nan"),
        (TARGET, SHADOWS, np.ones_like(THEIRS), "random half"),
    ],
)
def test_what_cannot_be_scored_is_refused(target, shadows, membership, message, monkeypatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    with pytest.raises(InputError, match=message):
        membership_scores(target, shadows, membership)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_log_odds_are_those_of_scipys_logsumexp_to_the_bit(kind: type):
    """Ties, infinities and one class among them."""
    random = np.random.default_rng(4)
    values = (5 * random.normal(size=(3, 500, 6))).round(1).astype(kind)
    values[random.random(values.shape) < 0.2] = -np.inf
    values[0, :20] = -np.inf
    values[1, :5, 2] = np.inf
    labels = random.integers(0, 6, 500)
    own = np.arange(6) == labels[:, None]
    inside = np.take_along_axis(values, np.broadcast_to(labels[:, None], (3, 500, 1)), axis=-1)[..., 0]
    with np.errstate(invalid="ignore"):
        slow = inside - special.logsumexp(np.where(own, -np.inf, values), axis=-1)
        np.testing.assert_array_equal(log_odds(values, labels), slow)


SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
FEW = 16
NEVER, PART, FULLY = 19, 6, 19
QUERIED, CALIBRATION, UNUSED, HALF, USED = 60, 120, 39, 10, 19
"""Of two sets: records, and models trained on none, half and all of the query set."""


def shadows_and_target(trial: int, fraction: float, gap: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A target of the same making as the shadow models, their log-odds and their membership."""
    generator = np.random.default_rng([12, trial])
    records = provider(generator, FEW, gap)
    part = halves(generator, PART, FEW, FEW // 2)
    membership = np.concatenate([np.zeros((NEVER, FEW), bool), part, np.ones((FULLY, FEW), bool)])
    target = records.outputs(generator, np.arange(FEW) < round(fraction * FEW))
    return target, records.outputs(generator, membership), membership


def audit(trial: int, fraction: float, *, gap: float = 3.0, share: float = 0.0) -> Usage:
    return shadow_test(*shadows_and_target(trial, fraction, gap), share=share)


@pytest.mark.outer
@pytest.mark.parametrize(("fraction", "which"), [(0.0, "p_never"), (1.0, "p_fully")])
def test_p_values_are_uniform_where_the_target_is_one_of_the_shadow_models(fraction: float, which: str) -> None:
    trials = 25
    p_values = np.array([getattr(audit(trial, fraction), which) for trial in range(trials)])
    for u in (0.05, 0.25):
        assert stats.binom.ppf(SURE, trials, u) <= (p_values <= u).sum() <= stats.binom.ppf(1 - SURE, trials, u)


@pytest.mark.outer
def test_the_preflight_p_value_is_small_no_more_often_than_stated() -> None:
    trials = 50
    p_values = np.array([mixture_likeness(*shadows_and_target(trial, trial % 2, 3.0)) for trial in range(trials)])
    assert (p_values <= 0.05).sum() <= stats.binom.ppf(1 - SURE, trials, 0.05)


def test_use_is_found_and_no_use_is_called_forgotten_with_its_number() -> None:
    used, unused = audit(1, 1.0, gap=12.0), audit(2, 0.0, gap=12.0)
    assert used.verdict == "not forgotten"
    assert used.fraction_high > 0.9
    assert unused.verdict == "forgotten"
    assert unused.detectable is not None
    assert unused.detectable <= 0.25


def test_shared_calibration_data_makes_the_test_more_careful() -> None:
    fresh, shared = audit(3, 0.2, gap=3.0), audit(3, 0.2, gap=3.0, share=0.9)
    assert shared.p_never >= fresh.p_never
    assert shared.fraction_high - shared.fraction_low >= fresh.fraction_high - fresh.fraction_low
    assert (shared.detectable or 2.0) > (fresh.detectable or 2.0)


def test_a_target_unlike_the_shadow_models_gets_no_verdict() -> None:
    target, shadows, membership = shadows_and_target(4, 1.0, 3.0)
    usage = shadow_test(target[::-1], shadows, membership)
    assert usage.verdict == "inconclusive"
    assert "does not resemble the shadow models" in usage.reasons[0]


def test_the_mixture_is_that_of_a_loop_over_records_and_shares() -> None:
    generator = np.random.default_rng(13)
    outside, gap, out_variance, in_variance, outputs = (generator.uniform(0.5, 2, 12) for _ in range(5))
    found = []
    for used in np.linspace(0, 1, 21):
        each = []
        for x, out, more, v, w in zip(outputs, outside, gap, out_variance, in_variance, strict=True):
            without, within = stats.norm.pdf(x, out, np.sqrt(4 * v)), stats.norm.pdf(x, out + more, np.sqrt(4 * w))
            each.append(np.log((1 - used) * without + used * within))
        found.append(np.mean(each))
    shadows = Profile(outside, outside + gap, out_variance, in_variance, out_variance)
    assert mixture_log_likelihood(outputs, shadows, stretch=2.0) == pytest.approx(max(found))


def of_two_sets(trial: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Levels and gaps of records, and shadow models that were trained on two thirds of the calibration set."""
    generator = np.random.default_rng([31, trial])
    records = provider(generator, QUERIED + CALIBRATION, 2.0)
    counts = [*[0] * UNUSED, *[QUERIED // 2] * HALF, *[QUERIED] * USED]
    membership = np.zeros((len(counts), QUERIED + CALIBRATION), bool)
    for row, count in zip(membership, counts, strict=True):
        row[generator.choice(QUERIED, count, replace=False)] = True
        row[QUERIED + generator.choice(CALIBRATION, 2 * CALIBRATION // 3, replace=False)] = True
    return generator, records.level, records.gap, records.outputs(generator, membership), membership


def by_two_sets(trial: int, fraction: float, *, scatter: float = 3.0, moved: float = 1.0) -> Usage:
    """A target whose outputs scatter more than the shadow models' and all lie somewhere else."""
    generator, level, gap, shadows, membership = of_two_sets(trial)
    used = np.zeros(len(level), bool)
    used[generator.choice(QUERIED, round(fraction * QUERIED), replace=False)] = True
    target = level + moved + gap * used + scatter * generator.normal(size=len(level))
    return shadow_test(target, shadows, membership, QUERIED)


@pytest.mark.outer
@pytest.mark.parametrize(("fraction", "which"), [(0.0, "p_never"), (1.0, "p_fully")])
def test_a_true_hypothesis_is_rejected_by_two_sets_no_more_often_than_stated(fraction: float, which: str) -> None:
    trials = 150
    small = sum((getattr(by_two_sets(trial, fraction), which) or 0) <= 0.05 for trial in range(trials))
    assert small <= stats.binom.ppf(1 - SURE, trials, 0.05)


@pytest.mark.outer
def test_the_interval_covers_the_used_fraction() -> None:
    trials = 60
    for fraction in (0.0, 0.5, 1.0):
        found = [by_two_sets(trial, fraction) for trial in range(trials)]
        covered = sum(each.fraction_low - 1e-9 <= fraction <= each.fraction_high + 1e-9 for each in found)
        assert covered >= stats.binom.ppf(SURE, trials, 0.95)


@pytest.mark.outer
def test_use_is_found_by_two_sets() -> None:
    assert sum(by_two_sets(trial, 1.0, scatter=1.0).verdict == "not forgotten" for trial in range(20)) == 20


def test_a_calibration_set_that_looks_used_takes_forgotten_away() -> None:
    generator, level, gap, shadows, membership = of_two_sets(7)
    used = np.arange(len(level)) >= QUERIED
    target = level + gap * used + 0.1 * generator.normal(size=len(level))
    usage = shadow_test(target, shadows, membership, QUERIED)
    assert usage.verdict == "inconclusive"
    assert any("calibration set looks used" in reason for reason in usage.reasons)


def test_accuracies_are_of_records_that_were_not_used() -> None:
    generator, level, _, shadows, membership = of_two_sets(8)
    unseen = np.arange(len(level)) >= QUERIED + 20
    target = generator.normal(size=len(level))
    accuracy, accuracies = accuracies_on_unused(target, shadows, membership, QUERIED, unseen)
    assert accuracy == (target[QUERIED + 20 :] > 0).mean()
    first = [x > 0 for x, used in zip(shadows[0, QUERIED:], membership[0, QUERIED:], strict=True) if not used]
    assert accuracies[0] == np.mean(first)


def test_refusals() -> None:
    target, shadows, membership = shadows_and_target(5, 0.0, 3.0)
    with pytest.raises(InputError, match="`share` must be at least 0 and below 1"):
        shadow_test(target, shadows, membership, share=1.0)
    with pytest.raises(InputError, match=r"`models_of_(no|full)_use` must be at least 19; got 18"):
        shadow_test(target, shadows[1:], membership[1:])
    _, level, _, shadows, membership = of_two_sets(11)
    with pytest.raises(InputError, match="`calibration_records_not_used` must be at least 50; got 49"):
        shadow_test(level, shadows, membership, QUERIED, unseen=np.arange(len(level)) >= QUERIED + CALIBRATION - 49)
    with pytest.raises(InputError, match=r"`models_of_(no|full)_use` must be at least 19; got 18"):
        shadow_test(level, shadows[UNUSED - 18 :], membership[UNUSED - 18 :], QUERIED)
    with pytest.raises(InputError, match="`target` must be a number; got nan"):
        shadow_test(np.full_like(level, np.nan), shadows, membership, QUERIED)


MODELS, SEEN = 16, 25


def test_numbers_of_a_record_are_those_of_scipy():
    random = np.random.default_rng(0)
    membership = random.random((MODELS, SEEN)) < 0.5
    membership[:, 0], membership[:, 1] = False, np.arange(MODELS) == 3
    odds = (random.normal(size=membership.shape) + membership).round(1)
    called, judged = random.random((2, MODELS, SEEN)) < 0.6
    found = vulnerability(odds, membership, called, judged)
    for n in range(SEEN):
        own = membership[:, n]
        inside, outside = odds[own, n], odds[~own, n]
        assert (found.inside[n], found.outside[n]) == (own.sum(), (~own).sum())
        times, hits = (own & judged[:, n]).sum(), (own & judged[:, n] & called[:, n]).sum()
        if times:
            exact = stats.binomtest(int(hits), int(times)).proportion_ci(0.95, method="exact")
            assert found.named[n] == pytest.approx(hits / times)
            assert (found.named_low[n], found.named_high[n]) == pytest.approx((exact.low, exact.high))
        else:
            assert np.isnan([found.named[n], found.named_low[n], found.named_high[n]]).all()
        wrong = (~own & judged[:, n] & called[:, n]).sum() / (~own & judged[:, n]).sum()
        assert found.wrongly[n] == pytest.approx(wrong)
        if not own.any():
            assert np.isnan(found.separation[n])
            continue
        pairs = (np.sign(inside[:, None] - outside) + 1) / 2
        assert found.separation[n] == pytest.approx(pairs.mean())


def test_copies_are_records_with_the_same_outputs_and_class():
    odds = np.random.default_rng(0).normal(size=(5, 6))
    odds[:, 3] = odds[:, 1]
    odds[:, 4] = odds[:, 0]
    assert same_outputs(odds, np.zeros(6, int)).tolist() in ([1, 0, -1, 0, 1, -1], [0, 1, -1, 1, 0, -1])
    assert same_outputs(odds, np.array([0, 0, 0, 0, 1, 0])).tolist() == [-1, 0, -1, 0, -1, -1]


def models(seed: int, count: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Models of one recipe, some of another."""
    random, shared = np.random.default_rng(seed), np.random.default_rng(99)
    level, gap = shared.normal(1, 2, 300), np.abs(shared.normal(0, 2, 300))
    membership = random.random((count, 300)) < 0.5
    return level + gap * membership + random.normal(size=membership.shape) + shift, membership


@pytest.mark.outer
def test_a_model_like_its_shadows_is_seldom_called_unlike_them():
    """Of 400 at 1 in 1,000, no more than 1 in 1,000 binomials would have; whichever records it was trained on."""
    unlike = 0
    for seed in range(400):
        odds, membership = models(seed, 17)
        unlike += not likeness(odds[0], odds[1:], membership[1:]).is_like
    assert unlike <= stats.binom.ppf(0.999, 400, STRANGE)


def test_a_model_of_another_recipe_is_called_unlike():
    odds, membership = models(1, 16)
    for shift in (-3.0, 3.0):
        other = models(2, 1, shift)[0][0]
        found = likeness(other, odds, membership)
        assert not found.is_like
        assert found.strangeness > 2 * found.usual


def test_too_few_models_do_not_tell():
    with pytest.raises(InputError, match=r"`finished_models` .* got 3"):
        likeness(*(each[0] if place == 0 else each for place, each in enumerate((models(0, 3)[0], *models(0, 3)))))


def test_profiles_of_others_are_profiles_without_the_model() -> None:
    for index, fast in enumerate(profiles_of_others(OUTPUTS, MEMBERSHIP)):
        slow = profile(np.delete(OUTPUTS, index, axis=0), np.delete(MEMBERSHIP, index, axis=0))
        for one, other in zip(fast, slow, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_shares_are_those_of_a_loop() -> None:
    generator, level, _, shadows, membership = of_two_sets(9)
    target = level + generator.normal(size=len(level))
    (query, calibration, scatters), _ = used_shares(target, shadows, membership, QUERIED)
    found = {"query": query, "calibration": calibration}
    for model in (0, UNUSED, len(shadows) - 1):
        others = np.arange(len(shadows)) != model
        known = profile(shadows[others], membership[others])
        for which, places in (("query", range(QUERIED)), ("calibration", range(QUERIED, QUERIED + CALIBRATION))):
            above = below = 0.0
            for record in places:
                if which == "calibration" and membership[model, record]:
                    continue
                gap = max(known.inside[record] - known.outside[record], 0.0)
                weight = gap / known.variance[record]
                above += weight * (shadows[model, record] - known.outside[record])
                below += weight * gap
            assert found[which][model] == pytest.approx(above / below)
        unseen = ~membership[model] & (np.arange(len(level)) >= QUERIED)
        assert scatters[model] == pytest.approx(own_scatter(shadows[model], known, unseen))

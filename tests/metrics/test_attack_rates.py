"""What judges attacks: against scikit-learn, loops and known values, and how often intervals and thresholds hold."""

from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score, roc_curve

from jaxaudit.errors import InputError
from jaxaudit.kernels import auc
from jaxaudit.metrics import attack_metrics, attack_rates, called_at, clopper_pearson, correlation

MODELS, RECORDS = 7, 60


def world(seed: int, ties: bool = False, unjudged: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    truth = random.random((MODELS, RECORDS)) < 0.4
    scores = random.normal(size=truth.shape) + truth
    scores = scores.round(1 if ties else 9)
    scores[random.random(truth.shape) < unjudged] = np.nan
    return scores, truth


def slow_calls(scores: np.ndarray, truth: np.ndarray, limit: float, model: int) -> np.ndarray:
    """A record is called if at most the allowed number of the others' non-members score as high."""
    others = np.concatenate(
        [own[~row & ~np.isnan(own)] for each, (own, row) in enumerate(zip(scores, truth, strict=True)) if each != model]
    )
    allowed = int(np.floor(limit * len(others) + 1e-9))
    threshold = np.sort(others)[::-1][allowed]
    return np.array([not np.isnan(score) and score > threshold for score in scores[model]])


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_rates_are_counts_over_all_models_by_thresholds_of_the_others(seed: int, ties: bool):
    scores, truth = world(seed, ties)
    limits = (0.2, 0.1, 0.01)
    found, calls = attack_rates(scores, truth, false_positive_rates=limits[:2]), called_at(scores, truth, limits)
    for limit, called in zip(limits, calls, strict=True):
        slow = [slow_calls(scores, truth, limit, model) for model in range(MODELS)]
        np.testing.assert_array_equal(called, slow)
    judged = ~np.isnan(scores)
    assert (found.members, found.non_members) == ((truth & judged).sum(), (~truth & judged).sum())
    assert found.unjudged == pytest.approx((~judged).mean())
    areas = [auc(own[seen], row[seen]) for own, row, seen in zip(scores, truth, judged, strict=True)]
    np.testing.assert_allclose(found.auc_of_models, areas)
    reach = stats.t.ppf(0.975, MODELS - 1) * np.std(areas, ddof=1) / np.sqrt(MODELS)
    ends = np.mean(areas), np.mean(areas) - reach, np.mean(areas) + reach
    assert (found.auc.value, found.auc.low, found.auc.high) == pytest.approx(ends)
    for rate, limit, called in zip(found.tpr_at_fpr, limits, calls, strict=False):
        hits, alarms = (called & truth).sum(), (called & ~truth).sum()
        exact = stats.binomtest(int(hits), found.members).proportion_ci(method="exact")
        assert (rate.value, rate.low, rate.high) == pytest.approx((hits / found.members, exact.low, exact.high))
        assert rate.realised.value == pytest.approx(alarms / found.non_members)
        each = [(called & truth)[model].sum() / (truth & judged)[model].sum() for model in range(MODELS)]
        assert rate.spread == pytest.approx(np.std(each, ddof=1))
        all_scores, all_truth = scores[judged], truth[judged]
        best = max(
            (all_scores[all_truth] >= threshold).mean()
            for threshold in [*np.unique(all_scores), np.inf]
            if (all_scores[~all_truth] >= threshold).sum() <= limit * found.non_members
        )
        assert rate.on_curve == pytest.approx(best)


@pytest.mark.parametrize("seed", range(3))
def test_the_curve_is_scikit_learns(seed: int):
    """Points of the curve of all models together; ties are one step."""
    scores, truth = world(seed)
    scores, judged = scores.round(1), ~np.isnan(scores)
    found = attack_rates(scores, truth)
    across, up, _ = roc_curve(truth[judged], scores[judged], drop_intermediate=False)
    points = list(zip(across.tolist(), up.tolist(), strict=True))
    assert (found.roc.fpr[0], found.roc.tpr[-1], found.roc.fpr[-1]) == (0.0, 1.0, 1.0)
    for point in zip(found.roc.fpr, found.roc.tpr, strict=True):
        assert min(max(abs(a - b) for a, b in zip(point, other, strict=True)) for other in points) < 1e-12
    for rate, low, high in zip(found.roc.tpr, found.roc.low, found.roc.high, strict=True):
        exact = stats.binomtest(round(rate * found.members), found.members).proportion_ci(method="exact")
        assert (low, high) == pytest.approx((exact.low, exact.high))


def test_a_rate_that_too_few_records_tell_is_not_given():
    """Ten false positives must be expected."""
    truth = np.arange(2 * 1000).reshape(2, 1000) % 2 == 0
    scores = np.random.default_rng(0).normal(size=truth.shape)
    found = attack_rates(scores, truth)
    assert [rate.resolvable for rate in found.tpr_at_fpr] == [True, True, False, False]
    assert [rate.fpr for rate in found.tpr_at_fpr] == [0.1, 0.01, 0.001, 0.0001]
    for rate in found.tpr_at_fpr[2:]:
        realised = rate.realised.value, rate.realised.low, rate.realised.high
        none = [rate.value, rate.low, rate.high, *realised, rate.on_curve, rate.spread]
        assert np.isnan(none).all()


def test_one_model_of_known_membership_has_delongs_interval():
    """Against the variance from all pairs of one member and one other (DeLong et al. 1988, equation 3)."""
    random = np.random.default_rng(3)
    truth = random.random((1, RECORDS)) < 0.5
    scores = (random.normal(size=(1, RECORDS)) + truth).round(1)
    found = attack_rates(scores, truth, thresholds_of=[world(0)])
    members, others = scores[truth], scores[~truth]
    wins = (np.sign(members[:, None] - others) + 1) / 2
    error = np.sqrt(wins.mean(axis=1).var(ddof=1) / len(members) + wins.mean(axis=0).var(ddof=1) / len(others))
    assert found.auc.value == pytest.approx(wins.mean())
    assert found.auc.high - found.auc.value == pytest.approx(stats.norm.ppf(0.975) * error)


def test_stated_false_positive_rates_are_realised_on_average():
    """On models alike: within 4 standard errors of what is stated, over 200 x 500 non-members."""
    random = np.random.default_rng(11)
    truth = random.random((200, 1000)) < 0.5
    scores = random.normal(size=truth.shape)
    for rate in attack_rates(scores, truth, false_positive_rates=(0.1, 0.01, 0.001)).tpr_at_fpr:
        assert rate.holds
        error = np.sqrt(rate.fpr / (~truth).sum())
        assert abs(rate.realised.value - rate.fpr) < 4 * error
        assert rate.realised.low < rate.fpr < rate.realised.high


def lumps(models: int = 40, records: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Scores that say nothing: of each model nearly all are equal, at a level of its own."""
    random = np.random.default_rng(21)
    truth = random.random((models, records)) < 0.5
    scores = np.broadcast_to(random.permutation(models)[:, None] / models, truth.shape).copy()
    scores[random.random(truth.shape) < 0.002] = 1.0
    return scores, truth


def test_a_rate_whose_thresholds_call_more_than_stated_is_not_that_of_its_limit():
    """Thresholds lie between the levels of the models, so the highest model has nearly all its records called."""
    scores, truth = lumps()
    found = attack_rates(scores, truth, false_positive_rates=(0.01,))
    (rate,) = found.tpr_at_fpr
    called = called_at(scores, truth, [rate.fpr])[0]
    assert rate.realised.value == pytest.approx((called & ~truth).sum() / (~truth).sum())
    assert rate.realised.value > 2 * rate.fpr
    assert (rate.resolvable, rate.holds) == (True, False)
    assert np.isnan([rate.value, rate.low, rate.high, rate.spread]).all()
    # One threshold for all models, chosen with the truth, keeps the limit.
    levels = np.unique(scores)
    kept = [level for level in levels if (scores[~truth] > level).mean() <= rate.fpr]
    assert rate.on_curve == pytest.approx((scores[truth] > min(kept)).mean())
    # Each model's own ties count, though no two models share them.
    shares = [np.unique(own, return_counts=True)[1].max() / len(own) for own in scores]
    assert found.tied == pytest.approx(np.mean(shares))
    assert found.tied > 0.9


def test_each_model_may_have_thresholds_of_other_models():
    (scores, truth), first, second = world(3), world(4), world(5)
    whole = [first if model % 2 else second for model in range(MODELS)]
    found = called_at(scores, truth, (0.2, 0.05), whole)
    for model, others in enumerate(whole):
        own = slice(model, model + 1)
        np.testing.assert_array_equal(found[:, own], called_at(scores[own], truth[own], (0.2, 0.05), [others]))


@pytest.mark.outer
def test_the_interval_of_the_area_covers_it():
    """Of 400 draws of ten models, the 95% interval misses the true area no more often than 1 binomial in 1,000."""
    random, true, missed = np.random.default_rng(12), stats.norm.cdf(1 / np.sqrt(2)), 0
    truth = np.arange(10 * 60).reshape(10, 60) % 2 == 0
    for _ in range(400):
        area = attack_rates(random.normal(size=truth.shape) + truth, truth, false_positive_rates=(0.1,)).auc
        missed += not area.low <= true <= area.high
    assert missed <= stats.binom.ppf(0.999, 400, 0.05)


@pytest.mark.parametrize(
    ("scores", "truth", "how"),
    [
        (np.ones((2, 3)), np.ones((2, 3), bool), {}),
        (np.full((2, 3), np.nan), np.eye(2, 3, dtype=bool), {}),
        (np.ones((1, 3)), np.eye(1, 3, dtype=bool), {}),
        (np.ones((2, 3)), np.eye(2, 3, dtype=bool), {"false_positive_rates": (0.0,)}),
    ],
    ids=["no non-member", "nothing judged", "its own threshold", "rate"],
)
def test_what_cannot_be_judged_is_refused(scores: np.ndarray, truth: np.ndarray, how: dict):
    with pytest.raises(InputError):
        attack_rates(scores, truth, **how)


KEY = jax.random.key(6)
NAN: Any = np.nan
TRUTH = np.arange(600) % 2 == 0
SCORES = np.round(np.random.default_rng(6).normal(size=600) + TRUTH, 2)
TARGETS = np.repeat(np.arange(60), 10)


def of_targets(*flat: np.ndarray, attacks: int = 10) -> list[np.ndarray]:
    """[targets * attacks], the attacks on a target side by side -> [attacks, targets]"""
    return [values.reshape(-1, attacks).T for values in flat]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 30), st.sampled_from([-3.0, 0.0, 3.0]))
def test_rates_are_scikit_learns(seed, attacks, shift):
    random = np.random.default_rng(seed)
    truth = np.append([True, False], random.random(attacks - 2) < 0.5)
    scores = np.round(random.normal(size=attacks) + shift)
    answer, called = attack_metrics(KEY, scores[None], truth[None], bootstrap=1), scores > 0
    expected = (
        accuracy_score(truth, called),
        precision_score(truth, called, zero_division=NAN),
        recall_score(truth, called),
        f1_score(truth, called),
        roc_auc_score(truth, scores),
    )
    np.testing.assert_allclose(
        [getattr(answer, each).value for each in ("accuracy", "precision", "recall", "f1", "auc")], expected, rtol=1e-12
    )


def test_the_interval_is_that_of_a_bootstrap_by_hand():
    """Whole targets drawn with replacement; quantiles of 2,000 draws each, which differ by their own error."""
    answer = attack_metrics(KEY, *of_targets(SCORES, TRUTH), bootstrap=2000)
    random, draws = np.random.default_rng(1), []
    for _ in range(2000):
        chosen = np.concatenate([np.flatnonzero(t == TARGETS) for t in random.integers(0, 60, 60)])
        scores, truth = SCORES[chosen], TRUTH[chosen]
        above = np.argsort(np.argsort(scores, kind="stable"), kind="stable")  # ties are too rare to matter
        members = truth.sum()
        area = (above[truth].sum() - members * (members - 1) / 2) / (members * (~truth).sum())
        draws.append((np.mean((scores > 0) == truth), area))
    for found, sample in zip((answer.accuracy, answer.auc), np.transpose(draws), strict=True):
        low, high = np.quantile(sample, [0.025, 0.975])
        # The error of a 2.5% quantile of 2,000 normal draws is 0.060 deviations; of a difference of two, 0.085.
        slack = 5 * 0.085 * sample.std()
        assert abs(found.low - low) < slack
        assert abs(found.high - high) < slack
        assert slack < (high - low) / 5


def test_one_target_has_no_interval():
    answer = attack_metrics(KEY, SCORES[:, None], TRUTH[:, None])
    assert answer.auc.value > 0.6
    assert np.isnan([answer.auc.low, answer.auc.high, answer.accuracy.low]).all()


def attacked(random, targets, attacks):
    """Targets of differing exposure, each attacked as often in as out; scores above 0 are likelier in."""
    exposure = np.repeat(random.normal(1.0, 1.0, targets), attacks)
    truth = np.tile(np.arange(attacks) % 2 == 0, targets)
    scores = np.where(truth, 0.5, -0.5) * exposure + random.normal(size=len(truth))
    return scores, truth


@pytest.mark.outer
def test_intervals_cover_at_their_level_because_they_draw_targets():
    # exposure + noise: an attack is right with probability E Phi(exposure / 2) = Phi(0.5 / sqrt(1 + 1 / 4)). Scores of
    # different targets differ by N(1, 2 + 2/4), so the area is Phi(1 / sqrt(2.5)).
    right, area = stats.norm.cdf(0.5 / np.sqrt(1.25)), stats.norm.cdf(1 / np.sqrt(2.5))
    random, missed, missed_alone = np.random.default_rng(7), np.zeros(2), np.zeros(2)
    for trial in range(150):
        flat = attacked(random, 50, 20)
        for misses, attacks in ((missed, 20), (missed_alone, 1)):
            answer = attack_metrics(jax.random.key(trial), *of_targets(*flat, attacks=attacks), bootstrap=200)
            for i, (found, value) in enumerate(((answer.accuracy, right), (answer.auc, area))):
                misses[i] += not found.low <= value <= found.high
    # Of 150, 20 or more misses have a chance of 1e-4 at 5%, and of 8e-4 at the 6% that few targets may make of it.
    assert (missed < 20).all()
    # Taken one by one, as if attacks on a target were independent, they miss more often: 25 of 150 would be 1e-8 at 5%.
    assert (missed_alone > 25).all()


def test_correlation_is_scipys_where_there_is_one():
    x, y = np.random.default_rng(9).normal(size=(2, 40))
    result: Any = stats.pearsonr(x, x + y)
    np.testing.assert_allclose(list(msgspec.structs.astuple(correlation(x, x + y))), list(result), rtol=1e-12)
    three = np.array([0.5, 0.6, 0.7])
    for first, second in ((three[:2], three[:2]), (three, [1.0, 2.0, np.inf]), (three, [1.0, 1.0 + 1e-12, 1.0])):
        assert np.isnan(msgspec.structs.astuple(correlation(first, np.array(second)))).all()


def test_impossible_intervals_are_refused():
    with pytest.raises(InputError, match=r"^`bootstrap` must be"):
        attack_metrics(KEY, *of_targets(SCORES, TRUTH), bootstrap=0)


def test_intervals_of_shares_end_at_none_and_all():
    assert clopper_pearson(10, 10, 0.95).high == 1.0
    assert np.isnan(clopper_pearson(0, 0, 0.95).value)

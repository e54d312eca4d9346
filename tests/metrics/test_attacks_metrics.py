"""What judges an attack: by scikit-learn, by loops, and how often the intervals cover."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score

from jaxaudit.errors import InputError
from jaxaudit.metrics.attack import attack_metrics, correlation, per_target_accuracy, strongest_attack

KEY = jax.random.key(6)
NAN: Any = np.nan
TRUTH = np.arange(600) % 2 == 0
SCORES = np.round(np.random.default_rng(6).normal(size=600) + TRUTH, 2)
TARGETS = np.repeat(np.arange(60), 10)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 30), st.sampled_from([-3.0, 0.0, 3.0]))
def test_rates_are_scikit_learns(seed, attacks, shift):
    random = np.random.default_rng(seed)
    truth = np.append([True, False], random.random(attacks - 2) < 0.5)
    scores = np.round(random.normal(size=attacks) + shift)
    answer, called = attack_metrics(KEY, scores, truth, bootstrap=1), scores > 0
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


def test_rates_at_low_false_positive_rates_say_whether_they_can_be_known():
    scores = np.round(SCORES, 1)
    answer = attack_metrics(KEY, scores, TRUTH, false_positive_rates=(0.1, 1 / 300, 0.001), bootstrap=20)
    tenth, one, none = answer.true_positive_rates
    others = np.sort(scores[~TRUTH])[::-1]
    # 300 non-members: 30 false alarms, 1, and none are allowed, and ties are called alike.
    assert others[30] == others[29]
    for rate, allowed in ((tenth, 30), (one, 1), (none, 0)):
        threshold = others[allowed]
        assert rate.rate.value == np.mean(scores[TRUTH] > threshold)
        assert rate.false_positive_rate == np.mean(scores[~TRUTH] > threshold)
    assert [rate.resolvable for rate in answer.true_positive_rates] == [True, True, False]
    assert tenth.false_positive_rate < 0.1
    assert none.false_positive_rate == 0


def test_the_interval_is_that_of_a_bootstrap_by_hand():
    """Whole targets drawn with replacement; quantiles of 2,000 draws each, which differ by their own error."""
    answer = attack_metrics(KEY, SCORES, TRUTH, TARGETS, bootstrap=2000, level=0.8)
    random, draws = np.random.default_rng(1), []
    for _ in range(2000):
        chosen = np.concatenate([np.flatnonzero(t == TARGETS) for t in random.integers(0, 60, 60)])
        scores, truth = SCORES[chosen], TRUTH[chosen]
        above = np.argsort(np.argsort(scores, kind="stable"), kind="stable")  # ties are too rare to matter
        members = truth.sum()
        area = (above[truth].sum() - members * (members - 1) / 2) / (members * (~truth).sum())
        draws.append((np.mean((scores > 0) == truth), area))
    for found, sample in zip((answer.accuracy, answer.auc), np.transpose(draws), strict=True):
        low, high = np.quantile(sample, [0.1, 0.9])
        # The error of a 10% quantile of 2,000 normal draws is 0.038 deviations; of a difference of two, 0.054.
        slack = 5 * 0.054 * sample.std()
        assert abs(found.low - low) < slack
        assert abs(found.high - high) < slack
        assert slack < (high - low) / 5


def test_one_target_has_no_interval():
    answer = attack_metrics(KEY, SCORES, TRUTH, np.zeros(600, int))
    assert answer.auc.value > 0.6
    assert np.isnan([answer.auc.low, answer.auc.high, answer.accuracy.low]).all()


def attacked(random, targets, attacks):
    """Targets of differing exposure, each attacked as often in as out; scores above 0 are likelier in."""
    exposure = np.repeat(random.normal(1.0, 1.0, targets), attacks)
    truth = np.tile(np.arange(attacks) % 2 == 0, targets)
    scores = np.where(truth, 0.5, -0.5) * exposure + random.normal(size=len(truth))
    return scores, truth, np.repeat(np.arange(targets), attacks)


@pytest.mark.outer
def test_intervals_cover_at_their_level_because_they_draw_targets():
    # exposure + noise: an attack is right with probability E Phi(exposure / 2) = Phi(0.5 / sqrt(1 + 1 / 4)). Scores of
    # different targets differ by N(1, 2 + 2/4), so the area is Phi(1 / sqrt(2.5)).
    right, area = stats.norm.cdf(0.5 / np.sqrt(1.25)), stats.norm.cdf(1 / np.sqrt(2.5))
    random, missed, missed_alone = np.random.default_rng(7), np.zeros(2), np.zeros(2)
    for trial in range(150):
        scores, truth, targets = attacked(random, 50, 20)
        for misses, clusters in ((missed, targets), (missed_alone, None)):
            answer = attack_metrics(
                jax.random.key(trial), scores, truth, clusters, bootstrap=200, false_positive_rates=()
            )
            for i, (found, value) in enumerate(((answer.accuracy, right), (answer.auc, area))):
                misses[i] += not found.low <= value <= found.high
    # Of 150, 20 or more misses have a chance of 1e-4 at 5%, and of 8e-4 at the 6% that few targets may make of it.
    assert (missed < 20).all()
    # Taken one by one, as if attacks on a target were independent, they miss more often: 25 of 150 would be 1e-8 at 5%.
    assert (missed_alone > 25).all()


# Per target.


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 6))
def test_per_target_accuracy_is_the_share_of_right_calls(seed, attacks, count):
    random = np.random.default_rng(seed)
    scores, truth = np.round(random.normal(size=attacks), 1), random.random(attacks) < 0.5
    targets = random.integers(0, count, attacks)
    found = per_target_accuracy(scores, truth, targets, count)
    for target in range(count):
        calls = [(score > 0) == real for score, real, of in zip(scores, truth, targets, strict=True) if of == target]
        np.testing.assert_allclose(found[target], np.mean(calls) if calls else np.nan, rtol=1e-15)


def test_the_strongest_of_attacks_at_chance_is_above_chance_as_its_docstring_says():
    accuracies = np.random.default_rng(8).binomial(200, 0.5, (3, 20000)) / 200
    # The mean of 20,000 has an error of 2e-4.
    assert abs(strongest_attack(accuracies)[0].mean() - 0.53) < 0.002


# Correlation.


def test_correlation_is_scipys_of_the_targets_that_have_both():
    x, y = np.random.default_rng(9).normal(size=(2, 40))
    y += x
    result: Any = stats.pearsonr(x, y)
    answer = correlation(np.append(x, [np.nan, 1.0]), np.append(y, [1.0, np.nan]))
    assert answer.count == 40
    assert answer.reason is None
    np.testing.assert_allclose([answer.coefficient, answer.p_value], list(result), rtol=1e-12)
    slow = np.mean((x - x.mean()) * (y - y.mean())) / (x.std() * y.std())
    np.testing.assert_allclose(answer.coefficient, slow, rtol=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ([0.5, 0.6], [1.0, 2.0], "fewer than 3 targets"),
        ([0.5, 0.6, np.nan], [1.0, 2.0, 3.0], "fewer than 3 targets"),
        ([], [], "fewer than 3 targets"),
        ([0.5, 0.6, 0.7], [1.0, 2.0, np.inf], "a value is infinite"),
        ([0.5, 0.5, 0.5], [1.0, 2.0, 3.0], "one side is constant"),
        ([0.0, 0.1, 0.2], [0.0, 0.0, 0.0], "one side is constant"),
        ([0.5, 0.6, 0.7], [1.0, 1.0 + 1e-12, 1.0], "one side is constant"),
    ],
)
def test_where_there_is_no_correlation_the_reason_is_given(first, second, reason):
    answer = correlation(np.array(first, float), np.array(second, float))
    assert np.isnan([answer.coefficient, answer.p_value]).all()
    assert answer.reason == reason


# What is refused.


@pytest.mark.parametrize(
    "options", [{"bootstrap": 0}, {"level": 1.0}, {"level": 0.0}, {"false_positive_rates": (1.1,)}]
)
def test_impossible_intervals_are_refused(options):
    with pytest.raises(InputError, match=r"at least 1 bootstrap replicate"):
        attack_metrics(KEY, SCORES, TRUTH, **options)


def test_targets_that_are_not_one_an_attack_are_refused(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    for targets in (TARGETS[:-1], TARGETS - 1):
        with pytest.raises(InputError, match=r"^\d+ targets were given for 600 attacks: give the index of the att"):
            attack_metrics(KEY, SCORES, TRUTH, targets)
        with pytest.raises(InputError, match=r"^\d+ targets were given for 600 attacks"):
            per_target_accuracy(SCORES, TRUTH, targets, 60)
    message = r"^per-target accuracy needs a score that is not NaN, a truth and a target below \d+ for every attack"
    for scores, truth, count in ((SCORES, TRUTH, 59), (SCORES * np.nan, TRUTH, 60), (SCORES, TRUTH[:-1], 60)):
        with pytest.raises(InputError, match=message):
            per_target_accuracy(scores, truth, TARGETS, count)


def test_no_attacks_have_no_strongest_and_no_pairs_no_correlation(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    with pytest.raises(InputError, match=r"no attack to choose from"):
        strongest_attack(np.zeros((0, 3)))
    with pytest.raises(InputError, match=r"^a correlation needs pairs; got 3 and 2 values"):
        correlation(np.zeros(3), np.zeros(2))

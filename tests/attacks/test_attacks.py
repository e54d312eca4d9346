"""The two targeted attacks: their sums written out, every 0, and what they find of a learner that memorises."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.attacks import distance_scores, frequency_scores
from jaxaudit.errors import InputError


def log(probabilities: Any) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, np.float64))


def place(probability: float, bins: int) -> int:
    return min(int(probability * bins * (1 + 1e-6)), bins - 1)


def outputs(seed: int, shadows: int, targets: int, classes: int) -> list[np.ndarray]:
    """Probabilities of the attacked model, of models with the target, and of models without, not far from it."""
    random = np.random.default_rng(seed)
    q = random.dirichlet(np.ones(classes), targets)
    near = np.array([random.dirichlet(30 * row + 0.3, (2, shadows)) for row in q]).reshape(targets, 2, shadows, classes)
    return [q, *near.transpose(1, 2, 0, 3)]


def centres(probabilities: np.ndarray, bins: int) -> np.ndarray:
    flat = [(place(p, bins) + 0.5) / bins if bins else p for p in probabilities.ravel()]
    return np.reshape(flat, probabilities.shape)


def kl(q: np.ndarray, p: np.ndarray) -> float:
    return sum(a * math.log(a / b) for a, b in zip(q, p, strict=True))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 4), st.integers(1, 5), st.sampled_from([0, 10, 100]))
def test_the_distance_score_is_the_difference_of_divergences(seed, shadows, targets, classes, bins):
    cases = outputs(seed, shadows, targets, classes)
    found = distance_scores(*map(log, cases), bins=bins)
    q, p_in, p_out = (centres(case, bins) for case in cases)
    for t in range(targets):
        mean_in, mean_out = (sum(p[j, t] for j in range(shadows)) / shadows for p in (p_in, p_out))
        np.testing.assert_allclose(found[t], kl(q[t], mean_out) - kl(q[t], mean_in), rtol=1e-9, atol=1e-12)
    assert found.shape == (targets,)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 4), st.integers(1, 5), st.sampled_from([1, 10, 100]))
def test_the_frequency_score_is_the_log_of_a_product_of_ratios(seed, shadows, targets, classes, bins):
    q, p_in, p_out = outputs(seed, shadows, targets, classes)
    for smoothing in (1.0, 0.5):
        found = frequency_scores(*map(log, (q, p_in, p_out)), bins=bins, smoothing=smoothing)
        for t in range(targets):
            product = 1.0
            for y in range(classes):
                o_in, o_out = (
                    sum(place(p[j, t, y], bins) == place(q[t, y], bins) for j in range(shadows)) for p in (p_in, p_out)
                )
                product *= (o_in + smoothing) / (o_out + smoothing)
            np.testing.assert_allclose(found[t], math.log(product), rtol=1e-9, atol=1e-12)


# Zeros: attacked model, shadows with, shadows without -> score.


@pytest.mark.parametrize(
    ("q", "p_in", "p_out", "score"),
    [
        ([1.0, 0.0], [0.5, 0.5], [0.5, 0.5], 0.0),
        ([1.0, 0.0], [1.0, 0.0], [0.5, 0.5], math.log(2)),  # a class with q = 0 says nothing
        ([0.5, 0.5], [0.5, 0.5], [1.0, 0.0], math.inf),
        ([0.5, 0.5], [1.0, 0.0], [0.5, 0.5], -math.inf),
        ([0.5, 0.5], [1.0, 0.0], [0.0, 1.0], 0.0),  # neither could have given q
        ([0.5, 0.5], [0.5, 0.0], [0.25, 0.0], 0.5 * math.log(2)),  # a class both miss says nothing
    ],
)
def test_exact_divergences_give_every_zero_a_meaning(q, p_in, p_out, score):
    found = distance_scores(log([q]), log([[p_in]]), log([[p_out]]), bins=0)
    np.testing.assert_allclose(found, [score], rtol=1e-15)
    assert np.isfinite(distance_scores(log([q]), log([[p_in]]), log([[p_out]]))).all()


@pytest.mark.parametrize(
    ("p_in", "p_out", "score"),
    [
        ([0.9, 0.1], [0.5, 0.5], math.inf),
        ([0.5, 0.5], [0.9, 0.1], -math.inf),
        ([0.9, 0.5], [0.5, 0.1], 0.0),
        ([0.5, 0.5], [0.3, 0.7], 0.0),
        ([0.9, 0.1], [0.9, 0.1], 0.0),
    ],
)
def test_counts_without_smoothing_give_every_zero_a_meaning(p_in, p_out, score):
    found = frequency_scores(log([[0.9, 0.1]]), log([[p_in]]), log([[p_out]]), smoothing=0.0)
    assert found.tolist() == [score]


def test_swapping_the_shadows_turns_the_sign():
    q, p_in, p_out = map(log, outputs(3, 5, 40, 3))
    for attack in (distance_scores, frequency_scores):
        assert np.array_equal(attack(q, p_in, p_out), -attack(q, p_out, p_in))
        assert (attack(q, p_in, p_out) > 0).any()


# End to end, on two learners: what they say of a record depends on whether it was in their training set.


def memorising(random: np.random.Generator, member: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Nearly sure of a member's label; of another record it knows little."""
    scores = random.normal(size=(*member.shape, classes))
    scores = np.where(member[..., None], 8 * np.eye(classes)[labels] + 0.5 * scores, scores)
    return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


def constant(random: np.random.Generator, member: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """The same of every record, whatever it was trained on."""
    return np.full((*member.shape, classes), -math.log(classes))


@pytest.mark.parametrize(("learner", "least", "most"), [(memorising, 0.95, 1.0), (constant, 0.5, 0.5)])
@pytest.mark.parametrize("attack", [distance_scores, frequency_scores])
def test_a_learner_that_memorises_is_found_out_and_a_constant_one_is_not(learner, least, most, attack):
    random, classes, shadows = np.random.default_rng(4), 3, 5
    labels = random.integers(0, classes, 200)
    member = np.arange(200) % 2 == 0
    answer = attack(
        learner(random, member, labels, classes),
        *(learner(random, np.full((shadows, 200), trained), labels, classes) for trained in (True, False)),
    )
    assert least <= np.mean((answer > 0) == member) <= most


# What is refused.

ONE = log([[0.5, 0.5]])


@pytest.mark.parametrize("attack", [distance_scores, frequency_scores])
def test_shadows_that_do_not_match_are_refused(attack, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    two = ONE.repeat(2, axis=0)
    for of_in, of_out in ((ONE[None], two[None]), (two[None], two[None]), (ONE[:0, None], ONE[:0, None]), (ONE, ONE)):
        with pytest.raises(InputError, match=r"attack on outputs of shape \(1, 2\)"):
            attack(ONE, of_in, of_out)


@pytest.mark.parametrize("attack", [distance_scores, frequency_scores])
@pytest.mark.parametrize(
    ("which", "name"),
    [(0, "the attacked model"), (1, "shadow models trained with the target"), (2, "shadow models trained without it")],
)
def test_outputs_that_are_no_log_probabilities_are_refused(attack, which, name):
    for bad, message in ((np.nan, "are NaN"), (0.9, "are above 0")):
        cases = [ONE, ONE[None], ONE[None]]
        cases[which] = cases[which] + bad
        with pytest.raises(InputError, match=f"outputs of {name} {message}"):
            attack(*cases)


def test_bins_and_smoothing_that_count_nothing_are_refused():
    for bins in (0, -1):
        with pytest.raises(InputError, match=rf"^probabilities .* {bins} bins"):
            frequency_scores(ONE, ONE[None], ONE[None], bins=bins)
    with pytest.raises(InputError, match=r"^probabilities .* -1 bins"):
        distance_scores(ONE, ONE[None], ONE[None], bins=-1)
    for smoothing in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match=r"^smoothing must be a number of at least 0; got"):
            frequency_scores(ONE, ONE[None], ONE[None], smoothing=smoothing)

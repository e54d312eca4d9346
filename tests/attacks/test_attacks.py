"""The two targeted attacks: their sums written out, every 0.

The untargeted attack: its examples, its network by hand, and what it finds of a learner that memorises.
"""

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.references import log_of

from jaxaudit.attacks import (
    Attack,
    AttackInputs,
    Distance,
    Frequency,
    PairedShadows,
    PooledShadows,
    Untargeted,
    attack_examples,
)
from jaxaudit.errors import InputError

KEY = jax.random.key(3)


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


def paired(attack: Attack, q: Any, p_in: Any, p_out: Any, bins: int) -> np.ndarray:
    """The scores of the targets under one attacked model, from probabilities."""
    q, *shadows = map(log_of, (q, p_in, p_out))
    inputs = AttackInputs(q[None], np.zeros((len(q), 0)), np.zeros(len(q), int), bins)
    return attack.scores(KEY, inputs, PairedShadows(*shadows))[0]


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 4), st.integers(1, 5), st.sampled_from([2, 10, 100]))
def test_the_distance_score_is_the_difference_of_divergences(seed, shadows, targets, classes, bins):
    given, with_target, without = outputs(seed, shadows, targets, classes)
    found = paired(Distance(), given, with_target, without, bins)
    q, p_in, p_out = (centres(case, bins) for case in (given, with_target, without))
    for t in range(targets):
        mean_in, mean_out = (sum(p[j, t] for j in range(shadows)) / shadows for p in (p_in, p_out))
        np.testing.assert_allclose(found[t], kl(q[t], mean_out) - kl(q[t], mean_in), rtol=1e-9, atol=1e-12)
    assert found.shape == (targets,)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 4), st.integers(1, 5), st.sampled_from([2, 10, 100]))
def test_the_frequency_score_is_the_log_of_a_product_of_ratios(seed, shadows, targets, classes, bins):
    q, p_in, p_out = outputs(seed, shadows, targets, classes)
    found = paired(Frequency(), q, p_in, p_out, bins)
    for t in range(targets):
        product = 1.0
        for y in range(classes):
            o_in, o_out = (
                sum(place(p[j, t, y], bins) == place(q[t, y], bins) for j in range(shadows)) for p in (p_in, p_out)
            )
            product *= (o_in + 1) / (o_out + 1)
        np.testing.assert_allclose(found[t], math.log(product), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("attack", "bins"), [(Frequency(), 0), (Frequency(), 1), (Distance(), 0)])
def test_bins_that_count_nothing_are_refused(attack, bins):
    with pytest.raises(InputError, match=rf"^`bins` .* got {bins}"):
        paired(attack, [[0.5, 0.5]], [[[0.5, 0.5]]], [[[0.5, 0.5]]], bins)


CANDIDATES, COLUMNS, CLASSES, SHADOWS = 120, 4, 3, 20
RANDOM = np.random.default_rng(5)
LABELS = RANDOM.integers(0, CLASSES, CANDIDATES)
INPUTS = RANDOM.normal(size=(CANDIDATES, COLUMNS)).astype(np.float32)


def halves(models: int) -> np.ndarray:
    """A random half of the candidates for each model."""
    return np.argsort(np.random.default_rng(models).random((models, CANDIDATES)), axis=1) < CANDIDATES // 2


def memorising(member: np.ndarray) -> np.ndarray:
    """Nearly sure of a member's label; of another record it knows little."""
    scores = np.random.default_rng(member.size).normal(size=(*member.shape, CLASSES))
    scores = np.where(member[..., None], 8 * np.eye(CLASSES)[LABELS] + 0.5 * scores, scores)
    return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


def constant(member: np.ndarray) -> np.ndarray:
    return np.full((*member.shape, CLASSES), -np.log(CLASSES))


MEMBERSHIP, MEMBER = halves(SHADOWS), halves(1)
SHADOW_OUTPUTS = memorising(MEMBERSHIP)


def untargeted(of_shadows: np.ndarray, outputs: np.ndarray, membership: np.ndarray = MEMBERSHIP) -> np.ndarray:
    shadows = PooledShadows(of_shadows, membership, INPUTS, LABELS)
    return Untargeted().scores(KEY, AttackInputs(outputs, INPUTS, LABELS, 100), shadows)


def test_examples_are_input_label_and_output_of_every_model_and_record():
    found = attack_examples(INPUTS, LABELS, SHADOW_OUTPUTS, bins=100)
    assert found.shape == (SHADOWS * CANDIDATES, COLUMNS + 2 * CLASSES)
    assert found.dtype == np.float32
    for m, r in ((0, 0), (0, 7), (2, 0), (5, 119)):
        probabilities = np.exp(SHADOW_OUTPUTS[m, r])
        expected = [
            *INPUTS[r],
            *(float(c == LABELS[r]) for c in range(CLASSES)),
            *(int(p * 100) / 100 + 0.005 for p in probabilities),
        ]
        np.testing.assert_allclose(found[m * CANDIDATES + r], expected, rtol=1e-6)
    exact = attack_examples(INPUTS, LABELS, SHADOW_OUTPUTS, bins=0)
    np.testing.assert_allclose(exact[:, -CLASSES:], np.exp(SHADOW_OUTPUTS).reshape(-1, CLASSES), rtol=1e-6)
    assert np.array_equal(attack_examples(INPUTS.reshape(-1, 2, 2), LABELS, SHADOW_OUTPUTS, bins=100), found)


def test_a_learner_that_memorises_is_found_out_and_a_constant_one_is_not():
    assert np.mean((untargeted(SHADOW_OUTPUTS, memorising(MEMBER)) > 0) == MEMBER) > 0.85
    # As in the protocol: every target is attacked once in and once out, and gets the same answer.
    scores = untargeted(constant(MEMBERSHIP), constant(MEMBER))
    assert np.mean([(scores > 0) == MEMBER, (scores > 0) == ~MEMBER]) == 0.5
    assert np.isfinite(scores).all()


def test_what_does_not_match_is_refused(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    for inputs, labels, message in (
        (INPUTS[:9], LABELS, "^`inputs` .*120"),
        (INPUTS, LABELS[:9], "^`labels` .*120"),
        (INPUTS, LABELS + 1, "^`labels` .*at most 2"),
        (INPUTS, LABELS - 1, "^`labels` .*at least 0"),
    ):
        with pytest.raises(InputError, match=message):
            attack_examples(inputs, labels, SHADOW_OUTPUTS, bins=100)
    for membership, message in (
        (MEMBERSHIP[:5], r"^`membership` has shape \(5, 120\) but must have \(20, 120\)"),
        (np.ones_like(MEMBERSHIP), "models were trained on all candidates or on none, so"),
        (np.zeros_like(MEMBERSHIP), "models were trained on all candidates or on none, so"),
    ):
        with pytest.raises(InputError, match=message):
            untargeted(SHADOW_OUTPUTS, SHADOW_OUTPUTS, membership)
    for bad, message in ((np.nan, "up to nan"), (9.0, "up to")):
        with pytest.raises(
            InputError, match=f"outputs of the shadow or attacked models are no log-probabilities, but {message}"
        ):
            untargeted(SHADOW_OUTPUTS + bad, SHADOW_OUTPUTS)

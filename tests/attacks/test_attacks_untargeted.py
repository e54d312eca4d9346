"""The untargeted attack: its examples, its network by hand, and what it finds of a learner that memorises."""

from functools import cache
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from jaxaudit.attacks import UntargetedAttack, attack_examples, attack_network, fit_untargeted, untargeted_scores
from jaxaudit.errors import InputError

KEY = jax.random.key(3)
CANDIDATES, COLUMNS, CLASSES, SHADOWS = 120, 4, 3, 6
RANDOM = np.random.default_rng(5)
LABELS = RANDOM.integers(0, CLASSES, CANDIDATES)
INPUTS = RANDOM.normal(size=(CANDIDATES, COLUMNS)).astype(np.float32)
NETWORK = attack_network(COLUMNS + 2 * CLASSES, optimizer=optax.adam(0.01), batch_size=16)


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


MEMBERSHIP, MEMBER = halves(SHADOWS), halves(1)[0]
SHADOW_OUTPUTS = memorising(MEMBERSHIP)


@cache
def trained() -> UntargetedAttack:
    return fit_untargeted(KEY, NETWORK, INPUTS, LABELS, SHADOW_OUTPUTS, MEMBERSHIP)


def scores(attack: Any, outputs: np.ndarray) -> np.ndarray:
    return untargeted_scores(attack, INPUTS, LABELS, outputs)


def test_examples_are_input_label_and_output_of_every_model_and_record():
    found = attack_examples(INPUTS, LABELS, SHADOW_OUTPUTS)
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
    assert np.array_equal(attack_examples(INPUTS.reshape(-1, 2, 2), LABELS, SHADOW_OUTPUTS), found)


def test_scores_are_the_networks_log_odds():
    outputs = memorising(MEMBER)
    layers: Any = nnx.to_pure_dict(trained().params.params)["layers"]
    hidden, output = (jax.tree.map(lambda leaf: np.asarray(leaf[0], np.float64), layers[i]) for i in (0, 1))
    assert hidden["kernel"].shape == (COLUMNS + 2 * CLASSES, 32)
    examples = attack_examples(INPUTS, LABELS, outputs[None]).astype(np.float64)
    logits = np.maximum(examples @ hidden["kernel"] + hidden["bias"], 0) @ output["kernel"] + output["bias"]
    np.testing.assert_allclose(scores(trained(), outputs), logits[:, 1] - logits[:, 0], rtol=1e-4, atol=1e-4)


def test_a_learner_that_memorises_is_found_out_and_a_constant_one_is_not():
    assert np.mean((scores(trained(), memorising(MEMBER)) > 0) == MEMBER) > 0.95
    attack = fit_untargeted(KEY, NETWORK, INPUTS, LABELS, constant(MEMBERSHIP), MEMBERSHIP)
    # As in the protocol: every target is attacked once in and once out, and gets the same answer.
    answers = scores(attack, constant(MEMBER)) > 0
    assert np.mean([answers == MEMBER, answers == ~MEMBER]) == 0.5
    assert np.isfinite(scores(attack, constant(MEMBER))).all()


# What is refused.


def test_what_does_not_match_is_refused(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    for inputs, labels, message in (
        (INPUTS[:9], LABELS, "120 records, but"),
        (INPUTS, LABELS[:9], "120 records, but"),
        (INPUTS, LABELS + 1, "but outputs have 3 classes"),
        (INPUTS, LABELS - 1, "but outputs have 3 classes"),
    ):
        with pytest.raises(InputError, match=message):
            attack_examples(inputs, labels, SHADOW_OUTPUTS)
    for membership, message in (
        (MEMBERSHIP[:5], r"^membership has shape \(5, 120\) but outputs are of 6 shadow models and 120"),
        (np.ones_like(MEMBERSHIP), "models were trained on all candidates or on none, so"),
        (np.zeros_like(MEMBERSHIP), "models were trained on all candidates or on none, so"),
    ):
        with pytest.raises(InputError, match=message):
            fit_untargeted(KEY, NETWORK, INPUTS, LABELS, SHADOW_OUTPUTS, membership)
    for bad, message in ((np.nan, "are NaN"), (9.0, "are above 0")):
        with pytest.raises(InputError, match=f"outputs of the shadow or attacked models {message}"):
            untargeted_scores(trained(), INPUTS, LABELS, SHADOW_OUTPUTS[0] + bad)

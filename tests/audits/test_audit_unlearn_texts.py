"""The unlearn audit of language models: each number by hand, and what texts do not have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.sequences import TEXTS, small_learner

from jaxaudit import sequences, word_tokenizer
from jaxaudit.audits import OF_TEXTS, UnlearnAudit, compare_unlearning
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkParams
from jaxaudit.metrics import Answers, challenge_score, u_lira
from jaxaudit.unlearning import scrub


class Summed(nnx.Module):
    """A language model that sees the sum of the tokens so far."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.embed, self.output = nnx.Embed(classes, 6, rngs=rngs), nnx.Linear(6, classes, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        return self.output(jnp.tanh(jnp.cumsum(self.embed(tokens), axis=1)))


KEY, SEEDS = jax.random.key(8), 16
TOKENIZER = word_tokenizer([TEXTS])
(WHOLE,) = sequences([TEXTS], TOKENIZER)
TRAIN, TEST = WHOLE.take(np.arange(4)), WHOLE.take(np.arange(4, 6))
FORGET = np.array([False, True, True, False])
LEARNER = small_learner(TRAIN.inputs.shape[1], TOKENIZER.vocabulary, Summed)


def moved(key, log_probs, params, inputs, labels, forget):
    return jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(key, leaf.shape), params)


@pytest.fixture(scope="module")
def audit() -> UnlearnAudit:
    call: dict[str, Any] = {"amnesiac": False, "seeds": SEEDS, "execution": Execution(SEEDS)}
    return compare_unlearning(KEY, TRAIN, TEST, LEARNER, FORGET, methods={"moved": moved}, **call)


outputs = jax.jit(LEARNER.log_probs)


def model(audit: UnlearnAudit, name: str, seed: int) -> NetworkParams:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[seed]), audit.models[name])


def likelihood(audit: UnlearnAudit, name: str, inputs: np.ndarray) -> np.ndarray:
    """Of each record, by each model."""
    models = [model(audit, name, seed) for seed in range(SEEDS)]
    return np.array([outputs(each, jnp.asarray(inputs))[:, 0] for each in models], np.float64)


def test_every_number_of_texts_by_hand(audit: UnlearnAudit):
    result, half = audit.result, SEEDS // 2
    assert [method.name for method in result.methods] == ["untrained", "original", "retraining", "moved"]
    assert result.protocol.p_value_threshold == pytest.approx(0.05 / 5)
    row = FORGET

    theirs = likelihood(audit, "retraining", TRAIN.inputs)[half:]
    for name in ("original", "retraining", "moved"):
        method, on_train = result[name], likelihood(audit, name, TRAIN.inputs)
        scores, on_test = method.scores, likelihood(audit, name, TEST.inputs)
        parts = (on_train[:, ~row], on_train[:, row], on_test)
        assert scores.keys() == {*OF_TEXTS, "information"}
        for score, values in zip(OF_TEXTS[2:], parts, strict=True):
            np.testing.assert_allclose(scores[score].values, values.mean(axis=1), rtol=1e-5)
        assert set(method.places) == (set() if name == "retraining" else set(OF_TEXTS))
        sides = [Answers(each[:, row], *[np.ones(len(each))] * 2) for each in (on_train[:half], theirs)]
        challenge, lira = challenge_score(KEY, *sides), u_lira(KEY, sides[0].log_odds, sides[1].log_odds)
        assert method.challenge is not None
        assert method.u_lira is not None
        np.testing.assert_allclose(method.challenge.epsilon, challenge.epsilon, rtol=1e-5)
        assert method.challenge.quality.value == pytest.approx(challenge.quality.value)
        assert (method.challenge.remaining_ratio, method.challenge.test_ratio, method.challenge.score) == (None,) * 3
        assert method.u_lira.value == pytest.approx(lira.accuracy.value)


def test_efficacy_is_of_the_mean_log_likelihood(audit: UnlearnAudit):
    params = model(audit, "moved", 3)

    @jax.jit
    def gradient(record: Any) -> Any:
        return jax.grad(lambda own: LEARNER.log_probs(NetworkParams(own, params.state), record[None])[0, 0])(
            params.params
        )

    each = [jax.tree.leaves(gradient(record)) for record in TRAIN.inputs[FORGET]]
    squares = [sum(float(np.sum(np.square(leaf))) for leaf in leaves) for leaves in each]
    assert audit.scores("moved", "information")[3] == pytest.approx(np.mean(squares), rel=1e-4)


def test_what_texts_do_not_have_is_refused_before_anything_is_trained():
    call: dict[str, Any] = {"amnesiac": False, "seeds": 2}
    classes = TRAIN.take(np.arange(4))
    with pytest.raises(InputError):
        compare_unlearning(KEY, TRAIN, TEST, LEARNER, FORGET, nonmembers=1, **call)
    with pytest.raises(InputError):
        compare_unlearning(KEY, TRAIN, TEST, LEARNER, FORGET, methods={"scrub": scrub}, **call)
    numbers = type(classes)(classes.inputs.astype(np.float32), classes.labels, ("a",), "numbers")
    with pytest.raises(InputError):
        compare_unlearning(KEY, numbers, TEST, LEARNER, FORGET, **call)

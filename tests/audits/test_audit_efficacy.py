"""Efficacy of what a network computes, and of models of sequences, beside a loop of gradients."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import special
from support.pure_modules import KEY, images

from jaxaudit import Examples
from jaxaudit.audits import EfficacyAudit, NamedWeights, measure_efficacy, measure_sequence_efficacy
from jaxaudit.audits.efficacy.audit import checked_labels
from jaxaudit.errors import InputError
from jaxaudit.kernels import SequenceLikelihood
from jaxaudit.models import GPT, MLP, PureModule, pure_module
from jaxaudit.models.bridge import Origin


class Probabilities(nnx.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int, *, rngs: nnx.Rngs) -> None:
        self.out = nnx.Linear(input_shape[0], classes, rngs=rngs)

    def __call__(self, inputs: Any) -> Any:
        return nnx.softmax(self.out(inputs))


@cache
def mlp() -> PureModule:
    return pure_module(MLP, (4,), 3)


def audited(net: PureModule, count: int = 6) -> EfficacyAudit:
    examples = Examples(images(count, 4), np.arange(count) % 3, ("a", "b", "c"), "records")
    return measure_efficacy(net, NamedWeights("judged", *jax.jit(net.init)(KEY)), examples)


def of_another(change: Callable[[np.ndarray], np.ndarray]) -> PureModule:
    """A network whose own framework has outputs that differ by this much from those in JAX."""
    net = mlp()

    def outputs(params: Any, state: Any, inputs: np.ndarray) -> np.ndarray:
        return change(np.array(net.apply(params, state, jnp.asarray(inputs), False)[0]))

    return net._replace(origin=Origin("torch", outputs))


def test_a_network_of_jax_is_compared_with_nothing_and_probabilities_are_no_logits():
    with pytest.raises(InputError, match="probabilities"):
        audited(pure_module(Probabilities, (4,), 3))
    found = audited(mlp())
    assert (found.result.framework, found.result.conversion_error) == ("flax.nnx", None)


def test_the_farthest_record_of_all_chunks_counts():
    """One record of the second chunk, relative to the root mean square norm of all."""
    seen: list[np.ndarray] = []

    def change(outputs: np.ndarray) -> np.ndarray:
        if seen:
            outputs[2, 0] += 1e-5
        seen.append(outputs)
        return outputs

    found = audited(of_another(change), 1029)
    whole = np.concatenate(seen).astype(np.float64)
    assert [len(each) for each in seen] == [1024, 5]
    wanted = 1e-5 / np.sqrt((whole**2).sum(axis=1).mean())
    assert found.result.conversion_error == pytest.approx(wanted, rel=0.02)


@pytest.mark.parametrize("shift", [1e-3, np.nan])
def test_another_function_is_refused(shift: float):
    """Beyond rounding; where JAX has no numbers and the framework has, too."""
    net = of_another(lambda outputs: outputs + (0 if np.isnan(shift) else shift * np.abs(outputs).max()))
    if np.isnan(shift):
        whole = net.apply
        net = net._replace(apply=lambda *args: (whole(*args)[0] * np.float32(np.nan), args[1]))
        net = net._replace(origin=Origin("torch", lambda params, state, inputs: np.ones((len(inputs), 3))))
    with pytest.raises(InputError, match="in JAX the outputs"):
        audited(net)


SEQUENCE = SequenceLikelihood()
LENGTH, TOKENS, N = 8, 23, 5


def records(length: int = LENGTH) -> np.ndarray:
    """Records of several lengths, whose first two tokens do not count."""
    draw, tokens = np.random.default_rng(1), np.full((N, length), ~0, np.int32)
    for row, each in enumerate(tokens):
        used = 4 + row % (LENGTH - 3)
        each[:used] = draw.integers(0, TOKENS, used)
        each[:2] = ~each[:2]
    return tokens


def gpt() -> tuple[Any, Any]:
    """The log-likelihood by the package's own model, and weights that are far from uniform."""
    factory = partial(GPT, depth=1, width=12, heads=2, tied=True)
    net = pure_module(factory, (LENGTH,), TOKENS, of_tokens=True)
    params, state = jax.jit(net.init)(jax.random.key(1))

    def log_likelihood(params: Any, tokens: Any) -> Any:
        logits = net.apply(params, state, jnp.where(tokens < 0, ~tokens, tokens), False)[0]
        return SEQUENCE.log_prob(logits, tokens)

    return log_likelihood, jax.tree.map(lambda leaf: 5 * leaf, params)


def plain(logits: Any, tokens: np.ndarray) -> Any:
    """The slow twin of the log-likelihood of one record: the sum over the tokens that count, one after another."""
    total = 0.0
    for place in range(1, len(tokens)):
        if tokens[place] >= 0:
            total += special.log_softmax(logits[place - 1])[tokens[place]]
    return total


def test_the_log_likelihood_is_a_sum_over_the_tokens_that_count():
    tokens, logits = records(), np.random.default_rng(3).normal(size=(N, LENGTH, TOKENS))
    expected = [float(plain(each, row)) for each, row in zip(logits, tokens, strict=True)]
    np.testing.assert_allclose(SEQUENCE.log_prob(jnp.asarray(logits), jnp.asarray(tokens)), expected, rtol=1e-5)
    shifted = logits.copy()
    shifted[:, :, 0] += 40  # a token that is all but certain keeps its rest
    certain = SEQUENCE.log_prob(jnp.asarray(shifted), jnp.zeros((N, LENGTH), jnp.int32))
    assert ((np.asarray(certain) < 0) & (np.asarray(certain) > -1e-12)).all()


def test_information_is_the_mean_squared_gradient_of_the_log_likelihood():
    """Of a network whose output layer is its embedding."""
    log_likelihood, params = gpt()
    tokens = records()
    found = measure_sequence_efficacy(log_likelihood, NamedWeights("mine", params, None), tokens, vocabulary=TOKENS)
    gradient = jax.jit(jax.grad(lambda params, row: log_likelihood(params, row[None])[0]))
    slow = [
        sum(float(np.sum(np.square(g))) for g in jax.tree.leaves(gradient(params, row))) for row in jnp.asarray(tokens)
    ]
    np.testing.assert_allclose(found.measured[0].per_example, slow, rtol=1e-4)
    (model,) = found.result.models
    assert model.information == pytest.approx(np.mean(slow), rel=1e-4)
    assert model.efficacy == pytest.approx(1 / np.mean(slow), rel=1e-4)
    assert model.mean_log_probability == pytest.approx(
        float(np.mean(jax.jit(log_likelihood)(params, tokens))), rel=1e-5
    )
    assert model.accuracy is None
    assert set(found.result.paths.values()) == {"contracted"}
    assert not any("output" in layer.split("/")[0] for layer in model.layers)
    assert (found.result.outputs, found.result.likelihood) == (TOKENS, "sequence")
    assert [record.class_name for record in found.result.records] == [""] * N
    assert list(found.columns) == ["index", "information of mine"]


def causal(params: Any, tokens: Any, base: Any) -> Any:
    """The log-likelihood of a small model that sees all tokens so far."""
    seen = jnp.cumsum(base["embedding"][jnp.maximum(tokens, ~tokens)], axis=1)
    return SEQUENCE.log_prob(jnp.tanh(seen * params["scale"]) @ params["output"], tokens)


def weights() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What is trained, and the base."""
    random = np.random.default_rng(4)
    trained = {"scale": np.ones(6), "output": random.normal(size=(6, TOKENS))}
    return trained, {"embedding": random.normal(size=(TOKENS, 6))}


def test_a_record_alone_has_the_number_that_it_has_beside_longer_ones():
    """In double precision, where rounding cannot hide a trace of what fills up."""
    with jax.enable_x64(True):
        mine = NamedWeights("mine", *jax.tree.map(jnp.asarray, weights()))
        beside = measure_sequence_efficacy(causal, mine, records(2 * LENGTH)).measured[0].per_example
        alone = measure_sequence_efficacy(causal, mine, records()[3:4, :7]).measured[0].per_example
        np.testing.assert_allclose(alone, beside[3], rtol=1e-10)


def test_what_is_constant_has_no_gradient():
    """The base below an adapter."""
    params, base = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), weights())
    found = measure_sequence_efficacy(causal, NamedWeights("adapter", params, base), records())
    gradient = jax.jit(jax.grad(lambda params, row: causal(params, row[None], base)[0]))
    each = [jax.tree.leaves(gradient(params, jnp.asarray(row))) for row in records()]
    slow = [sum(float(np.square(leaf).sum()) for leaf in leaves) for leaves in each]
    np.testing.assert_allclose(found.measured[0].per_example, slow, rtol=1e-4)
    assert found.result.paths.keys() == params.keys()


def test_weights_of_another_network_and_of_one_name_are_refused():
    def uniform(params: Any, tokens: Any) -> Any:
        return SEQUENCE.log_prob(jnp.broadcast_to(params["bias"], (*tokens.shape, 2)), tokens)

    tokens = np.array([[0, 1, 1]])
    mine, other, longer = (
        NamedWeights(name, {leaf: jnp.zeros(size)}, None)
        for name, leaf, size in (("mine", "bias", 2), ("other", "weight", 2), ("other", "bias", 3))
    )
    with pytest.raises(InputError, match=r"`names_of_weights` .* got 'mine' twice"):
        measure_sequence_efficacy(uniform, mine, tokens, references=[mine])
    for each in (other, longer):
        with pytest.raises(InputError, match="another architecture"):
            measure_sequence_efficacy(uniform, mine, tokens, references=[each])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 3]), "no classes of a network with 3 outputs"),
        (np.array([0.5, 1]), "are no classes"),
        (np.array([np.nan, 1]), "are no classes"),
        (np.array([[0, 1]]), "are no classes"),
    ],
)
def test_labels_that_are_no_classes(labels: np.ndarray, message: str):
    with pytest.raises(InputError, match=message):
        checked_labels(labels, 3, "records")

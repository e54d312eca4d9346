"""Methods for language models: each against a loop over records by its gradient's formula, on a tiny GPT."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.forgetters import Adam, combined, passed
from support.sequences import SMALL, TEXTS, small_learner

from jaxaudit import sequences, word_tokenizer
from jaxaudit.errors import InputError
from jaxaudit.learners import NetworkParams
from jaxaudit.models import MLP, hidden_states, pure_module
from jaxaudit.randomness import stream
from jaxaudit.unlearning import (
    Recipe,
    becker_code,
    forget_by_noise,
    golatkar,
    gradient_difference,
    npo,
    rmu,
    scrub,
    sim_npo,
)

KEY = jax.random.key(5)
TOKENIZER = word_tokenizer([TEXTS])
INPUTS = sequences([TEXTS], TOKENIZER)[0].inputs
FORGET = np.isin(np.arange(len(INPUTS)), [1, 3, 4])
LABELS = np.zeros(len(INPUTS), np.int32)
FACTORY = partial(SMALL, depth=1)
LEARNER = small_learner(INPUTS.shape[1], TOKENIZER.vocabulary, FACTORY)
PARAMS, STATE = jax.jit(LEARNER.net.init)(jax.random.key(6))
PARAMS = jax.tree.map(np.asarray, PARAMS)  # so that no sum of leaves is a program
RATE, BATCH, EPOCHS = 0.02, 2, 3
TRAINED: dict[str, Any] = {"epochs": EPOCHS, "learning_rate": RATE, "batch_size": BATCH}
HIDDEN = hidden_states(LEARNER.net)
METHODS: dict[str, Any] = {
    "gradient difference": partial(gradient_difference, gamma=0.5, recipe=Recipe(**TRAINED)),
    "NPO": partial(npo, beta=0.3, recipe=Recipe(alpha=0.5, **TRAINED)),
    "SimNPO": partial(sim_npo, beta=2.0, delta=0.5, gamma=0.7, recipe=Recipe(**TRAINED)),
    "RMU": partial(rmu, hidden=HIDDEN, coefficient=3.0, recipe=Recipe(alpha=0.5, **TRAINED)),
}


def log_probs(params: Any, inputs: Any) -> Any:
    return LEARNER.log_probs(NetworkParams(params, STATE), inputs)


@cache
def compiled(name: str) -> Any:
    method = METHODS[name]
    records = jnp.asarray(INPUTS), jnp.asarray(LABELS)
    return jax.jit(lambda key, params, forget: method(key, log_probs, params, *records, forget))


def plain(record: Any) -> Any:
    return jnp.where(record < 0, -1 - record, record)


@jax.jit
def slope_of(params: Any, record: Any) -> Any:
    """The sum of the log-likelihoods of a record's tokens that count, and its gradient."""

    def summed(params: Any) -> Any:
        said = jax.nn.log_softmax(LEARNER.net.apply(params, STATE, plain(record)[None], False)[0][0])
        own = jnp.take_along_axis(said[:-1], jnp.maximum(record[1:, None], 0), axis=1)[:, 0]
        return jnp.sum(own, where=record[1:] >= 0)

    return jax.value_and_grad(summed)(params)


def summed(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: sum(map(np.asarray, leaves)), *trees)


def by_adamw(gradient_at: Any) -> Any:
    """With `gradient_at(params, forgotten, remaining)` of every step."""
    params, adam = PARAMS, Adam(PARAMS, decay=0.01)
    for epoch in range(EPOCHS):
        remaining = passed(stream(KEY, "pass"), epoch, ~FORGET, BATCH)
        for place, forgotten in enumerate(passed(stream(KEY, "forget"), epoch, FORGET, BATCH)):
            params = adam.step(params, gradient_at(params, forgotten, remaining[place % len(remaining)]), RATE)
    return params


def by_likelihoods(pull: Any, gamma: float, alpha: float) -> Any:
    """`pull(sum, original sum, tokens)`: the derivative of F by the record's summed log-likelihood."""

    def gradient_at(params: Any, forgotten: Any, remaining: Any) -> Any:
        parts = []
        for record in forgotten:
            (own, slope), (original, _) = (slope_of(each, INPUTS[record]) for each in (params, PARAMS))
            tokens = sum(token >= 0 for token in INPUTS[record][1:])
            weight = gamma * pull(float(own), float(original), tokens) / len(forgotten)
            parts.append(combined((weight,), jax.tree.map(np.asarray, slope)))
        for record in remaining:
            tokens = sum(token >= 0 for token in INPUTS[record][1:])
            slope = jax.tree.map(np.asarray, slope_of(params, INPUTS[record])[1])
            parts.append(combined((-alpha / tokens / len(remaining),), slope))
        return summed(parts)

    return by_adamw(gradient_at)


def sigmoid(x: float) -> float:
    return 1 / (1 + np.exp(-x))


def merged(factory: Any, params: Any) -> Any:
    """The module with these parameters."""
    graph, _, rest = nnx.split(factory((INPUTS.shape[1],), TOKENIZER.vocabulary, rngs=nnx.Rngs(0)), nnx.Param, ...)
    return nnx.merge(graph, params, rest)


@partial(jax.jit, static_argnames="factory")
def first_block(params: Any, record: Any, factory: Any = FACTORY) -> Any:
    """What the first block gives, by the layers of the module."""
    net = merged(factory, params)
    vectors = net.tokens[...][plain(record)] + net.positions[...][: INPUTS.shape[1]]
    return net.blocks[0](vectors[None], lambda given: given)[0]


def misdirected(coefficient: float, gamma: float, alpha: float) -> Any:
    direction = np.asarray(jax.random.uniform(stream(KEY, "direction"), (8,)))
    target = coefficient * direction / np.sqrt((direction**2).sum())

    @jax.jit
    def moved(params: Any, record: Any, wanted: Any) -> Any:
        def loss(params: Any) -> Any:
            return jnp.mean(jnp.mean((first_block(params, record) - wanted) ** 2, axis=1), where=record >= 0)

        return jax.grad(loss)(params)

    def gradient_at(params: Any, forgotten: Any, remaining: Any) -> Any:
        if params is PARAMS:
            remaining = remaining[:0]  # Nothing moved yet: 0 but for rounding.
        away = [moved(params, INPUTS[each], np.tile(target, (INPUTS.shape[1], 1))) for each in forgotten]
        kept = [moved(params, INPUTS[each], first_block(PARAMS, INPUTS[each])) for each in remaining]
        weights = [gamma / len(away)] * len(away) + [alpha / max(1, len(kept))] * len(kept)
        return combined(tuple(weights), *jax.tree.map(np.asarray, away + kept))

    return by_adamw(gradient_at)


TWINS: dict[str, Any] = {
    "gradient difference": partial(by_likelihoods, lambda own, original, tokens: 1 / tokens, 0.5, 1.0),
    "NPO": partial(by_likelihoods, lambda own, original, tokens: 2 * sigmoid(0.3 * (own - original)), 1.0, 0.5),
    "SimNPO": partial(
        by_likelihoods, lambda own, original, tokens: 2 * sigmoid(2.0 * (own / tokens + 0.5)) / tokens, 0.7, 1.0
    ),
    "RMU": partial(misdirected, 3.0, 1.0, 0.5),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_for_language_models_is_its_formula(name: str):
    found, twin = compiled(name)(KEY, PARAMS, FORGET), TWINS[name]()
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(twin), strict=True):
        # Adam divides by the gradient's size, and so stretches the rounding of gradients near 0.
        np.testing.assert_allclose(mine, theirs, atol=1e-3)
        assert np.mean(np.abs(mine - theirs) > 2e-5) < 0.02


def test_hidden_states_are_the_named_ones():
    learner, asked = small_learner(INPUTS.shape[1], TOKENIZER.vocabulary), jnp.asarray(INPUTS)
    middle, named, last = (hidden_states(learner.net, name) for name in (None, "block 1", "block 2"))

    @jax.jit
    def all_ways(params: Any) -> Any:
        first = jax.vmap(lambda record: first_block(params, record, SMALL))(asked)
        second = merged(SMALL, params).blocks[1](first, lambda each: each)
        moved = jax.grad(lambda params: middle(params, asked).sum())(params)
        half = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf / 2]), params)
        both = jax.vmap(middle, in_axes=(0, None))(half, asked)
        alike = middle(params, asked), named(params, asked), both[0]
        return first, alike, second, last(params, asked), moved["blocks"]

    first, alike, second, found, moved = all_ways(jax.jit(learner.net.init)(jax.random.key(6))[0])
    for states in alike:
        np.testing.assert_allclose(states, first, atol=1e-5)
    np.testing.assert_allclose(found, second, atol=1e-5)
    # What lies behind the states is of no effect on them.
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(moved[1]))
    assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(moved[0]))
    for net, given, name in ((learner.net, asked, "block 3"), (pure_module(MLP, (4,), 3), jnp.zeros((2, 4)), None)):
        with pytest.raises(InputError):
            jax.eval_shape(hidden_states(net, name), jax.eval_shape(net.init, KEY)[0], given)


@pytest.mark.parametrize(
    "method",
    [
        partial(gradient_difference, gamma=-1.0),
        partial(npo, recipe=Recipe(alpha=float("nan"))),
        partial(sim_npo, beta=float("inf")),
        partial(rmu, hidden=HIDDEN, coefficient=-1.0),
        scrub,
        partial(forget_by_noise, noise=golatkar),
        partial(forget_by_noise, noise=becker_code),
    ],
)
def test_what_texts_do_not_allow_and_numbers_out_of_range_are_refused(method: Any):
    with pytest.raises(InputError):
        jax.eval_shape(partial(method, KEY, log_probs), PARAMS, INPUTS, LABELS, FORGET)
    with pytest.raises(InputError):  # records without tokens
        jax.eval_shape(partial(METHODS["RMU"], KEY, log_probs), PARAMS, np.float32(INPUTS), LABELS, FORGET)

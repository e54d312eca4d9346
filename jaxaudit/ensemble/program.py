"""The compiled part of training: a chunk of models takes a block of steps in one call."""

from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Real

from jaxaudit.learners.batch_order import epoch_bits, init_key
from jaxaudit.learners.learner import Moment, SteppedLearner
from jaxaudit.learners.stepped import moment_of, take_step
from jaxaudit.randomness import RUN_ONCE

DISPATCH = Lock()
"""Held while a program is compiled and started (not while it runs), so that no two threads compile the same one."""

LEAST_WORDS = 512
"""At least so many random words are drawn, since that takes less time than starting the program."""


@partial(jax.jit, static_argnames="learner", compiler_options=RUN_ONCE)
def init_chunk(learner: SteppedLearner, keys: Key[Array, " models"]) -> Any:
    """Training states of a chunk, with a leading `models` axis."""
    return jax.vmap(lambda key: learner.init(init_key(key)))(keys)


def chunk_bits(keys: Key[Array, " models"], epoch: int, count: int, *, shared: bool = False) -> np.ndarray:
    """The random words of one epoch for every model of a chunk; if all share a key, only those of the first.

    The number of drawn words is rounded up to a power of two, so that few programs are compiled.
    """
    drawn = 1 << max(count - 1, LEAST_WORDS - 1).bit_length()
    return np.asarray(_chunk_bits(keys, epoch, drawn, shared))[:, :count]


@partial(jax.jit, static_argnames=("count", "shared"))
def _chunk_bits(keys: Key[Array, " models"], epoch: int | Int[Array, ""], count: int, shared: bool) -> Array:
    return jax.vmap(lambda key: epoch_bits(key, epoch, count))(keys[:1] if shared else keys)


def run_block(
    learner: SteppedLearner,
    states: Any,
    keys: Key[Array, " models"],
    inputs: Real[Array, "examples ..."],
    labels: Int[Array, " examples"],
    indices: Int[Array, "block models batch"] | Int[Array, "block batch"],
    weights: Float[Array, "block models batch"],
    steps: int,
    shared: bool,
    uneven: bool,
    start: int = 0,
    epoch: int = 0,
    before: int = 0,
) -> Any:
    """The states after `steps` minibatches of a block, from index `start`; the memory of `states` is reused.

    The block belongs to epoch `epoch` and follows the first `before` steps of it. One compiled program serves all
    values of `start` and `steps`.
    """
    when = (keys, epoch, before)
    return _run_block(learner, states, when, inputs, labels, indices, weights, start, start + steps, shared, uneven)


@partial(jax.jit, static_argnames=("learner", "shared", "uneven"), donate_argnames="states")
def _run_block(
    learner: SteppedLearner,
    states: Any,
    when: tuple[Key[Array, " models"], int | Int[Array, ""], int | Int[Array, ""]],
    inputs: Real[Array, "examples ..."],
    labels: Int[Array, " examples"],
    indices: Int[Array, "block models batch"] | Int[Array, "block batch"],
    weights: Float[Array, "block models batch"],
    start: int | Int[Array, ""],
    stop: int | Int[Array, ""],
    shared: bool,
    uneven: bool,
) -> Any:
    drop_axis, add_axis = partial(jax.tree.map, lambda x: x[0]), partial(jax.tree.map, lambda x: x[None])
    keys, epoch, before = when

    def step(state: Any, chosen: Any, weight: Array, moment: Moment) -> Any:
        batch_inputs, batch_labels = chosen if shared else (inputs[chosen], labels[chosen])
        new = take_step(learner, state, batch_inputs, batch_labels, weight, moment)
        if not uneven:
            return new
        taken = jnp.any(weight > 0)
        return jax.tree.map(lambda old, now: jnp.where(taken, now, old), state, new)

    def body(index: Array, states: Any) -> Any:
        chosen = indices[index]
        moments = jax.vmap(lambda key: moment_of(key, epoch, before + index))(keys)
        if weights.shape[1] == 1:
            # Products with a models axis of length one are compiled to slower code than without the axis.
            batch = (inputs[chosen], labels[chosen]) if shared else chosen[0]
            return add_axis(step(drop_axis(states), batch, weights[index, 0], drop_axis(moments)))
        if shared:
            batch = inputs[chosen], labels[chosen]
            if jax.default_backend() != "cpu":
                return jax.vmap(step, in_axes=(0, None, 0, 0))(states, batch, weights[index], moments)
            # One product for all models would transpose every model's first kernel in every step.
            chosen = jax.tree.map(lambda x: jnp.broadcast_to(x, (weights.shape[1], *x.shape)), batch)
        return jax.vmap(step)(states, chosen, weights[index], moments)

    return jax.lax.fori_loop(start, stop, body, states)

"""The compiled part of training: a chunk of models takes a block of steps in one call, on all local devices."""

from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key, Real, UInt32

from jaxaudit.learners.learner import Moment, SteppedLearner, compiled, epoch_bits, init_key, moment_of, take_step
from jaxaudit.randomness import RUN_ONCE

DISPATCH = Lock()
"""Held while a program is compiled and started (not while it runs), so that no two threads compile the same one."""

LEAST_WORDS = 512
"""At least so many random words are drawn, since that takes less time than starting the program."""

When = tuple[Key[Array, "*models"], int | Int[Array, ""], int | Int[Array, ""]]
"""The models' keys, an epoch, and a number of steps within the epoch."""


def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), ("models",))


def place_models(tree: Any, axis: int = 0) -> Any:
    """Puts `tree` on the devices, with its models axis split evenly over them."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec(*[None] * axis, "models")))


def place_pool(tree: Any) -> Any:
    """Puts a copy of `tree` on every device."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec()))


@partial(jax.jit, static_argnames="learner", compiler_options=RUN_ONCE)
def init_chunk(learner: SteppedLearner, keys: Key[Array, " models"]) -> Any:
    """Training states of a chunk, with a leading `models` axis."""
    return jax.vmap(lambda key: learner.init(init_key(key)))(keys)


def chunk_bits(keys: Key[Array, " models"], epoch: int, count: int, *, shared: bool = False) -> UInt32[Array, "m n"]:
    """At least `count` random words of one epoch for every model of a chunk, or for the first if all share a key: a
    power of two, so that few programs are compiled. Returns at once.
    """
    return _chunk_bits(keys, epoch, 1 << max(count - 1, LEAST_WORDS - 1).bit_length(), shared)


@partial(jax.jit, static_argnames=("count", "shared"))
def _chunk_bits(keys: Key[Array, " models"], epoch: int | Int[Array, ""], count: int, shared: bool) -> Array:
    return jax.vmap(lambda key: epoch_bits(key, epoch, count))(keys[:1] if shared else keys)


@compiled("shared", "uneven", donate_argnames="states")
def run_block(
    learner: SteppedLearner,
    states: Any,
    when: When,
    inputs: Real[Array, "examples ..."],
    labels: Int[Array, " examples"],
    indices: Int[Array, "block models batch"] | Int[Array, "block batch"],
    weights: Float[Array, "block models batch"],
    start: int | Int[Array, ""],
    stop: int | Int[Array, ""],
    shared: bool,
    uneven: bool,
) -> Any:
    """The states after the minibatches `start` to `stop` of a block (`StepBlock`); the memory of `states` is reused.
    One program serves all values of `start`, `stop` and the numbers in `when`. `uneven`: a minibatch without weights
    must leave a model unchanged.
    """
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

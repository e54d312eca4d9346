"""The compiled part of training: a chunk of models takes a block of steps in one call, on all local devices."""

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Key, Real, UInt32

from jaxaudit.learners.learner import Moment, SteppedLearner, ValidatedLearner
from jaxaudit.learners.stepped import compiled, epoch_bits, held_back, held_back_bits, init_key, moment_of, take_step
from jaxaudit.membership import AllBut, Membership, member_counts
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


EpochEnd = Callable[[Any], tuple[Any, bool]]
"""`epoch_end(states)`: the training states of a chunk after validating an epoch, and whether all models stopped."""


def held_back_rows(
    learner: SteppedLearner, keys: Key[Array, " models"], membership: Membership | AllBut
) -> Bool[np.ndarray, "models examples"] | None:
    """The records that each model holds back; None for a learner that does not validate."""
    if not isinstance(learner, ValidatedLearner):
        return None
    held_mask = np.zeros(membership.shape, bool)
    most = int(member_counts(membership).max())
    for key, row, held in zip(keys, membership[:], held_mask, strict=True):
        members = np.flatnonzero(row)
        held[held_back(np.asarray(_bits(key, most))[: len(members)], members, learner.validation)] = True
    return held_mask


def epoch_end(
    learner: SteppedLearner, held: Bool[np.ndarray, "models examples"] | None, pool: tuple[Array, Array]
) -> EpochEnd | None:
    """The function that validates a chunk's models after each epoch; None for a learner that does not validate. Shapes
    of its program depend only on the chunk's size, so a model's loss is the same bit for bit, whatever the others hold
    back.
    """
    if held is None or not isinstance(learner, ValidatedLearner):
        return None
    batches = [(place_models(chosen), place_models(real)) for chosen, real in _batches(held, learner.batch_size)]
    counts = place_models(held.sum(axis=1).astype(np.float32))

    def end(states: Any) -> tuple[Any, bool]:
        sums = place_models(np.zeros(len(held), np.float32))
        for chosen, real in batches:
            with DISPATCH:
                sums = _added(learner, sums, states, *pool, chosen, real)
        with DISPATCH:
            states, finished = _judged(learner, states, sums / counts)
        return states, bool(np.asarray(finished).all())

    return end


def _batches(held: np.ndarray, batch_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Record indices `[models, batch]` of each minibatch, and which of them are real."""
    steps = -(-int(held.sum(axis=1).max()) // batch_size)
    positions = np.arange(steps * batch_size)
    indices = np.zeros((len(held), len(positions)), np.int32)
    for row, held_rows in zip(indices, map(np.flatnonzero, held), strict=True):
        if len(held_rows):
            row[:] = held_rows[positions % len(held_rows)]
    real = positions < held.sum(axis=1)[:, None]
    return [
        (indices[:, start : start + batch_size], real[:, start : start + batch_size])
        for start in range(0, len(positions), batch_size)
    ]


_bits = jax.jit(held_back_bits, static_argnames="count")


@compiled(donate_argnames="sums")
def _added(
    learner: ValidatedLearner,
    sums: Float[Array, " models"],
    states: Any,
    inputs: Array,
    labels: Array,
    chosen: Int[Array, "models batch"],
    real: Bool[Array, "models batch"],
) -> Float[Array, " models"]:
    losses = jax.vmap(lambda state, rows: learner.losses(state, inputs[rows], labels[rows]))(states, chosen)
    return sums + jnp.sum(jnp.where(real, losses, 0), axis=1)


@partial(jax.jit, static_argnames="learner", donate_argnames="states")
def _judged(learner: ValidatedLearner, states: Any, losses: Float[Array, " models"]) -> tuple[Any, Any]:
    judged = jax.vmap(learner.judged)(states, losses)
    return judged, jax.vmap(learner.finished)(judged)

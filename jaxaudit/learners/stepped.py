"""Trains one model by a learner's own steps, in an order that follows from its key and membership mask (row).

A step's random key is a function of the model's key, the epoch and the step's number. So neither a chunk nor a
neighbour changes a model. A row that leaves out at most a tenth of the pool takes *pool order*: every epoch is a
permutation of the whole pool, where non-members have weight 0, so two such rows with one key differ only by the
left-out records. Every other row, and every row of a batch-coupled learner, takes *own order*: a permutation of
its members, the last minibatch padded with members at weight 0.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from jaxaudit.learners.learner import (
    Inputs,
    Labels,
    Moment,
    SteppedLearner,
    TrainState,
    Weights,
)


def compiled(*static: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`jax.jit` for a function of a `learner`, its first, static argument, and of arrays. The arrays that all models of
    a learner share (`Shared`) become arguments of the program: constants would be copied into every program.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        @partial(jax.jit, static_argnames=("learner", *static), **options)
        @wraps(function)
        def program(learner: Any, *args: Any, shared_arrays: Any = None, **keywords: Any) -> Any:
            return function(learner if shared_arrays is None else learner.having(shared_arrays), *args, **keywords)

        @wraps(function)
        def called(learner: Any, *args: Any, **keywords: Any) -> Any:
            return program(learner, *args, shared_arrays=getattr(learner, "shared", None), **keywords)

        def lower(learner: Any, *args: Any, **keywords: Any) -> Any:
            return program.lower(learner, *args, shared_arrays=getattr(learner, "shared", None), **keywords)

        cast(Any, called).lower = lower
        return called

    return decorated


def moment_of(key: Key[Array, ""], epoch: int | Int[Array, ""], step: int | Int[Array, ""]) -> Moment:
    """The `Moment` of a step of the model with this key; can be traced."""
    return Moment(jnp.asarray(epoch, jnp.int32), step_key(key, epoch, step))


def take_step(
    learner: SteppedLearner, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights, moment: Moment
) -> TrainState:
    """The training state after one step of `learner` on this minibatch, at this moment (epoch and random key)."""
    return learner.step(state._replace(moment=moment), inputs, labels, weights)._replace(moment=None)


def train_by_steps(
    learner: SteppedLearner, key: Key[Array, ""], inputs: Inputs, labels: Labels, weights: Weights
) -> TrainState:
    """The training state after all epochs, in the batch order that key and members (of a weight above 0) determine; can
    be traced.
    """

    member = weights > 0

    def epoch(index: Array, state: TrainState) -> TrainState:
        bits = epoch_bits(key, index, len(labels))
        batches = traced_batches(bits, member, learner.batch_size, learner.batch_coupled)

        def take(state: TrainState, batch: tuple[Array, Array, Array]) -> tuple[TrainState, None]:
            chosen, weight, step = batch
            moment = moment_of(key, index, step)
            new = take_step(learner, state, inputs[chosen], labels[chosen], weight, moment)
            return jax.tree.map(lambda old, now: jnp.where(jnp.any(weight > 0), now, old), state, new), None

        return jax.lax.scan(take, state, (*batches, jnp.arange(len(batches[0]))))[0]

    return jax.lax.fori_loop(0, learner.epochs, epoch, learner.init(init_key(key)))


class TrainsBySteps:
    """Base class of a `SteppedLearner`: derives `step` and `fit` from `gradient` and `update`."""

    kind = "a neural network"

    def step(self: SteppedLearner, state: TrainState, inputs: Inputs, labels: Labels, weights: Weights) -> TrainState:
        return self.update(state, *self.gradient(state, inputs, labels, weights))

    def fit(self: SteppedLearner, key: Key[Array, ""], inputs: Inputs, labels: Labels, weights: Weights) -> Any:
        return self.finish(train_by_steps(self, key, inputs, labels, weights))


POOL_ORDER_SHARE = 0.9


def takes_pool_order(members: Any, examples: int, batch_coupled: bool) -> Any:
    """Whether rows with these numbers of members take minibatches in the pool order (elementwise)."""
    return (members >= POOL_ORDER_SHARE * examples) & (not batch_coupled)


def init_key(key: Key[Array, ""]) -> Key[Array, ""]:
    return jax.random.fold_in(key, 0)


def epoch_bits(key: Key[Array, ""], epoch: int | Int[Array, ""], count: int) -> UInt32[Array, " count"]:
    """Random words, whose ranks are the order of records in an epoch; a shorter draw is a prefix of a longer one."""
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, 1), epoch), (count,))


def step_key(key: Key[Array, ""], epoch: int | Int[Array, ""], step: int | Int[Array, ""]) -> Key[Array, ""]:
    """The random key of a step, from its number within the epoch. Steps without records have numbers, too."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, 2), epoch), step)


def pool_batches(
    bits: UInt32[np.ndarray, " examples"], batch_size: int
) -> tuple[Int[np.ndarray, "steps batch"], Float[np.ndarray, "steps batch"]]:
    """Record indices of an epoch's minibatches in the pool order, and their weights: 0 for padding of the last one."""
    return _fill(np.argsort(bits, kind="stable"), batch_size)


def own_batches(
    bits: UInt32[np.ndarray, " members"], members: Int[np.ndarray, " members"], batch_size: int
) -> tuple[Int[np.ndarray, "steps batch"], Float[np.ndarray, "steps batch"]]:
    """Record indices of an epoch's minibatches in a row's own order, and weights: 0 for padding of the last one."""
    return _fill(members[np.argsort(bits, kind="stable")], batch_size)


def _fill(order: np.ndarray, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    steps = -(-len(order) // batch_size)
    places = np.arange(steps * batch_size)
    indices = order[places % max(len(order), 1)].astype(np.int32)
    real = (places < len(order)).astype(np.float32)
    return indices.reshape(steps, batch_size), real.reshape(steps, batch_size)


def traced_batches(
    bits: UInt32[Array, " examples"], member: Bool[Array, " examples"], batch_size: int, batch_coupled: bool
) -> tuple[Int[Array, "steps batch"], Float[Array, "steps batch"]]:
    """`pool_batches` or `own_batches` in a traced program, which does not know the members: there are as many
    minibatches as all records need; further ones have weights of 0.
    """
    examples = member.shape[0]
    members = jnp.sum(member)
    own_order = _own_order(bits, member)
    pool = takes_pool_order(members, examples, batch_coupled)
    order = jnp.where(pool, jnp.argsort(bits, stable=True), own_order)
    count = jnp.where(pool, examples, members)
    places = jnp.arange(-(-examples // batch_size) * batch_size)
    indices = order[places % jnp.maximum(count, 1)]
    weights = jnp.where((places < count) & member[indices], 1.0, 0.0)
    return indices.reshape(-1, batch_size), weights.reshape(-1, batch_size)


def _own_order(bits: UInt32[Array, " examples"], member: Bool[Array, " examples"]) -> Int[Array, " examples"]:
    """Record indices with the members first, ordered by their random words; non-members' words have no effect."""
    rank = jnp.maximum(jnp.cumsum(member) - 1, 0)
    return jnp.lexsort((bits[rank], ~member))

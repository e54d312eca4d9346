"""The order of a model's minibatches, and the keys of its steps: pure functions of its key and its membership mask.

There are two batch orders. The membership mask ("row") of a model decides which one it has:

- *pool order*, for rows that leave out at most a tenth of the pool (leave-one-out, for example): every epoch is a
  permutation of the whole pool, and records that are not members have weight 0. Two rows with the same key then have
  the same minibatches and differ only by the left-out records (common random numbers).
- *own order*, for every other row, and for every row of a batch-coupled learner: every epoch is a permutation of the
  row's members. The last minibatch is padded with records from the start of the epoch, at weight 0, so that only
  members are used.

A learner that validates (`ValidatedLearner`) takes minibatches of the members that are not held back, in own order.

A model is a function of its key and its row. This module fixes the order of minibatches from these two alone, so a
chunk, its size or a neighbour never changes the order. A network is batch-coupled if its records touch one another in a
batch (batch normalisation). Its short batches are filled with members, so a left-out record leaves no trace, not even
in a running mean.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

POOL_ORDER_SHARE = 0.9


def takes_pool_order(members: Any, examples: int, batch_coupled: bool) -> Any:
    """Whether rows with these numbers of members take minibatches in the pool order (elementwise)."""
    return (members >= POOL_ORDER_SHARE * examples) & (not batch_coupled)


def init_key(key: Key[Array, ""]) -> Key[Array, ""]:
    """The key of a model's initialisation."""
    return jax.random.fold_in(key, 0)


def epoch_bits(key: Key[Array, ""], epoch: int | Int[Array, ""], count: int) -> UInt32[Array, " count"]:
    """Random words, whose ranks are the order of records in an epoch; a shorter draw is a prefix of a longer one."""
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, 1), epoch), (count,))


def step_key(key: Key[Array, ""], epoch: int | Int[Array, ""], step: int | Int[Array, ""]) -> Key[Array, ""]:
    """The random key of a step, from its number within the epoch. Steps without records have numbers, too."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, 2), epoch), step)


def held_back_bits(key: Key[Array, ""], count: int) -> UInt32[Array, " count"]:
    """Random words for a row's members: those with the smallest are held back. Shorter draws are prefixes."""
    return jax.random.bits(jax.random.fold_in(key, 3), (count,))


def held_back_counts(examples: int, share: float) -> Int[np.ndarray, " counts"]:
    """How many records a model with 0, 1, ..., `examples` members holds back: at least one, and not all.

    >>> held_back_counts(12, 0.25).tolist()
    [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3]
    """
    members = np.arange(examples + 1)
    return np.maximum(np.minimum(np.maximum(np.rint(share * members), 1), members - 1), 0).astype(np.int32)


def held_back(
    bits: UInt32[np.ndarray, " members"], members: Int[np.ndarray, " members"], share: float
) -> Int[np.ndarray, " held"]:
    """The members of a row that are held back to validate, in ascending order."""
    count = held_back_counts(len(members), share)[-1]
    return np.sort(members[np.argsort(bits, kind="stable")[:count]])


def traced_held_back(
    bits: UInt32[Array, " examples"], member: Bool[Array, " examples"], share: float
) -> Bool[Array, " examples"]:
    """`held_back` in a traced program, where the row is not known in advance."""
    count = jnp.asarray(held_back_counts(member.shape[0], share))[jnp.sum(member)]
    own_order = _own_order(bits, member)
    return jnp.zeros_like(member).at[own_order].set(jnp.arange(member.shape[0]) < count)


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
    """The minibatches of `pool_batches` or `own_batches` in a traced program, where the members are not known.

    There are as many as all records need; further ones have weights of 0.

    Args:
        bits: the random word of each record, which orders the records.
        member: marks the records to train on.
        batch_size: records per minibatch.
        batch_coupled: whether minibatches must contain members only; see `SteppedLearner`.

    Returns:
        The indices of each minibatch's records, and their weights.
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

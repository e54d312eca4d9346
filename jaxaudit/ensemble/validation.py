"""Validation after each epoch: the models' losses on the records that they hold back."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.ensemble.program import DISPATCH, place_models
from jaxaudit.learners.batch_order import held_back, held_back_bits
from jaxaudit.learners.learner import SteppedLearner, ValidatedLearner
from jaxaudit.learners.stepped import compiled
from jaxaudit.membership import AllBut, Membership, member_counts

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
    """The function that validates a chunk's models after each epoch; None for a learner that does not validate.

    Losses are added one minibatch at a time, in a program whose shapes depend only on the size of the chunk. So a
    model's loss is the same bit for bit, however many records the chunk's other models hold back.

    Args:
        learner: model and training recipe.
        held: the records that each model of the chunk holds back.
        pool: inputs and labels.
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

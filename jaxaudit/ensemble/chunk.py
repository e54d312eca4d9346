"""A chunk of models: the inputs that determine them, and their training, in this process or in a worker."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from jaxaudit.ensemble.batches import StepBlock, blocks_after, place_block
from jaxaudit.ensemble.concurrency import NeighbourFailed, ahead
from jaxaudit.ensemble.host_program import steps_from_host, train_from_host
from jaxaudit.ensemble.plan import ChunkGroup
from jaxaudit.ensemble.program import DISPATCH, init_chunk, place_models, run_block
from jaxaudit.ensemble.training_state import StateKeeper, UnderWay
from jaxaudit.ensemble.validation import EpochEnd, epoch_end
from jaxaudit.learners.learner import Learner, SteppedLearner, TrainState
from jaxaudit.learners.left_out import LeftOutModels
from jaxaudit.membership import AllBut, Membership

FIRST_STEPS = 8
"""Most steps in the first call of the compiled program; each later call may take twice as many as the one before."""
CALL_SECONDS = 5.0
"""Target duration of a call. Progress, interrupts and checkpoints are handled between calls."""


class Chunk(NamedTuple):
    """The inputs that, with the learner and the pool, determine a chunk's models.

    Attributes:
        rows: the models' row numbers in the membership; copies that pad the chunk repeat a number.
        keys: each model's random key.
        membership: each model's membership mask, without the records in `held`.
        held: the records that each model holds back to validate; None for a learner that does not validate.
        group: how the models take their steps together; None for a learner without steps.
    """

    rows: Int[np.ndarray, " models"]
    keys: Key[Array, " models"]
    membership: Membership | AllBut
    held: Bool[np.ndarray, "models examples"] | None
    group: ChunkGroup | None


def train_chunk(
    learner: Learner,
    chunk: Chunk,
    pool: tuple[Array, Array],
    advance: Callable[[int], None],
    keeper: StateKeeper,
) -> Any:
    """The parameters of a chunk's models, with a leading `models` axis, on this process's devices.

    Args:
        learner: model and training recipe.
        chunk: the models to train.
        pool: inputs and labels, on the devices.
        advance: called with the number of model-steps taken since the last call, for a learner with steps.
        keeper: saves the training state, for a learner with steps.
    """
    group = chunk.group
    if isinstance(learner, LeftOutModels):
        assert isinstance(chunk.membership, AllBut)
        return learner.outputs(chunk.keys[0], pool, chunk.membership.left_out)
    if group is None or not isinstance(learner, SteppedLearner):
        weights = place_models(chunk.membership[:].astype(np.float32))
        return _fit_chunk(learner, place_models(chunk.keys), *pool, weights)
    end = epoch_end(learner, chunk.held, pool)
    train = train_from_host if steps_from_host(learner) and len(chunk.rows) == 1 else _train_on_device
    # The states must have no name here: it would keep them on the devices while the next chunk trains.
    return jax.vmap(learner.finish)(train(learner, group, chunk.keys, chunk.membership[:], pool, advance, keeper, end))


def _train_on_device(
    learner: SteppedLearner,
    group: ChunkGroup,
    keys: Array,
    rows: np.ndarray,
    pool: tuple[Array, Array],
    advance: Callable[[int], None],
    keeper: StateKeeper,
    end: EpochEnd | None = None,
) -> TrainState:
    keys = place_models(keys)
    with DISPATCH:
        now = keeper.begin(init_chunk(learner, keys))
    if now.taken:
        advance(now.taken * len(rows))

    def tables(taken: int) -> Iterator[tuple[tuple[Array, Array], StepBlock, int]]:
        for block, start in blocks_after(learner, group, keys, rows, taken):
            yield place_block(block, group), block, start

    most, steps, began = FIRST_STEPS // 2, 1, time.monotonic()
    try:
        # Tables are made while the devices work on the previous block; at most one call is pending.
        for arrays, block, start in ahead(tables(now.taken)):
            while start < block.steps:
                jax.block_until_ready(now.states)
                seconds = max(time.monotonic() - began, 1e-6)
                most = max(1, min(2 * most, int(steps * CALL_SECONDS / seconds)))
                steps, began = min(most, block.steps - start), time.monotonic()
                with DISPATCH:
                    when, kind = (keys, block.epoch, block.before), (group.shared, group.uneven)
                    states = run_block(learner, now.states, when, *pool, *arrays, start, start + steps, *kind)
                start, over = start + steps, False
                if end is not None and block.before + start == group.steps:
                    states, over = end(states)
                now = UnderWay(states, now.taken + steps)
                advance(steps * len(rows))
                if over:
                    advance((learner.epochs * group.steps - now.taken) * len(rows))
                    return now.states
                keeper.passing(now)
    except (KeyboardInterrupt, NeighbourFailed):
        keeper.stopping(now)
        raise
    return now.states


@partial(jax.jit, static_argnames="learner")
def _fit_chunk(learner: Learner, keys: Array, inputs: Array, labels: Array, weights: Array) -> Any:
    return jax.vmap(learner.fit, in_axes=(0, None, None, 0))(keys, inputs, labels, weights)

"""Training all models of a plan, chunk by chunk, several chunks at the same time where that is faster."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from jaxaudit.ensemble.batches import Block, blocks_after, place_block
from jaxaudit.ensemble.concurrency import Interrupted, Stop, ahead, concurrent_chunks, run_at_once
from jaxaudit.ensemble.devices import place_models
from jaxaudit.ensemble.execution import Progress
from jaxaudit.ensemble.host_program import steps_from_host, train_from_host
from jaxaudit.ensemble.models_per_batch import choose_models_per_batch
from jaxaudit.ensemble.plan import Group, chunk_places
from jaxaudit.ensemble.program import DISPATCH, init_chunk, run_block
from jaxaudit.ensemble.results import Results
from jaxaudit.ensemble.training_state import StateKeeper, UnderWay
from jaxaudit.ensemble.validation import EpochEnd, epoch_end
from jaxaudit.learners.learner import Learner, SteppedLearner, TrainState
from jaxaudit.randomness import keys_at

WHOLE_FITS_PER_BATCH = 16
FIRST_STEPS = 8
"""Steps that a chunk takes in its first call of the compiled program; then up to twice as many in each."""
CALL_SECONDS = 5.0
"""What a call may take: between calls progress is told, a stop is seen, and the training state is kept."""


def train_stepped(
    keys: Array,
    membership: np.ndarray,
    held: np.ndarray | None,
    pool: tuple[Array, Array],
    learner: SteppedLearner,
    groups: list[Group],
    models_per_batch: int | None,
    progress: Progress,
    results: Results,
) -> None:
    """Trains every row of these groups minibatch by minibatch and hands each finished chunk to `results`.

    `held`: the records beside those of `membership` that each model holds back, for a learner that validates.
    """
    from_host = steps_from_host(learner)
    if from_host:
        size = 1
    else:
        size = models_per_batch or choose_models_per_batch(learner, keys, membership, pool, groups).models_per_batch
    chunks = [chunk for group in groups for chunk in group.chunks(size, len(jax.local_devices()))]
    total = sum(learner.epochs * chunk.steps * len(chunk.rows) for chunk in chunks)
    progress(0, total)
    counted = _Counted(progress, total)
    train = train_from_host if from_host else _train_chunk
    missing: list[Group] = []
    for chunk in chunks:
        if results.restore(size, chunk.rows):
            counted.advance(learner.epochs * chunk.steps * len(chunk.rows))
        else:
            missing.append(chunk)

    def train_one(chunk: Group, stop: Stop) -> Any:
        def advance(model_steps: int) -> None:
            stop.check()
            counted.advance(model_steps)

        rows = chunk.rows
        keeper = results.under_way(size, rows, chunk.steps, learner.epochs)
        end = epoch_end(learner, None if held is None else held[rows], pool)
        own = keys_at(keys, rows), membership[rows]
        # No name holds a finished chunk's states: they would stay on the devices beside the next chunk's.
        return jax.vmap(learner.finish)(train(learner, chunk, *own, pool, advance, keeper, end))

    run_at_once(missing, train_one, lambda chunk, params: results.add(size, chunk.rows, params), concurrent_chunks())


class _Counted:
    """Progress that several chunks make, one call at a time."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress, self.total, self.done, self.lock = progress, total, 0, Lock()

    def advance(self, model_steps: int) -> None:
        with self.lock:
            self.done += model_steps
            self.progress(self.done, self.total)


def _train_chunk(
    learner: SteppedLearner,
    group: Group,
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

    def tables(taken: int) -> Iterator[tuple[tuple[Array, Array], Block, int]]:
        for block, start in blocks_after(learner, group, keys, rows, taken):
            yield place_block(block, group), block, start

    most, steps, began = FIRST_STEPS // 2, 1, time.monotonic()
    try:
        # Tables are made while the devices work on the block before; no more than one call is in flight.
        for arrays, block, start in ahead(tables(now.taken)):
            while start < block.steps:
                jax.block_until_ready(now.states)
                seconds = max(time.monotonic() - began, 1e-6)
                most = max(1, min(2 * most, int(steps * CALL_SECONDS / seconds)))
                steps, began = min(most, block.steps - start), time.monotonic()
                with DISPATCH:
                    part = {"start": start, "steps": steps, "epoch": block.epoch, "before": block.before}
                    kind = {"shared": group.shared, "uneven": group.uneven}
                    states = run_block(learner, now.states, keys, *pool, *arrays, **part, **kind)
                start, over = start + steps, False
                if end is not None and block.before + start == group.steps:
                    states, over = end(states)
                now = UnderWay(states, now.taken + steps)
                advance(steps * len(rows))
                if over:
                    advance((learner.epochs * group.steps - now.taken) * len(rows))
                    return now.states
                keeper.passing(now)
    except (KeyboardInterrupt, Interrupted):
        keeper.stopping(now)
        raise
    return now.states


def train_whole(
    keys: Array,
    membership: np.ndarray,
    pool: tuple[Array, Array],
    learner: Learner,
    models_per_batch: int | None,
    progress: Progress,
    results: Results,
) -> None:
    """Trains every row of `membership` by the learner's own `fit`, in chunks."""
    done, total = 0, len(membership)
    progress(done, total)
    size = models_per_batch or WHOLE_FITS_PER_BATCH
    for rows in chunk_places(total, size, len(jax.local_devices())):
        if not results.restore(size, rows):
            weights = place_models(membership[rows].astype(np.float32))
            results.add(size, rows, _fit_chunk(learner, place_models(keys_at(keys, rows)), *pool, weights))
        done += len(np.unique(rows))
        progress(done, total)


@partial(jax.jit, static_argnames="learner")
def _fit_chunk(learner: Learner, keys: Array, inputs: Array, labels: Array, weights: Array) -> Any:
    return jax.vmap(learner.fit, in_axes=(0, None, None, 0))(keys, inputs, labels, weights)

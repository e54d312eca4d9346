"""Trains all models of a plan in chunks, in this process or by an executor's workers."""

from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from jaxaudit.ensemble.chunk import Chunk, train_chunk
from jaxaudit.ensemble.concurrency import Stop, concurrent_chunks, run_at_once
from jaxaudit.ensemble.distribute import ChunkCall, distribute
from jaxaudit.ensemble.execution import Execution, Progress
from jaxaudit.ensemble.host_program import steps_from_host
from jaxaudit.ensemble.models_per_batch import choose_models_per_batch
from jaxaudit.ensemble.plan import ChunkGroup, chunk_places
from jaxaudit.ensemble.program import place_pool
from jaxaudit.ensemble.results import Results
from jaxaudit.learners.learner import Learner, SteppedLearner
from jaxaudit.membership import AllBut, Membership
from jaxaudit.randomness import keys_at

WHOLE_FITS_PER_BATCH = 16


class RequestedModels(NamedTuple):
    """All models of a call, with the pool on the host.

    Attributes:
        keys: one per model.
        membership, held: see `Chunk`.
        pool: inputs and labels.
    """

    keys: Array
    membership: Membership | AllBut
    held: np.ndarray | None
    pool: tuple[np.ndarray, np.ndarray]

    def chunk(self, part: "PlannedChunk") -> Chunk:
        """The chunk of one part."""
        rows = part.rows
        held = None if self.held is None else self.held[rows]
        return Chunk(rows, keys_at(self.keys, rows), self.membership.take(rows, axis=0), held, part.group)


class PlannedChunk(NamedTuple):
    """The plan of a chunk: its row numbers, its group, and its amount of work in units of progress."""

    rows: np.ndarray
    group: ChunkGroup | None
    work: int


def train_stepped(
    models: RequestedModels,
    learner: SteppedLearner,
    groups: list[ChunkGroup],
    models_per_batch: int | None,
    execution: Execution,
    results: Results,
) -> None:
    """Trains all models of these groups minibatch by minibatch and adds each finished chunk to `results`."""
    size = 1 if steps_from_host(learner) else models_per_batch
    if size is None:
        size = choose_models_per_batch(learner, *models[:2], place_pool(models.pool), groups).models_per_batch
    chunks = [chunk for group in groups for chunk in group.chunks(size, len(jax.local_devices()))]
    parts = [PlannedChunk(chunk.rows, chunk, learner.epochs * chunk.steps * len(chunk.rows)) for chunk in chunks]
    _train(models, learner, parts, size, execution, results)


def train_whole(
    models: RequestedModels, learner: Learner, models_per_batch: int | None, execution: Execution, results: Results
) -> None:
    """Trains all models by the learner's own `fit`, in chunks."""
    size = models_per_batch or WHOLE_FITS_PER_BATCH
    chunks = chunk_places(len(models.membership), size, len(jax.local_devices()))
    _train(
        models, learner, [PlannedChunk(rows, None, len(np.unique(rows))) for rows in chunks], size, execution, results
    )


def _train(
    models: RequestedModels,
    learner: Learner,
    parts: list[PlannedChunk],
    size: int,
    execution: Execution,
    results: Results,
) -> None:
    counted = _Counted(execution.progress, sum(part.work for part in parts))
    counted.advance(0)
    missing: list[PlannedChunk] = []
    for part in parts:
        if results.restore(size, part.rows):
            counted.advance(part.work)
        else:
            missing.append(part)
    if execution.executor is None:
        _train_here(models, learner, missing, size, counted, results)
        return

    def collect(part: PlannedChunk, rows: np.ndarray, tree: Any) -> None:
        results.keep(size, part.rows, rows, tree)
        counted.advance(part.work)

    call = ChunkCall(learner, results.summarize, models.pool, results.folder(), execution.mixed_devices)
    distribute(execution.executor, call, missing, models.chunk, collect, lambda: counted.advance(0))


def _train_here(
    models: RequestedModels,
    learner: Learner,
    parts: Sequence[PlannedChunk],
    size: int,
    counted: "_Counted",
    results: Results,
) -> None:
    pool = place_pool(models.pool)

    def train_one(part: PlannedChunk, stop: Stop) -> Any:
        def advance(model_steps: int) -> None:
            stop.check()
            counted.advance(model_steps)

        steps = 0 if part.group is None else part.group.steps
        keeper = results.under_way(size, part.rows, steps, getattr(learner, "epochs", 0))
        return train_chunk(learner, models.chunk(part), pool, advance, keeper)

    def collect(part: PlannedChunk, params: Any) -> None:
        results.add(size, part.rows, params)
        if part.group is None:
            counted.advance(part.work)

    stepped = isinstance(learner, SteppedLearner)
    run_at_once(parts, train_one, collect, concurrent_chunks() if stepped else 1)


class _Counted:
    """Adds up the progress of chunks that train at the same time."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done, self.lock = progress, total, 0, Lock()

    def advance(self, work: int) -> None:
        with self.lock:
            self.done += work
            if self.progress is not None:
                self.progress(self.done, self.total)

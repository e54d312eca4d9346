"""A chunk of models: the inputs that determine them, their training, in this process or in a worker, and its results.

A CPU trains a convolutional network with a call per step from the host: XLA compiles a convolution inside a loop to
code that is 15 to 25 times slower than outside (jax issue 12868). Each step is three programs (gradient, parameters,
optimiser state), because a single one would copy the optimiser's arrays before overwriting them: 51 ms a step instead
of 29 ms for Liu's 6.4M parameters (two CPU cores, jax 0.10.2).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from jaxaudit.ensemble import checkpoint
from jaxaudit.ensemble.batches import StepBlock, place_block, step_blocks
from jaxaudit.ensemble.concurrency import ChunkGroup, ahead
from jaxaudit.ensemble.program import DISPATCH, When, init_chunk, place_models, run_block
from jaxaudit.errors import InputError
from jaxaudit.learners.estimator import EstimatorLearner
from jaxaudit.learners.learner import Learner, SteppedLearner, TrainState, moment_of
from jaxaudit.membership import AllBut, Membership


def steps_from_host(learner: SteppedLearner) -> bool:
    """Whether this process trains the learner with one call per step."""
    return learner.convolves and jax.default_backend() == "cpu" and len(jax.local_devices()) == 1


def train_from_host(
    learner: SteppedLearner,
    group: ChunkGroup,
    keys: Key[Array, " one"],
    rows: Bool[np.ndarray, "one examples"],
    pool: tuple[Array, Array],
    advance: Callable[[int], None],
) -> TrainState:
    """Trains one model to the end, step by step from the host. The returned state has a leading axis of one. `advance`
    is called with the number of steps since the last call.
    """
    with DISPATCH:
        state = jax.tree.map(lambda leaf: leaf[0], init_chunk(learner, keys))
    key, gradient = keys[0], jax.tree.map(jnp.zeros_like, state.params)
    update = _update_at_once if _optimizer_reads_params(learner, state, key) else _update_in_parts
    for block in step_blocks(learner, group, keys, rows):
        indices = block.indices if group.shared else block.indices[:, 0]
        for step in range(block.steps):
            weight = block.weights[step, 0]
            if weight.any():
                batch = jnp.asarray(indices[step]), jnp.asarray(weight)
                when = key, block.epoch, block.before + step
                with DISPATCH:
                    gradient, module_state = _gradient(learner, state, gradient, *pool, *batch, when)
                    state = update(learner, state, gradient, module_state, when)
                jax.block_until_ready(state)
            advance(1)
    return jax.tree.map(lambda leaf: leaf[None], state)


@partial(jax.jit, static_argnames="learner", donate_argnames="last", keep_unused=True)
def _gradient(
    learner: SteppedLearner,
    state: TrainState,
    last: Any,
    inputs: Array,
    labels: Array,
    chosen: Array,
    weight: Array,
    when: When,
) -> tuple[Any, Any]:
    """The gradient, written into the memory of the `last` one: new memory in every step would take 1/6 of its time."""
    state = state._replace(moment=moment_of(*when))
    return learner.gradient(state, inputs[chosen], labels[chosen], weight)


def _update_in_parts(
    learner: SteppedLearner, state: TrainState, gradient: Any, module_state: Any, when: When
) -> TrainState:
    optimizer = state.optimizer
    # Parameters are updated first: their update reads the old optimiser state, which may be overwritten afterwards.
    params = _update_params(learner, state.params, optimizer, gradient, when)
    return TrainState(params, module_state, _update_optimizer(learner, params, optimizer, gradient, when))


@partial(jax.jit, static_argnames="learner", donate_argnames="state")
def _update_at_once(
    learner: SteppedLearner, state: TrainState, gradient: Any, module_state: Any, when: When
) -> TrainState:
    state = state._replace(moment=moment_of(*when))
    return learner.update(state, gradient, module_state)._replace(moment=None)


@partial(jax.jit, static_argnames="learner", donate_argnames="params")
def _update_params(learner: SteppedLearner, params: Any, optimizer: Any, gradient: Any, when: When) -> Any:
    return learner.update(TrainState(params, None, optimizer, moment_of(*when)), gradient, None).params


@partial(jax.jit, static_argnames="learner", donate_argnames="optimizer")
def _update_optimizer(learner: SteppedLearner, params: Any, optimizer: Any, gradient: Any, when: When) -> Any:
    return learner.update(TrainState(params, None, optimizer, moment_of(*when)), gradient, None).optimizer


def _optimizer_reads_params(learner: SteppedLearner, state: TrainState, key: Key[Array, ""]) -> bool:
    """Whether the new optimiser state depends on the parameters, found by tracing the update's program backwards."""
    state = state._replace(moment=moment_of(key, 0, 0))
    traced = jax.make_jaxpr(lambda state, gradient: learner.update(state, gradient, None).optimizer)
    # Imported here because it loads Flax, without which a bank is read.
    from jaxaudit.models.module import needed_inputs

    is_needed = needed_inputs(traced(state, state.params).jaxpr)
    return any(is_needed[: len(jax.tree.leaves(state.params))])


FIRST_STEPS = 8
"""Most steps in the first call of the compiled program; each later call may take twice as many as the one before."""
CALL_SECONDS = 5.0
"""Target duration of a call. Progress and interrupts are handled between calls."""


class Chunk(NamedTuple):
    """The inputs that, with the learner and the pool, determine a chunk's models.

    Attributes:
        rows: the models' row numbers in the membership; copies that pad the chunk repeat a number.
        group: how the models take their steps together; None for a learner without steps.
    """

    rows: Int[np.ndarray, " models"]
    keys: Key[Array, " models"]
    membership: Membership | AllBut
    group: ChunkGroup | None


def train_chunk(
    learner: Learner,
    chunk: Chunk,
    pool: tuple[Array, Array],
    advance: Callable[[int], None],
) -> Any:
    """The parameters of a chunk's models, with a leading `models` axis. For a learner with steps, `advance` is called
    with the number of model-steps since the last call. `pool`: inputs and labels, on this process's devices.
    """
    group = chunk.group
    if isinstance(learner, EstimatorLearner):
        return _fit_estimators(learner, chunk, pool)
    if group is None or not isinstance(learner, SteppedLearner):
        weights = place_models(chunk.membership[:].astype(np.float32))
        return _fit_chunk(learner, place_models(chunk.keys), *pool, weights)
    train = train_from_host if steps_from_host(learner) and len(chunk.rows) == 1 else _train_on_device
    # The states must have no name here: it would keep them on the devices while the next chunk trains.
    return jax.vmap(learner.finish)(train(learner, group, chunk.keys, chunk.membership[:], pool, advance))


def _train_on_device(
    learner: SteppedLearner,
    group: ChunkGroup,
    keys: Array,
    rows: np.ndarray,
    pool: tuple[Array, Array],
    advance: Callable[[int], None],
) -> TrainState:
    keys = place_models(keys)
    with DISPATCH:
        states = init_chunk(learner, keys)

    def tables() -> Iterator[tuple[tuple[Array, Array], StepBlock]]:
        for block in step_blocks(learner, group, keys, rows):
            yield place_block(block, group), block

    most, steps, began = FIRST_STEPS // 2, 1, time.monotonic()
    # Tables are made while the devices work on the previous block; at most one call is pending.
    for arrays, block in ahead(tables()):
        start = 0
        while start < block.steps:
            jax.block_until_ready(states)
            seconds = max(time.monotonic() - began, 1e-6)
            most = max(1, min(2 * most, int(steps * CALL_SECONDS / seconds)))
            steps, began = min(most, block.steps - start), time.monotonic()
            with DISPATCH:
                when, kind = (keys, block.epoch, block.before), (group.shared, group.uneven)
                states = run_block(learner, states, when, *pool, *arrays, start, start + steps, *kind)
            start += steps
            advance(steps * len(rows))
    return states


def _fit_estimators(learner: EstimatorLearner, chunk: Chunk, pool: tuple[Array, Array]) -> np.ndarray:
    """The fitted estimators, as an array of objects."""
    models = np.empty(len(chunk.rows), object)
    for place, (row, weights) in enumerate(zip(chunk.rows, chunk.membership[:], strict=True)):
        try:
            models[place] = learner.fit(chunk.keys[place], *pool, weights)
        except InputError as error:
            raise InputError(f"model {row} of this training: {error}") from error
    return models


@partial(jax.jit, static_argnames="learner")
def _fit_chunk(learner: Learner, keys: Array, inputs: Array, labels: Array, weights: Array) -> Any:
    return jax.vmap(learner.fit, in_axes=(0, None, None, 0))(keys, inputs, labels, weights)


Summarize = Callable[[Any, Int[np.ndarray, " models"]], Any]
"""`summarize(params, rows)`: computes the results to keep of a chunk's models, given their row numbers."""


def summarized(
    summarize: Summarize | None, params: Any, rows: Int[np.ndarray, " models"]
) -> tuple[Int[np.ndarray, " rows"], Any]:
    """The row numbers of a chunk and its results, on the host, without the copies that pad the chunk."""
    tree = params if summarize is None else summarize(params, rows)
    rows, first = np.unique(rows, return_index=True)
    return rows, jax.tree.map(lambda leaf: leaf[first] if checkpoint.is_key(leaf) else np.asarray(leaf)[first], tree)


class Results:
    """The results of all finished chunks, on the host, without the copies that pad chunks; in a directory, too, if
    there is one.
    """

    def __init__(self, summarize: Summarize | None, directory: Path | None) -> None:
        self.summarize, self.directory = summarize, directory
        if directory is not None:
            checkpoint.drop_drafts(directory)
        self.models_per_batch = directory and checkpoint.models_per_batch_of(directory)
        self.chunks: list[tuple[np.ndarray, Any]] = []

    def restore(self, models_per_batch: int, rows: np.ndarray) -> bool:
        """Reads the chunk with these rows from the directory; returns whether it was there."""
        path, rows = self._path(models_per_batch, rows), np.unique(rows)
        tree = path and checkpoint.read_chunk(path, rows)
        if tree is not None:
            self.chunks.append((rows, tree))
        return tree is not None

    def add(self, models_per_batch: int, rows: np.ndarray, params: Any) -> None:
        self.keep(models_per_batch, rows, *summarized(self.summarize, params, rows))

    def keep(self, models_per_batch: int, filled: np.ndarray, rows: np.ndarray, tree: Any) -> None:
        """Adds the result of `summarized` for a chunk; `filled` are its rows with the copies that pad it."""
        path = self._path(models_per_batch, filled)
        if path is not None:
            checkpoint.write_chunk(path, rows, tree)
        self.chunks.append((rows, tree))

    def folder(self) -> Path | None:
        """The directory, created if missing; None without a directory or if it cannot be created."""
        if self.directory is not None:
            with suppress(OSError):
                self.directory.mkdir(parents=True, exist_ok=True)
                return self.directory
        return None

    def in_order(self) -> Any:
        """The results of all models, in the order of the membership's rows."""
        order = np.argsort(np.concatenate([rows for rows, _ in self.chunks]), kind="stable")
        return jax.tree.map(lambda *leaves: _concatenate(leaves)[order], *[tree for _, tree in self.chunks])

    def _path(self, models_per_batch: int, rows: np.ndarray) -> Path | None:
        return self.directory and checkpoint.chunk_path(self.directory, models_per_batch, np.unique(rows))


def _concatenate(leaves: tuple[Any, ...]) -> Any:
    return jnp.concatenate(leaves) if checkpoint.is_key(leaves[0]) else np.concatenate(leaves)

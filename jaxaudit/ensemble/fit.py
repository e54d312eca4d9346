"""`fit_many`: the one function that trains every model of every audit."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.ensemble.batches import epoch_blocks, place_block
from jaxaudit.ensemble.checkpoint import call_directory, chunk_path, read_chunk, width_of, write_chunk
from jaxaudit.ensemble.devices import place_models, place_pool
from jaxaudit.ensemble.host_program import steps_from_host, train_from_host
from jaxaudit.ensemble.plan import Group, chunks, plan
from jaxaudit.ensemble.program import init_chunk, run_block
from jaxaudit.ensemble.width import WidthChoice, choose_width
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Learner, SteppedLearner, TrainState

WHOLE_FIT_WIDTH = 16

Progress = Callable[[int, int], None]
"""`progress(done, total)`: model-steps finished, of all (whole models, for a learner without steps).

Copies that fill a last chunk up count as done too, so `done` can end above `total`.
"""


def fit_many(
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    inputs: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    learner: Learner,
    *,
    width: int | None = None,
    then: Callable[[Any], Any] | None = None,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
) -> Any:
    """Trains a model for every row of `membership` and returns what `then` makes of them.

    Model `m` is trained on the records where row `m` is true, with key `keys[m]`. Its result is a function of its
    key, its row and the pool alone: it is the same (up to the rounding of differently shaped products) as training it
    by itself with `learner.fit`. Rows with the same key walk the same minibatches where they leave out at most a
    tenth of the pool, so that they differ by those records alone; see `jaxaudit.learners.walk`.

    Models are trained in chunks of `width`, vmapped and jitted, split over all local devices. Memory on the devices
    is bounded by the chunk, not by the number of models:

        pool + width * (2 * training state + batch_size * (record + activations)) + 40 MB of index tables

    where the training state is parameters, optimiser and module state (three times the parameters for Adam) and the
    second copy holds gradients. What `then` returns is kept on the host for all models.

    With `checkpoints`, what `then` returns for a finished chunk is also written there, and a later call with the same
    arguments reads it back, bit for bit, instead of training the chunk: it goes on after the last finished chunk and
    returns what a call that was never stopped returns. A file is written whole or not at all; one that is damaged is
    ignored. Chunks of other keys, another membership or another pool are never taken, so several calls may share a
    directory; the same `learner` and `then` are the caller's word.

    Args:
        keys: one random key a model.
        membership: which records each model is trained on.
        inputs: the pool's records, `labels` their classes.
        learner: a `SteppedLearner`, or any `Learner`, whose `fit` is then vmapped.
        width: models a chunk; by default chosen by measurement (`choose_width`).
        then: called with the parameters of each finished chunk (leading axis: the chunk's models) and returning
            arrays with the same leading axis; by default the parameters themselves.
        progress: called as work is done; chunks read back are done at once.
        checkpoints: a directory to keep finished chunks in, made where there is none; then `then` must return an
            array or a tuple (a NamedTuple, too) of arrays of plain numbers. Where it holds chunks of these models
            already, their width is used, whatever `width` says.

    Returns:
        `then`'s arrays for all models in the order of `membership`, as NumPy arrays with a leading `models` axis
        (random keys, which NumPy cannot hold, as JAX arrays).

    Raises:
        InputError: where shapes disagree, there are no models, `width` is below 1, or `then` returns what cannot be
            kept in `checkpoints`.
    """
    membership = np.asarray(membership)
    _check(keys, membership, len(inputs), len(labels))
    if width is not None and width < 1:
        raise InputError(f"width must be at least 1 model a chunk, got {width}; leave it out to have it measured.")
    results = _Results(then, checkpoints and call_directory(checkpoints, keys, membership, inputs, labels))
    pool = place_pool(np.asarray(inputs)), place_pool(np.asarray(labels))
    train: Callable[..., None] = _train_stepped if isinstance(learner, SteppedLearner) else _train_whole
    train(keys, membership, pool, learner, results.width or width, progress or _silent, results)
    return results.in_order()


def measure_width(
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    inputs: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    learner: Learner,
) -> WidthChoice:
    """The width `fit_many` would choose for these models, with its measurements: see `choose_width`.

    Choose once and pass the width on where several calls, or a later repetition, must give the same numbers.
    """
    membership = np.asarray(membership)
    _check(keys, membership, len(inputs), len(labels))
    if not isinstance(learner, SteppedLearner):
        return WidthChoice(WHOLE_FIT_WIDTH, {})
    if steps_from_host(learner):
        return WidthChoice(1, {})
    pool = place_pool(np.asarray(inputs)), place_pool(np.asarray(labels))
    return choose_width(
        learner, keys, membership, pool, plan(np.asarray(jax.random.key_data(keys)), membership, learner)
    )


def _check(keys: Array, membership: np.ndarray, inputs: int, labels: int) -> None:
    if membership.ndim != 2 or membership.shape[1] != inputs or inputs != labels:
        raise InputError(
            f"membership has shape {membership.shape} but there are {inputs} inputs and {labels} labels: every row is "
            "one training set over all records; was a split passed instead of the whole pool?"
        )
    if len(membership) == 0 or keys.shape != (len(membership),):
        raise InputError(
            f"{len(membership)} models are asked for with keys of shape {keys.shape}: give one key a model "
            "(jax.random.split(key, models)), and at least one model."
        )


def _silent(done: int, total: int) -> None:
    pass


class _Results:
    """What `then` made of the chunks so far, on the host, less the copies that filled chunks up.

    With a directory, every chunk's is kept there as well.
    """

    def __init__(self, then: Callable[[Any], Any] | None, directory: Path | None) -> None:
        self.then, self.directory = then, directory
        self.width = directory and width_of(directory)
        self.chunks: list[tuple[np.ndarray, Any]] = []

    def restore(self, width: int, rows: np.ndarray) -> bool:
        """Takes the chunk with these rows from the directory, if it is there."""
        rows = np.unique(rows)
        tree = self.directory and read_chunk(chunk_path(self.directory, width, rows), rows)
        if tree is None:
            return False
        self.chunks.append((rows, tree))
        return True

    def add(self, width: int, rows: np.ndarray, params: Any) -> None:
        """Takes a chunk that was trained just now."""
        rows, first = np.unique(rows, return_index=True)
        tree = params if self.then is None else self.then(params)
        tree = jax.tree.map(lambda leaf: leaf[first] if _is_key(leaf) else np.asarray(leaf)[first], tree)
        if self.directory is not None:
            write_chunk(chunk_path(self.directory, width, rows), rows, tree)
        self.chunks.append((rows, tree))

    def in_order(self) -> Any:
        """All chunks as one, in the order of the membership's rows."""
        order = np.argsort(np.concatenate([rows for rows, _ in self.chunks]), kind="stable")
        return jax.tree.map(lambda *leaves: _concatenate(leaves)[order], *[tree for _, tree in self.chunks])


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _concatenate(leaves: tuple[Any, ...]) -> Any:
    return jnp.concatenate(leaves) if _is_key(leaves[0]) else np.concatenate(leaves)


def _train_stepped(
    keys: Array,
    membership: np.ndarray,
    pool: tuple[Array, Array],
    learner: SteppedLearner,
    width: int | None,
    progress: Progress,
    results: _Results,
) -> None:
    groups = plan(np.asarray(jax.random.key_data(keys)), membership, learner)
    total = sum(learner.epochs * group.steps * len(group.rows) for group in groups)
    progress(0, total)
    done = 0

    def advance(model_steps: int) -> None:
        nonlocal done
        done += model_steps
        progress(done, total)

    from_host = steps_from_host(learner)
    wide = 1 if from_host else width or choose_width(learner, keys, membership, pool, groups).width
    train = train_from_host if from_host else _train_chunk
    for group in groups:
        for rows in chunks(group.rows, wide, len(jax.local_devices())):
            if results.restore(wide, rows):
                advance(learner.epochs * group.steps * len(rows))
                continue
            # No name holds a finished chunk's states: they would stay on the devices beside the next chunk's.
            results.add(
                wide,
                rows,
                jax.vmap(learner.finish)(train(learner, group, keys[rows], membership[rows], pool, advance)),
            )


def _train_chunk(
    learner: SteppedLearner,
    group: Group,
    keys: Array,
    rows: np.ndarray,
    pool: tuple[Array, Array],
    advance: Callable[[int], None],
) -> TrainState:
    keys = place_models(keys)
    states = init_chunk(learner, keys)
    for epoch in range(learner.epochs):
        for block in epoch_blocks(learner, group, keys, rows, epoch):
            tables = place_block(block, group)
            # Tables are made while the devices work on the block before; no more than one block is in flight.
            jax.block_until_ready(states)
            states = run_block(learner, states, *pool, *tables, block.steps, group.shared, group.uneven)
            advance(block.steps * len(rows))
    return states


def _train_whole(
    keys: Array,
    membership: np.ndarray,
    pool: tuple[Array, Array],
    learner: Learner,
    width: int | None,
    progress: Progress,
    results: _Results,
) -> None:
    done, total = 0, len(membership)
    progress(done, total)
    wide = width or WHOLE_FIT_WIDTH
    for rows in chunks(np.arange(total), wide, len(jax.local_devices())):
        if not results.restore(wide, rows):
            weights = place_models(membership[rows].astype(np.float32))
            results.add(wide, rows, _fit_chunk(learner, place_models(keys[rows]), *pool, weights))
        done += len(np.unique(rows))
        progress(done, total)


@partial(jax.jit, static_argnames="learner")
def _fit_chunk(learner: Learner, keys: Array, inputs: Array, labels: Array, weights: Array) -> Any:
    return jax.vmap(learner.fit, in_axes=(0, None, None, 0))(keys, inputs, labels, weights)

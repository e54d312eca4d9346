"""A chunk of models: what determines them, their training, here or in a worker, and its results, also on disk.

On a CPU each step of a convolutional network is a call: XLA's convolutions in a loop are 15 to 25 times slower (jax
issue 12868). A step is three programs (gradient, parameters, optimiser state): a single one would copy the optimiser's
arrays, 51 ms a step instead of 29 ms for Liu's 6.4M parameters (two CPU cores, jax 0.10.2).

On disk: `<digest of a call's keys, membership, pool and devices>/<models a batch>-<digest of a chunk's rows>.npz`, each
behind a digest of the rest. Orbax's folders cannot be replaced atomically, and it does not detect flipped bits.
"""

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jaxaudit.data.paths import DRAFT, open_regular, whole_file
from jaxaudit.ensemble.batches import (
    DISPATCH,
    DevicePool,
    StepBlock,
    Tables,
    When,
    init_chunk,
    place_block,
    place_models,
    run_block,
)
from jaxaudit.ensemble.concurrency import ChunkGroup, ahead
from jaxaudit.errors import InputError
from jaxaudit.learners.estimator import EstimatorLearner
from jaxaudit.learners.learner import AnyInputs, Learner, SteppedLearner, TrainState, moment_of
from jaxaudit.membership import AllBut, Masks
from jaxaudit.metrics.arrays import AnyIntegers, ModelNumbers, OneKey
from jaxaudit.randomness import ModelKeys

PLAIN = "biufc"
"""The kinds of NumPy dtypes that a .npz file stores without loss."""
DIGEST_BYTES = 16


def call_directory(checkpoints: Path, keys: ModelKeys, membership: Masks, *pool: Array | np.ndarray) -> Path:
    """The folder in `checkpoints` for the chunks of one call, on this process's kind and number of devices."""
    devices, rows = jax.local_devices(), membership.left_out if isinstance(membership, AllBut) else membership
    return checkpoints / digest_of(f"{devices[0].device_kind} {len(devices)}", jax.random.key_data(keys), rows, *pool)


def digest_of(text: str, *arrays: Array | np.ndarray) -> str:
    """A digest of text and arrays (values, types and shapes): 32 hexadecimal digits."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for array in arrays:
        host = np.ascontiguousarray(array)
        digest.update(f"{host.dtype}{host.shape}".encode())
        digest.update(host.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def kept_models_per_batch(
    keys: ModelKeys,
    membership: Masks,
    inputs: AnyInputs,
    labels: AnyIntegers,
    checkpoints: Path | None,
) -> int | None:
    """The models per batch of the finished chunks that `checkpoints` has of a call of `fit_many`, if any."""
    return checkpoints and models_per_batch_of(call_directory(checkpoints, keys, membership, inputs, labels))


def models_per_batch_of(directory: Path) -> int | None:
    """The most frequent models per batch of a call's chunks; None without chunks."""
    numbers = [path.name.partition("-")[0] for path in directory.glob("*-*")]
    counts = Counter(int(number) for number in numbers if number.isdecimal() and int(number))
    return counts.most_common(1)[0][0] if counts else None


def kept_models(checkpoints: Path) -> int:
    """How many trained models `checkpoints` holds, over all calls; damaged chunks count as empty."""
    return sum(map(_models_of, checkpoints.glob("*/*-*.npz")))


def write_chunk(path: Path, rows: ModelNumbers, tree: Any) -> None:
    """Writes a chunk's result, completely or not at all; where the disk cannot be written, warns (a RuntimeWarning), so
    that training continues. A result that is not arrays of plain numbers is an `InputError`.
    """
    is_tuple = type(tree) is tuple
    leaves = tree if is_tuple else (tree,)
    _refuse_unkept(leaves)
    arrays = {"rows": rows, "is_tuple": np.array(is_tuple), **{str(at): leaf for at, leaf in enumerate(leaves)}}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file is not flushed to the disk; its digest reveals damage by a power failure.
        with whole_file(path, lasting=False) as file:
            file.write(bytes(DIGEST_BYTES))
            np.savez(file, allow_pickle=False, **arrays)
            digest = _digest_of_rest(file)
            file.seek(0)
            file.write(digest)
    except OSError as error:
        warnings.warn(
            f"trained models cannot be kept in {path.parent} ({error.strerror}): training continues, but a run that is "
            "stopped loses them.",
            RuntimeWarning,
            stacklevel=3,
        )


def read_chunk(path: Path, rows: ModelNumbers) -> Any | None:
    """The result kept for these rows, bit for bit; None if the file is missing, damaged, or of other rows."""
    try:
        with open_regular(path, links=False) as file:
            if file.read(DIGEST_BYTES) != _digest_of_rest(file):
                return None
            file.seek(DIGEST_BYTES)
            with np.load(file, allow_pickle=False) as archive:
                members = archive.zip.infolist()
                # Members must be uncompressed and must not overlap, so that arrays are no larger than the file.
                if any(m.compress_type for m in members) or sum(m.file_size for m in members) > path.stat().st_size:
                    return None
                rows_kept, is_tuple, *leaves = (archive[name] for name in archive.files)
        if not np.array_equal(rows_kept, rows):
            return None
        return tuple(leaves) if is_tuple else leaves[0]
    except Exception:  # whatever is wrong with a file: the chunk is trained again
        return None


def _digest_of_rest(file: IO[bytes]) -> bytes:
    file.seek(DIGEST_BYTES)
    return hashlib.file_digest(cast(Any, file), lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).digest()


def is_key(leaf: Any) -> bool:
    """Whether `leaf` is an array of random keys, which NumPy cannot store."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def as_plain(leaf: Any) -> np.ndarray:
    """A leaf as an array that a .npz file can store: keys as their data, other types as integers of the same bytes."""
    host = np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
    return host if host.dtype.kind in PLAIN else host.view(f"u{host.dtype.itemsize}")


def _models_of(path: Path) -> int:
    with suppress(Exception), open_regular(path, links=False) as file:
        file.seek(DIGEST_BYTES)
        with np.load(file, allow_pickle=False) as archive:
            return len(archive["rows"])
    return 0


def _refuse_unkept(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in PLAIN:
            kind_of_leaf = leaf.dtype.name if isinstance(leaf, np.ndarray) else type(leaf).__name__
            raise InputError(
                f"`summarize` returned {kind_of_leaf}, but only arrays of plain numbers can be kept in `checkpoints`; "
                "return an array or a plain tuple of arrays."
            )


Advance = Callable[[int], None]
"""Is told of further work that is done."""


def steps_from_host(learner: SteppedLearner) -> bool:
    """Whether this process trains the learner with one call per step."""
    return learner.convolves and jax.default_backend() == "cpu" and len(jax.local_devices()) == 1


def train_from_host(learner: SteppedLearner, tables: Tables, pool: DevicePool, advance: Advance) -> TrainState:
    """Trains one model to the end, step by step from the host. The returned state has a leading axis of one. `advance`
    is called with the number of steps since the last call.
    """
    with DISPATCH:
        state = jax.tree.map(lambda leaf: leaf[0], init_chunk(learner, tables.keys))
    key, gradient = tables.keys[0], jax.tree.map(jnp.zeros_like, state.params)
    update = _update_at_once if _optimizer_reads_params(learner, state, key) else _update_in_parts
    for block in tables.of_all_epochs():
        indices = block.indices if tables.group.shared else block.indices[:, 0]
        for step in range(block.steps):
            weight = block.weights[step, 0]
            if weight.any():
                batch = jnp.asarray(indices[step]), jnp.asarray(weight)
                when = key, block.epoch, block.before + step
                with DISPATCH:
                    gradient, module_state = _gradient(learner, state, gradient, pool, batch, when)
                    state = update(learner, state, gradient, module_state, when)
                jax.block_until_ready(state)
            advance(1)
    return jax.tree.map(lambda leaf: leaf[None], state)


@partial(jax.jit, static_argnames="learner", donate_argnames="last", keep_unused=True)
def _gradient(
    learner: SteppedLearner,
    state: TrainState,
    last: Any,
    pool: DevicePool,
    batch: tuple[Array, Array],
    when: When,
) -> tuple[Any, Any]:
    """The gradient, written into the memory of the `last` one: new memory in every step would take 1/6 of its time."""
    (inputs, labels), (chosen, weight) = pool, batch
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


def _optimizer_reads_params(learner: SteppedLearner, state: TrainState, key: OneKey) -> bool:
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
    """The inputs that, with the learner and the pool, determine a chunk's models. Row numbers of copies that pad it
    repeat; a learner without steps has no `group`.
    """

    rows: ModelNumbers
    keys: ModelKeys
    membership: Masks
    group: ChunkGroup | None


def train_chunk(
    learner: Learner,
    chunk: Chunk,
    pool: DevicePool,
    advance: Advance,
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
    train, keys = _train_on_device, place_models(chunk.keys)
    if steps_from_host(learner) and len(chunk.rows) == 1:
        train, keys = train_from_host, chunk.keys
    tables = Tables(learner, group, keys, chunk.membership[:])
    # The states must have no name here: it would keep them on the devices while the next chunk trains.
    return jax.vmap(learner.finish)(train(learner, tables, pool, advance))


def _train_on_device(learner: SteppedLearner, tables: Tables, pool: DevicePool, advance: Advance) -> TrainState:
    keys, group = tables.keys, tables.group
    with DISPATCH:
        states = init_chunk(learner, keys)

    def placed() -> Iterator[tuple[tuple[Array, Array], StepBlock]]:
        for block in tables.of_all_epochs():
            yield place_block(block, group), block

    most, steps, began = FIRST_STEPS // 2, 1, time.monotonic()
    # Tables are made while the devices work on the previous block; at most one call is pending.
    for arrays, block in ahead(placed()):
        start = 0
        while start < block.steps:
            jax.block_until_ready(states)
            seconds = max(time.monotonic() - began, 1e-6)
            most = max(1, min(2 * most, int(steps * CALL_SECONDS / seconds)))
            steps, began = min(most, block.steps - start), time.monotonic()
            with DISPATCH:
                when, kind = (keys, block.epoch, block.before), (group.shared, group.uneven)
                states = run_block(learner, states, when, pool, *arrays, start, start + steps, *kind)
            start += steps
            advance(steps * len(tables.rows))
    return states


def _fit_estimators(learner: EstimatorLearner, chunk: Chunk, pool: DevicePool) -> np.ndarray:
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


Summarize = Callable[[Any, ModelNumbers], Any]
"""`summarize(params, rows)`: computes the results to keep of a chunk's models, given their row numbers."""


def summarized(summarize: Summarize | None, params: Any, rows: ModelNumbers) -> tuple[Int[np.ndarray, " rows"], Any]:
    """The row numbers of a chunk and its results, on the host, without the copies that pad the chunk."""
    tree = params if summarize is None else summarize(params, rows)
    rows, first = np.unique(rows, return_index=True)
    return rows, jax.tree.map(lambda leaf: leaf[first] if is_key(leaf) else np.asarray(leaf)[first], tree)


class Results:
    """The results of all finished chunks, on the host, without copies that pad; in a directory, too, if any."""

    def __init__(self, summarize: Summarize | None, directory: Path | None) -> None:
        self.summarize, self.directory = summarize, directory
        if directory is not None:
            # What killed processes left; failures are ignored.
            with suppress(OSError):
                for draft in directory.glob(f"{DRAFT}*"):
                    draft.unlink(missing_ok=True)
        self.models_per_batch = directory and models_per_batch_of(directory)
        self.chunks: list[tuple[np.ndarray, Any]] = []

    def restore(self, models_per_batch: int, rows: np.ndarray) -> bool:
        """Reads the chunk with these rows from the directory; returns whether it was there."""
        path, rows = self._path(models_per_batch, rows), np.unique(rows)
        tree = path and read_chunk(path, rows)
        if tree is not None:
            self.chunks.append((rows, tree))
        return tree is not None

    def add(self, models_per_batch: int, rows: np.ndarray, params: Any) -> None:
        self.keep(models_per_batch, rows, *summarized(self.summarize, params, rows))

    def keep(self, models_per_batch: int, filled: np.ndarray, rows: np.ndarray, tree: Any) -> None:
        """Adds the result of `summarized` for a chunk; `filled` are its rows with the copies that pad it."""
        path = self._path(models_per_batch, filled)
        if path is not None:
            write_chunk(path, rows, tree)
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
        digest = hashlib.blake2b(np.unique(rows).astype("<i8").tobytes(), digest_size=16).hexdigest()
        return self.directory and self.directory / f"{models_per_batch}-{digest}.npz"


def _concatenate(leaves: tuple[Any, ...]) -> Any:
    return jnp.concatenate(leaves) if is_key(leaves[0]) else np.concatenate(leaves)

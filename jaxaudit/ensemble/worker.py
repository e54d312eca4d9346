"""The function that a worker runs: trains one chunk, and caches the learner and the pool for the next.

What all chunks of a call share is sent once: small objects pickled, large arrays as memory-mapped files or in an
executor's own store. Pickled bytes go only to workers of this process's executor, and are never read from a file.
"""

import io
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from stat import S_ISDIR
from tempfile import TemporaryDirectory, gettempdir
from threading import Lock
from typing import Any, NamedTuple, Protocol, runtime_checkable

import cloudpickle
import jax
import numpy as np
from filelock import FileLock

from jaxaudit.ensemble.batches import DevicePool, place_pool
from jaxaudit.ensemble.chunk import Chunk, Summarize, digest_of, summarized, train_chunk
from jaxaudit.ensemble.concurrency import Machine, this_machine, unlike
from jaxaudit.ensemble.local_child import portable
from jaxaudit.errors import InputError, first_line, writing
from jaxaudit.learners.learner import Learner

LARGE = 1 << 16
"""Arrays of at least this many bytes are sent separately."""
LEARNER, PREFIX, LOCK = "learner", "jaxaudit-pool-", "lock"
SETTLED = 60.0
"""A folder older than this many seconds, whose lock is free, was left by a killed process."""


ArraySource = Callable[[str], np.ndarray]
"""The array of a name."""


@runtime_checkable
class SharesArrays(Protocol):
    """An executor with its own store for large arrays."""

    def share(self, arrays: Mapping[str, np.ndarray]) -> ArraySource:
        """Stores the arrays for workers as long as this process lives."""
        ...


def load_mapped(folder: str, name: str) -> np.ndarray:
    """The array of this name in a private folder, which workers map into memory: a copy for a machine. `InputError` if
    the worker does not see the folder.
    """
    try:
        return np.asarray(np.load(Path(folder) / f"{name}.npy", mmap_mode="r", allow_pickle=False))
    except OSError as error:
        raise InputError(
            f"a worker cannot read the records in {folder} ({error.strerror}): workers on other machines "
            "need checkpoints in a folder that all of them see."
        ) from error


@contextmanager
def shared(executor: Any, arrays: Mapping[str, np.ndarray], beside: Path | None) -> Iterator[ArraySource]:
    """Makes arrays available to an executor's workers within this context: in its own store, or else in files below
    `beside` (None: the folder for temporary files).
    """
    if isinstance(executor, SharesArrays):
        yield executor.share(arrays)
        return
    parent = Path(gettempdir()) if beside is None else beside.absolute()
    drop_left(parent)
    # The folder has an unpredictable name and is accessible only to its owner.
    with TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True) as folder, _held(Path(folder)):
        advice = f"free {_size(arrays):.1f} GiB where checkpoints, or temporary files, are (TMPDIR)."
        with writing("the records for workers", advice):
            for name, array in arrays.items():
                np.save(Path(folder) / f"{name}.npy", array, allow_pickle=False)
        yield partial(load_mapped, folder)


def drop_left(parent: Path) -> None:
    """Removes this user's folders of arrays in `parent` that killed processes left: their locks are free, and they are
    more than a minute old, so that their process would have locked them.
    """
    user = getattr(os, "getuid", lambda: None)()
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError, NotImplementedError):
            folder = lock.parent.lstat()
            if not S_ISDIR(folder.st_mode) or (user is not None and folder.st_uid != user):
                continue
            if lock.is_symlink() or time.time() - lock.lstat().st_mtime < SETTLED:
                continue
            with FileLock(lock, 0, fallback_to_soft=False):
                rmtree(lock.parent, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Locks the folder while it is in use, if the file system supports locks."""
    lock = FileLock(folder / LOCK, 0, 0o600, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)
    with suppress(OSError, NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _size(arrays: Mapping[str, np.ndarray]) -> float:
    return sum(array.nbytes for array in arrays.values()) / 2**30


class _Pickler(cloudpickle.Pickler):
    """Leaves out large arrays, and the learner if it is given."""

    def __init__(self, file: io.BytesIO, arrays: dict[str, np.ndarray], learner: Any) -> None:
        super().__init__(file, protocol=5)
        self.arrays, self.learner, self.names = arrays, learner, dict[int, str]()

    def persistent_id(self, obj: Any) -> str | tuple[str, np.dtype] | None:
        if self.learner is not None and obj is self.learner:
            return LEARNER
        if type(obj) is not np.ndarray or obj.nbytes < LARGE or obj.dtype.hasobject:
            return None
        # A file would store types that NumPy does not know, such as bfloat16, as raw bytes: store integers instead.
        plain = obj.view(f"u{obj.itemsize}") if obj.dtype.kind == "V" else obj
        name = self.names.get(id(obj)) or digest_of("", plain)
        self.names[id(obj)], self.arrays[name] = name, plain
        return name if plain is obj else (name, obj.dtype)


def packed(value: Any, arrays: dict[str, np.ndarray], learner: Any = None) -> bytes:
    """Pickles a value without its large arrays, which are added to `arrays`, and without `learner`."""
    file = io.BytesIO()
    try:
        _Pickler(file, arrays, learner).dump(value)
    except Exception as error:
        raise InputError(
            f"the learner, or `summarize`, cannot be sent to a worker: {first_line(error)}; keep open files, locks and "
            "devices out of them, or train without an executor."
        ) from error
    return file.getvalue()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, source: ArraySource, learner: Any) -> None:
        super().__init__(file)
        self.source, self.learner = source, learner

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple):
            name, dtype = pid
            return self.source(name).view(dtype)
        return self.learner if pid == LEARNER else self.source(pid)


def unpack_value(code: bytes, source: ArraySource, learner: Any = None) -> Any:
    """Restores a value from the bytes that `packed` returned."""
    return _Unpickler(io.BytesIO(code), source, learner).load()


PROGRAMS = 8
"""The number of learners, with their compiled programs, that a worker caches."""


class Failed(NamedTuple):
    """The answer of a worker that would round differently, or whose learner or `summarize` raised an error; the chunk
    is not tried again.
    """

    error: Exception


class Trained(NamedTuple):
    """A trained chunk: its row numbers without copies, and the pickled results."""

    rows: Any
    tree: bytes


Answer = Trained | Failed


_Work = tuple[Learner, Summarize | None, DevicePool]
"""A learner, what summarises its models, and the pool on this process's devices."""
_learners: dict[bytes, Learner] = {}
_work: dict[tuple[bytes, bytes], _Work] = {}
_lock = Lock()


def train_there(code: bytes, rest: bytes, source: ArraySource, machine: Machine, chunk: Chunk) -> Answer:
    """Trains a chunk in this process. An exception outside the training counts as the worker's failure.

    Args:
        code: the pickled learner. `rest`: `summarize`, inputs and labels, pickled without it.
        source: what loads the large arrays of both. `machine`: the facts that this process must match.
    """
    differences = unlike(this_machine(), machine)
    if differences:
        return Failed(
            InputError(
                f"a worker would round differently ({differences}): use workers like this process, or start it on a "
                "machine like theirs."
            )
        )
    try:
        with _lock:
            work = _work_of(code, rest, source)
        return _trained(work, chunk)
    except ModuleNotFoundError as error:
        return Failed(
            InputError(f"a worker has no module {error.name!r}: install it there, or put its folder in PYTHONPATH.")
        )


def _trained(work: _Work, chunk: Chunk) -> Answer:
    try:
        learner, summarize, pool = work
        params = train_chunk(learner, chunk, pool, lambda _: None)
        rows, tree = summarized(summarize, params, chunk.rows)
        # cloudpickle sends classes of a script by value, since the receiver cannot import them.
        return Trained(rows, cloudpickle.dumps(tree, protocol=5))
    except ModuleNotFoundError:
        raise
    except Exception as error:
        return Failed(portable(error))


def _work_of(code: bytes, rest: bytes, source: ArraySource) -> _Work:
    """Unpickles a learner and its pool once, so that programs are compiled, and the pool placed, only once."""
    if (code, rest) not in _work:
        _work.clear()
        if code not in _learners:
            if len(_learners) == PROGRAMS:
                _learners.clear()
                jax.clear_caches()
            _learners[code] = unpack_value(code, source)
        learner = _learners[code]
        summarize, *pool = unpack_value(rest, source, learner)
        _work[code, rest] = learner, summarize, place_pool(tuple(pool))
    return _work[code, rest]

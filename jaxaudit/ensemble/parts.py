"""Sends the data that all chunks of a call share to workers: small objects pickled, large arrays separately and once.

Pickled bytes are passed to workers by the executor and are never read from a file.
"""

import io
import os
import pickle
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from stat import S_ISDIR
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, NamedTuple, Protocol, runtime_checkable

import cloudpickle
import numpy as np
from filelock import FileLock

from jaxaudit.ensemble.checkpoint import digest_of
from jaxaudit.errors import InputError, first_line

LARGE = 1 << 16
"""Arrays of at least this many bytes are sent separately."""
LEARNER, PREFIX, LOCK = "learner", "jaxaudit-pool-", "lock"
SETTLED = 60.0
"""A folder older than this many seconds, whose lock is free, was left by a killed process."""


@runtime_checkable
class ArraySource(Protocol):
    """Loads large arrays in a worker."""

    def load(self, name: str) -> np.ndarray:
        """The array of this name."""
        ...


@runtime_checkable
class SharesArrays(Protocol):
    """An executor with its own store for large arrays."""

    def share(self, arrays: Mapping[str, np.ndarray]) -> ArraySource:
        """Stores the arrays for workers as long as this process lives."""
        ...


class ArrayFiles(NamedTuple):
    """Large arrays in files, which workers map into memory, so that those on one machine share a copy.

    Attributes:
        folder: the folder of the files, accessible only to this process's user.
    """

    folder: str

    def load(self, name: str) -> np.ndarray:
        """The array of this name.

        Raises:
            InputError: the worker does not see the folder.
        """
        try:
            return np.asarray(np.load(Path(self.folder) / f"{name}.npy", mmap_mode="r", allow_pickle=False))
        except OSError as error:
            raise InputError(
                f"a worker cannot read the records in {self.folder} ({error.strerror}): workers on other machines "
                "need checkpoints in a folder that all of them see."
            ) from error


@contextmanager
def shared(executor: Any, arrays: Mapping[str, np.ndarray], beside: Path | None) -> Iterator[ArraySource]:
    """Makes arrays available to an executor's workers within this context: in its own store, or else in files.

    Args:
        executor: hands work to workers.
        arrays: the arrays by name.
        beside: an existing folder in which to create the folder of the files; None: the one for temporary files.
    """
    if isinstance(executor, SharesArrays):
        yield executor.share(arrays)
        return
    parent = Path(gettempdir()) if beside is None else beside.absolute()
    drop_left(parent)
    # The folder has an unpredictable name and is accessible only to its owner.
    with TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True) as folder, _held(Path(folder)):
        try:
            for name, array in arrays.items():
                np.save(Path(folder) / f"{name}.npy", array, allow_pickle=False)
        except OSError as error:
            raise InputError(
                f"the records cannot be written for workers ({error.strerror}): free {_size(arrays):.1f} GiB where "
                "checkpoints, or temporary files, are (TMPDIR)."
            ) from error
        yield ArrayFiles(folder)


def drop_left(parent: Path) -> None:
    """Removes this user's folders of arrays in `parent` that killed processes left: their locks are free.

    A folder that is less than a minute old stays: its process may not have locked it yet.
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
        if id(obj) not in self.names:
            name = digest_of("", plain)
            self.names[id(obj)] = name
            self.arrays[name] = plain
        return self.names[id(obj)] if plain is obj else (self.names[id(obj)], obj.dtype)


def packed(value: Any, arrays: dict[str, np.ndarray], learner: Any = None) -> bytes:
    """Pickles a value without its large arrays, which are added to `arrays`, and without `learner`.

    Raises:
        InputError: the value cannot be pickled.
    """
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
            return self.source.load(name).view(dtype)
        return self.learner if pid == LEARNER else self.source.load(pid)


def unpack_value(code: bytes, source: ArraySource, learner: Any = None) -> Any:
    """Restores a value from the bytes that `packed` returned."""
    return _Unpickler(io.BytesIO(code), source, learner).load()

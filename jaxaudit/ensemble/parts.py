"""What all chunks of a call share, on its way to workers: small objects as bytes, large arrays once, beside them.

Bytes of code are unpacked by workers that this process gave them to, and are never read from a file.
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
from jaxaudit.errors import InputError

LARGE = 1 << 16
"""Bytes of an array from which it goes beside what holds it."""
LEARNER, PREFIX, LOCK = "learner", "jaxaudit-pool-", "lock"
SETTLED = 60.0
"""Seconds after which a folder whose lock nobody holds was left by a process that was killed."""


@runtime_checkable
class Source(Protocol):
    """Where a worker gets large arrays from."""

    def load(self, name: str) -> np.ndarray:
        """The array of this name."""
        ...


@runtime_checkable
class Shares(Protocol):
    """An executor with a store of its own for large arrays."""

    def share(self, arrays: Mapping[str, np.ndarray]) -> Source:
        """The arrays, where workers find them as long as this process lives."""
        ...


class ArrayFiles(NamedTuple):
    """Large arrays as files, which the workers of one machine map into memory once for all of them.

    Attributes:
        folder: where they are, of this process's user alone.
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
def shared(executor: Any, arrays: Mapping[str, np.ndarray], beside: Path | None) -> Iterator[Source]:
    """Where an executor's workers find these arrays, within this context: its own store, else files.

    Args:
        executor: hands work to workers.
        arrays: by name.
        beside: an existing folder in which the files' own is made; None: where temporary files are.
    """
    if isinstance(executor, Shares):
        yield executor.share(arrays)
        return
    place = Path(gettempdir()) if beside is None else beside.absolute()
    drop_left(place)
    # A folder of a name that nobody can foresee, for its owner alone.
    with TemporaryDirectory(prefix=PREFIX, dir=place, ignore_cleanup_errors=True) as folder, _held(Path(folder)):
        try:
            for name, array in arrays.items():
                np.save(Path(folder) / f"{name}.npy", array, allow_pickle=False)
        except OSError as error:
            raise InputError(
                f"the records cannot be written for workers ({error.strerror}): free {_size(arrays):.1f} GiB where "
                "checkpoints, or temporary files, are (TMPDIR)."
            ) from error
        yield ArrayFiles(folder)


def drop_left(place: Path) -> None:
    """Removes this user's folders of arrays in `place` whose process was killed: their lock is held by nobody.

    One that was made less than a minute ago stays: its process may be about to take the lock.
    """
    own = getattr(os, "getuid", lambda: None)()
    for lock in place.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError, NotImplementedError):
            folder = lock.parent.lstat()
            if not S_ISDIR(folder.st_mode) or (own is not None and folder.st_uid != own):
                continue
            if lock.is_symlink() or time.time() - lock.lstat().st_mtime < SETTLED:
                continue
            with FileLock(lock, 0, fallback_to_soft=False):
                rmtree(lock.parent, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Says, as long as this process lives, that the folder is in use, where the file system has locks."""
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
    """Leaves out large arrays, and the learner where it is known."""

    def __init__(self, file: io.BytesIO, arrays: dict[str, np.ndarray], learner: Any) -> None:
        super().__init__(file, protocol=5)
        self.arrays, self.learner, self.names = arrays, learner, dict[int, str]()

    def persistent_id(self, obj: Any) -> str | tuple[str, np.dtype] | None:
        if self.learner is not None and obj is self.learner:
            return LEARNER
        if type(obj) is not np.ndarray or obj.nbytes < LARGE or obj.dtype.hasobject:
            return None
        # Types that NumPy does not know, such as bfloat16, become raw bytes in a file: they go as whole numbers.
        plain = obj.view(f"u{obj.itemsize}") if obj.dtype.kind == "V" else obj
        if id(obj) not in self.names:
            name = digest_of("", plain)
            self.names[id(obj)] = name
            self.arrays[name] = plain
        return self.names[id(obj)] if plain is obj else (self.names[id(obj)], obj.dtype)


def packed(value: Any, arrays: dict[str, np.ndarray], learner: Any = None) -> bytes:
    """A value as bytes, without its large arrays, which are put into `arrays`, and without `learner`.

    Raises:
        InputError: it cannot be sent.
    """
    file = io.BytesIO()
    try:
        _Pickler(file, arrays, learner).dump(value)
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "no message")
        raise InputError(
            f"the learner, or `summarize`, cannot be sent to a worker: {type(error).__name__}: {first}; keep open "
            "files, locks and devices out of them, or train without an executor."
        ) from error
    return file.getvalue()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, source: Source, learner: Any) -> None:
        super().__init__(file)
        self.source, self.learner = source, learner

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple):
            name, dtype = pid
            return self.source.load(name).view(dtype)
        return self.learner if pid == LEARNER else self.source.load(pid)


def unpacked(code: bytes, source: Source, learner: Any = None) -> Any:
    """The value that `packed` made the bytes of."""
    return _Unpickler(io.BytesIO(code), source, learner).load()

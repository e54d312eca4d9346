"""What all chunks of a call share, on its way to workers: small objects as bytes, large arrays once, beside them.

Bytes of code are unpacked by workers that this process gave them to, and are never read from a file.
"""

import io
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, runtime_checkable

import cloudpickle
import numpy as np

from jaxaudit.ensemble.checkpoint import digest_of
from jaxaudit.errors import InputError

LARGE = 1 << 16
"""Bytes of an array from which it goes beside what holds it."""
LEARNER = "learner"


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
    # A folder of a name that nobody can foresee, for its owner alone.
    place = None if beside is None else beside.absolute()
    with TemporaryDirectory(prefix="pool-", dir=place, ignore_cleanup_errors=True) as folder:
        try:
            for name, array in arrays.items():
                np.save(Path(folder) / f"{name}.npy", array, allow_pickle=False)
        except OSError as error:
            raise InputError(
                f"the records cannot be written for workers ({error.strerror}): free {_size(arrays):.1f} GiB where "
                "checkpoints, or temporary files, are (TMPDIR)."
            ) from error
        yield ArrayFiles(folder)


def _size(arrays: Mapping[str, np.ndarray]) -> float:
    return sum(array.nbytes for array in arrays.values()) / 2**30


class _Pickler(cloudpickle.Pickler):
    """Leaves out large arrays, and the learner where it is known."""

    def __init__(self, file: io.BytesIO, arrays: dict[str, np.ndarray], learner: Any) -> None:
        super().__init__(file, protocol=5)
        self.arrays, self.learner, self.names = arrays, learner, dict[int, str]()

    def persistent_id(self, obj: Any) -> str | None:
        if self.learner is not None and obj is self.learner:
            return LEARNER
        if type(obj) is not np.ndarray or obj.nbytes < LARGE or obj.dtype.hasobject:
            return None
        if id(obj) not in self.names:
            name = digest_of("", obj)
            self.names[id(obj)] = name
            self.arrays[name] = obj
        return self.names[id(obj)]


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
        return self.learner if pid == LEARNER else self.source.load(pid)


def unpacked(code: bytes, source: Source, learner: Any = None) -> Any:
    """The value that `packed` made the bytes of."""
    return _Unpickler(io.BytesIO(code), source, learner).load()

"""Reading .npy and .npz files from strangers: no pickles, nothing larger than the file says and we allow."""

import math
import zipfile
import zlib
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from jaxaudit.errors import InputError

MAX_BYTES = 16 * 2**30


@runtime_checkable
class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


def read_npy(path: Path, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """The array in a .npy file.

    Raises:
        InputError: when it is not a .npy file, is cut short, holds pickled objects or more than `max_bytes`.
    """
    try:
        with path.open("rb") as stream:
            return _read_array(stream, path.stat().st_size, path.name, max_bytes)
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error


class NpzArrays:
    """The arrays of a .npz file, read one at a time when asked for.

    Raises:
        InputError: when it is not a .npz file, or its arrays would unpack to more than `max_bytes`.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.max_bytes = path, max_bytes
        try:
            with zipfile.ZipFile(path) as archive:
                members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
        except (zipfile.BadZipFile, OSError) as error:
            raise InputError(f"{path}: is not a readable .npz file ({error}).") from error
        total = sum(member.file_size for member in members)
        if total > max_bytes:
            raise InputError(
                f"{path}: unpacks to {total / 2**30:.1f} GiB, more than the {max_bytes / 2**30:.1f} GiB that "
                "are allowed; split it into smaller files."
            )
        self._members = {member.filename.removesuffix(".npy"): member for member in members}

    @property
    def names(self) -> list[str]:
        """The arrays' names, in the file's order."""
        return list(self._members)

    def read(self, name: str) -> np.ndarray:
        """The array called `name`.

        Raises:
            InputError: when it holds pickled objects or is damaged.
        """
        member = self._members[name]
        source = f"{self.path.name}[{name}]"
        try:
            # A member never yields more than the size it declares: zipfile stops there.
            with zipfile.ZipFile(self.path) as archive, archive.open(member) as stream:
                return _read_array(stream, member.file_size, source, self.max_bytes)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as error:
            raise InputError(f"{source}: is damaged or encrypted ({error}); save it again.") from error


def _read_array(stream: _Readable, length: int, source: str, max_bytes: int) -> np.ndarray:
    """NumPy's own reader, but the header is held against the file's length before anything is allocated."""
    shape, fortran_order, dtype, header = _read_header(stream, source)
    if dtype.hasobject:
        raise InputError(
            f"{source}: holds pickled objects, which could run code when read; re-save with np.save or np.savez "
            "without object arrays (text as dtype str, ragged lists padded)."
        )
    if dtype.names is not None or dtype.itemsize == 0 or dtype.kind not in "biufSU":
        raise InputError(f"{source}: holds values of type {dtype}; save plain numbers or text.")
    size = math.prod(shape) * dtype.itemsize
    if size > max_bytes:
        raise InputError(
            f"{source}: holds {size / 2**30:.1f} GiB, more than the {max_bytes / 2**30:.1f} GiB that are allowed; "
            "split it into smaller files."
        )
    if header + size > length:
        raise InputError(
            f"{source}: is cut short ({length} bytes of {header + size}); was the copy or download interrupted?"
        )
    # A byte array, not bytes: it is writable and read in place, without a second copy.
    buffer = np.empty(size, np.uint8)
    view, place = memoryview(buffer.data), 0
    while place < size:
        block = stream.read(min(2**22, size - place))
        if not block:
            raise EOFError(f"{header + place} bytes of {header + size}")
        view[place : place + len(block)] = block
        place += len(block)
    array = buffer.view(dtype)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _read_header(stream: _Readable, source: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    counted = _Counted(stream)
    try:
        version = np.lib.format.read_magic(counted)
        if version == (1, 0):
            shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(counted)
        elif version == (2, 0):
            shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(counted)
        else:
            raise ValueError(f"format version {version[0]}.{version[1]}")
        if not all(0 <= extent < 2**40 for extent in shape):
            raise ValueError(f"shape {shape}")
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        reason = str(error).splitlines()[0][:120]
        raise InputError(f"{source}: is not a NumPy array file ({reason}); save it with np.save.") from error
    return shape, fortran_order, dtype, counted.place


class _Counted:
    """A stream that knows how far it has been read: members of an archive cannot `tell` cheaply."""

    def __init__(self, stream: _Readable) -> None:
        self.stream, self.place = stream, 0

    def read(self, size: int = -1, /) -> bytes:
        data = self.stream.read(size)
        self.place += len(data)
        return data

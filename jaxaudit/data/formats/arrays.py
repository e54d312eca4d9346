"""Reads untrusted .npy and .npz files: no pickles, and sizes are bounded."""

import io
import math
import os
import struct
import sys
import zipfile
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.errors import InputError

LONGEST_HEADER = 10_000
"""NumPy's own limit."""
MOST_DEFLATED = 1032
"""The largest compression ratio of deflate."""
MOST_AXES = 32
BLOCK = 1 << 22
LAST_CHARACTER = 0x10FFFF
LARGEST_DIRECTORY = 1 << 22
"""Bytes of the list of an archive's members, about a hundred each."""
_MEMBER = struct.Struct("<4s5H3L2H")
"""The header of a member of an archive; its last two numbers are the lengths of the name and of the field after it."""
AGAIN = "repeat the command when whoever writes the file is done."


class StoredArray:
    """An array in a .npy file, or uncompressed in another one from `start` on; rows are read only on access.

    The file is read, not memory-mapped: if another process truncates a mapped file, a signal kills this process. It is
    open only during a read, since a folder may hold more arrays than a process may have open files. Threads may read
    slices at the same time. `links` says whether `path` may be a link.
    """

    def __init__(
        self,
        path: Path,
        start: int = 0,
        length: int | None = None,
        *,
        max_bytes: int = sys.maxsize,
        links: bool = False,
    ) -> None:
        self.path, self._links = path, links
        with open_data(path, links=links) as file, parsing(f"{path}: cannot be read", "is the file whole?"):
            file.seek(start)
            self._state = _state_of(file)
            length = file_size(file) - start if length is None else length
            header = _checked_header(file, length, str(path), max_bytes)
        self.shape, self.dtype, self._by_column = header.shape, header.dtype, header.fortran_order
        self._start = start + header.length

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """These successive rows, as a new array."""
        with open_data(self.path, links=self._links) as file, parsing(f"{self.path}: cannot be read", "is it whole?"):
            return self._read(file, *(rows.indices(len(self))[:2] if self.ndim else (0, 1)))

    def _read(self, file: BufferedReader, first: int, last: int) -> np.ndarray:
        count, columns = max(0, last - first), math.prod(self.shape[1:])
        if self._by_column and self.ndim > 1 and count < len(self):
            # Its rows lie apart, so all of it is read.
            refuse_larger(self.path, self.nbytes, MAX_BYTES, "save numpy.ascontiguousarray(array)")
            return self._read(file, 0, len(self))[first : first + count].copy()
        file.seek(self._start + first * columns * self.dtype.itemsize)
        shape = (count, *self.shape[1:])[: self.ndim]
        numbers = _filled(file, ArrayHeader(shape, self._by_column, self.dtype, 0), str(self.path))
        if _state_of(file) != self._state:
            raise InputError(f"{self.path}: was written while it was read; {AGAIN}")
        return numbers


def read_npy(path: Path, max_bytes: int = MAX_BYTES, *, links: bool = True) -> np.ndarray:
    """The array in a .npy file of at most `max_bytes`; `links` says whether the file may be a link."""
    return StoredArray(path, max_bytes=max_bytes, links=links)[:]


def npy_shape(path: Path) -> tuple[int, ...]:
    """The shape of the array in a .npy file, from its header."""
    return StoredArray(path, links=True).shape


class NpzArrays:
    """The arrays of a .npz file, read one at a time on access; together they may unpack to `max_bytes`.

    `opened` says whether arrays are opened without being read, so that only compressed ones count. `sizes` are the
    bytes of each array with its header, by name, in the file's order.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, *, opened: bool = False) -> None:
        self.path, self.max_bytes = path, max_bytes
        with (
            open_data(path) as file,
            parsing(f"{path}: is not a readable .npz file", "save it with np.savez."),
            zipfile.ZipFile(_Directory(file)) as archive,
        ):
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
        kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if any(
            member.compress_type not in kinds
            or member.flag_bits & 1
            or member.file_size > MOST_DEFLATED * (member.compress_size + 1)
            for member in members
        ):
            raise InputError(
                f"{path}: is packed in a way that NumPy does not use, or damaged (its stated sizes exceed its bytes); "
                "save it with np.savez."
            )
        counted = [member for member in members if not (opened and member.compress_type == zipfile.ZIP_STORED)]
        refuse_larger(path, sum(member.file_size for member in counted), max_bytes)
        self._members = {member.filename.removesuffix(".npy"): member for member in members}
        self.sizes = {name: member.file_size for name, member in self._members.items()}

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def read(self, name: str) -> np.ndarray:
        """The array called `name`."""
        return self._unpacked(name, whole=True)

    def header(self, name: str) -> "ArrayHeader":
        """The shape and type of the array called `name`, without its numbers."""
        return self._unpacked(name, whole=False)

    def _unpacked(self, name: str, whole: bool) -> Any:
        member = self._members[name]
        source = f"{self.path.name}[{name}]"
        # A member never yields more than the size it declares: zipfile stops there.
        with (
            open_data(self.path) as file,
            parsing(f"{source}: is damaged", "save it again."),
        ):
            # The directory is not read again for each array.
            file.seek(_start(file, member))
            stream = zipfile.ZipExtFile(file, "r", member)
            # The header is checked against the member's length before memory is allocated.
            header = _checked_header(stream, member.file_size, source, self.max_bytes)
            return _filled(stream, header, source) if whole else header

    def open(self, name: str) -> "StoredArray | np.ndarray":
        """The array called `name`, whose rows are read on access; if it is compressed, all of it."""
        member = self._members[name]
        if member.compress_type != zipfile.ZIP_STORED:
            return self.read(name)
        with open_data(self.path) as file, parsing(f"{self.path.name}[{name}]: is damaged", "save it again."):
            start = _start(file, member)
        return StoredArray(self.path, start, member.file_size, links=True)


class _Directory(io.BufferedReader):
    """An archive whose list of members, which `zipfile` reads at once, is bounded, whatever it states."""

    def read(self, size: int | None = -1, /) -> bytes:
        rest = os.fstat(self.fileno()).st_size - self.tell()
        size = rest if size is None or size < 0 else min(size, rest)
        if size > LARGEST_DIRECTORY:
            raise ValueError(f"more than {LARGEST_DIRECTORY >> 20} MiB of names of arrays")
        return super().read(size)


def _start(file: BufferedReader, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin."""
    file.seek(member.header_offset)
    header = _MEMBER.unpack(file.read(_MEMBER.size))
    if header[0] != b"PK\3\4":
        raise ValueError("a member has no header")
    return member.header_offset + _MEMBER.size + header[-2] + header[-1]


def _state_of(file: BufferedReader) -> tuple[int, ...]:
    """Values that change when a file is written or replaced."""
    stats = os.fstat(file.fileno())
    return stats.st_dev, stats.st_ino, stats.st_size, stats.st_mtime_ns


class ArrayHeader(NamedTuple):
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    length: int  # in bytes, what comes before it included


def _filled(stream: io.BufferedIOBase, header: ArrayHeader, source: str) -> np.ndarray:
    """The array of this header, whose numbers come next in the stream."""
    # Filled in place, without a second copy.
    buffer, filled = np.empty(math.prod(header.shape) * header.dtype.itemsize, np.uint8), 0
    while filled < len(buffer):
        read = stream.readinto(memoryview(buffer.data)[filled : filled + BLOCK])
        if not read:
            raise InputError(f"{source}: was cut short while it was read, or is damaged; {AGAIN}")
        filled += read
    array = _of_characters(buffer.view(header.dtype), source)
    return array.reshape(header.shape[::-1]).T if header.fortran_order else array.reshape(header.shape)


def _of_characters(array: np.ndarray, source: str) -> np.ndarray:
    """The array; its text, if it is one, has only code points that are characters. NumPy's functions fail on others."""
    if array.dtype.kind == "U" and array.size:
        points = array.view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if points.max() > LAST_CHARACTER or ((points >= 0xD800) & (points < 0xE000)).any():
            raise InputError(
                f"{source}: has text with code points that are no characters; is it damaged? Save it again."
            )
    return array


def _checked_header(stream: io.BufferedIOBase, length: int, source: str, max_bytes: int) -> ArrayHeader:
    """The header of an array of plain numbers or text that `length` bytes can hold."""
    with parsing(f"{source}: is not a NumPy array file", "save it with np.save."):
        header = _read_header(stream)
    dtype = header.dtype
    if dtype.names is not None or dtype.itemsize == 0 or dtype.kind not in "biufSU":
        pickled = " contains pickled objects, which could run code when read, or" if dtype.hasobject else ""
        raise InputError(
            f"{source}:{pickled} has values of type {dtype}; save it again with np.save or np.savez without object "
            "arrays, as plain numbers or text (dtype str, ragged lists padded)."
        )
    size = math.prod(header.shape) * dtype.itemsize
    refuse_larger(source, size, max_bytes)
    whole = header.length + size
    if whole > length:
        raise InputError(f"{source}: is cut short ({length} bytes of {whole}); was the copy or download interrupted?")
    # If one axis is 0 the other axes take no bytes, but could still be iterated over endlessly.
    if max(header.shape, default=0) > whole:
        raise InputError(f"{source}: is not a NumPy array file (shape {header.shape}); save it with np.save.")
    return header


def _read_header(stream: io.BufferedIOBase) -> ArrayHeader:
    magic = stream.read(8)
    version = np.lib.format.read_magic(io.BytesIO(magic))
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"format version {version[0]}.{version[1]}")
    digits = stream.read(2 * version[0])
    length = int.from_bytes(digits, "little")
    if length > LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    text = io.BytesIO(digits + stream.read(length))
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran_order, dtype = read(text)
    if len(shape) > MOST_AXES or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"shape {shape}")
    return ArrayHeader(shape, fortran_order, dtype, len(magic) + len(digits) + length)

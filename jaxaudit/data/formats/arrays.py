"""Reads untrusted .npy and .npz files: no pickles, and sizes are bounded."""

import io
import math
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxaudit.data.formats.bounded import MOST_DEFLATED, Readable, read_exactly
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.errors import InputError

LONGEST_HEADER = 10_000
"""NumPy's own bound."""


def read_npy(path: Path, max_bytes: int = MAX_BYTES, *, links: bool = True) -> np.ndarray:
    """The array in a .npy file.

    Args:
        path: the file.
        max_bytes: the most that it may have.
        links: whether it may be a link to one.

    Raises:
        InputError: when it is not a .npy file, is cut short, holds pickled objects or more than `max_bytes`.
    """
    with open_data(path, links=links) as stream, parsing(f"{path}: cannot be read", "is the file whole?"):
        return _read_array(stream, file_size(stream), path.name, max_bytes)


def map_npy(path: Path, start: int = 0, length: int | None = None, *, links: bool = False) -> np.ndarray:
    """The array in a .npy file, mapped read-only: only what is looked at is read, nothing is allocated.

    Args:
        path: the file, or one that holds it as it is, such as a .npz.
        start, length: where it begins there, and its bytes.
        links: whether `path` may be a link.

    Raises:
        InputError: when it is not a .npy file, is cut short or holds pickled objects.
    """
    with open_data(path, links=links) as stream, parsing(f"{path}: cannot be read", "is the file whole?"):
        stream.seek(start)
        header = _checked_header(stream, file_size(stream) - start if length is None else length, path.name)
        order = "F" if header.fortran_order else "C"
        return np.asarray(np.memmap(stream, header.dtype, "r", start + header.length, header.shape, order))


def npy_shape(path: Path) -> tuple[int, ...]:
    """The shape of the array in a .npy file, of which no more is read; raises as `read_npy`."""
    with open_data(path) as stream, parsing(f"{path}: cannot be read", "is the file whole?"):
        return _checked_header(stream, file_size(stream), path.name).shape


class NpzArrays:
    """The arrays of a .npz file, read one at a time when asked for.

    Raises:
        InputError: when it is not a .npz file, or its arrays would unpack to more than `max_bytes`, or to more than
            its bytes can hold.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.max_bytes = path, max_bytes
        with (
            open_data(path) as file,
            parsing(f"{path}: is not a readable .npz file", "save it with np.savez."),
            zipfile.ZipFile(file) as archive,
        ):
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"{path}: is compressed in a way that NumPy does not use; save it with np.savez.")
            if member.file_size > MOST_DEFLATED * (member.compress_size + 1):
                raise InputError(f"{path}: is damaged (its stated sizes exceed its bytes); save it again.")
        total = sum(member.file_size for member in members)
        if total > max_bytes:
            raise InputError(
                f"{path}: unpacks to {total / 2**30:.1f} GiB, more than the allowed {max_bytes / 2**30:.1f} GiB; "
                "split it into smaller files."
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
        # A member never yields more than the size it declares: zipfile stops there.
        with (
            open_data(self.path) as file,
            parsing(f"{source}: is damaged or encrypted", "save it again."),
            zipfile.ZipFile(file) as archive,
            archive.open(member) as stream,
        ):
            return _read_array(stream, member.file_size, source, self.max_bytes)


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    length: int  # in bytes, what comes before it included


def _read_array(stream: Readable, length: int, source: str, max_bytes: int) -> np.ndarray:
    """As NumPy reads it, but the header is checked against the file's length before anything is allocated."""
    header = _checked_header(stream, length, source, max_bytes)
    array = read_exactly(stream, math.prod(header.shape) * header.dtype.itemsize).view(header.dtype)
    return array.reshape(header.shape[::-1]).T if header.fortran_order else array.reshape(header.shape)


def _checked_header(stream: Readable, length: int, source: str, max_bytes: int | None = None) -> _Header:
    """The header of an array of plain numbers or text that `length` bytes can hold."""
    with parsing(f"{source}: is not a NumPy array file", "save it with np.save."):
        header = _read_header(stream)
    dtype = header.dtype
    if dtype.hasobject:
        raise InputError(
            f"{source}: contains pickled objects, which could run code when read; save it again with np.save or "
            "np.savez without object arrays (text as dtype str, ragged lists padded)."
        )
    if dtype.names is not None or dtype.itemsize == 0 or dtype.kind not in "biufSU":
        raise InputError(f"{source}: has values of type {dtype}; save plain numbers or text.")
    size = math.prod(header.shape) * dtype.itemsize
    if max_bytes is not None and size > max_bytes:
        raise InputError(
            f"{source}: has {size / 2**30:.1f} GiB, more than the allowed {max_bytes / 2**30:.1f} GiB; split it into "
            "smaller files."
        )
    whole = header.length + size
    if whole > length:
        raise InputError(f"{source}: is cut short ({length} bytes of {whole}); was the copy or download interrupted?")
    # Where one axis is 0 the others take no bytes, and could still be walked along for ever.
    if max(header.shape, default=0) > whole:
        raise InputError(f"{source}: is not a NumPy array file (shape {header.shape}); save it with np.save.")
    return header


def _read_header(stream: Readable) -> _Header:
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
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"shape {shape}")
    return _Header(shape, fortran_order, dtype, len(magic) + len(digits) + length)

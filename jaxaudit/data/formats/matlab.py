"""SVHN's cropped digits as MATLAB files (train_32x32.mat, test_32x32.mat)."""

import math
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.bounded import Readable, read_exactly
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.errors import InputError

# The format is "MAT-File Level 5": codes of arrays, and of numbers as they lie in the file.
_KINDS = (
    *("unknown", "cell", "struct", "object", "char", "sparse", "double", "single"),
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
)
_NUMERIC = {"double": "f8", "single": "f4"} | {kind: kind for kind in _KINDS if "int" in kind}
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_LONGEST_PART = 2**12  # of an array's shape or name, in bytes


class _Variable(NamedTuple):
    kind: str
    shape: tuple[int, ...]
    place: int  # of its element in the file


def load_mat(path: Path, max_bytes: int = MAX_BYTES) -> Examples:
    """The images `X` (`[h, w, channels, n]`) and labels `y` of a MATLAB file, as `uint8[n, h, w, channels]`.

    Labels that lie within 1..10 are SVHN's: 10 means the digit 0, and the classes are "0".."9".

    Nothing else in the file is unpacked, and of these two no more than their shapes say.

    Raises:
        InputError: when the file is damaged or of MATLAB's version 4 or 7.3, or X and y are not as above.

    Source: Netzer et al. (2011), Reading Digits in Natural Images with Unsupervised Feature Learning, format
        2.
    """
    with (
        open_data(path) as file,
        parsing(f"{path}: is not a readable MATLAB file", "save it with save(..., '-v7') or as .npz."),
    ):
        head = file.read(128)
        if head.startswith(b"MATLAB 7.3"):
            raise InputError(
                f"{path}: is a MATLAB 7.3 (HDF5) file, which is not read; save it with save(..., '-v7') or as .npz."
            )
        order = {b"IM": "<", b"MI": ">"}[head[126:128]]
        variables = dict(_variables(file, order))
        _check(variables, path, max_bytes)
        images, labels = (_values(file, variables[name], order) for name in ("X", "y"))
    labels, source = labels.ravel(), f"{path.name}, y"
    if labels.size and labels.min() >= 1 and labels.max() <= 10:
        encode_labels(labels, None, source)
        codes, names = (labels.astype(np.int64) % 10).astype(np.int32), tuple("0123456789")
    else:
        codes, names = encode_labels(labels, None, source)
    return Examples(np.ascontiguousarray(np.transpose(images, (3, 0, 1, 2))), codes, names, path.name)


def _check(variables: dict[str, _Variable], path: Path, max_bytes: int) -> None:
    """Refuses what is no such set before any of it is unpacked."""
    for name in ("X", "y"):
        if name not in variables:
            raise InputError(
                f"{path}: has no variable {name}; SVHN's files have X [32, 32, 3, n] and y [n, 1], this "
                f"one has {', '.join(list(variables)[:10]) or 'nothing'}."
            )
    kind, shape, _ = variables["X"]
    if len(shape) != 4 or 0 in shape or kind != "uint8":
        raise InputError(f"{path}: X is {kind} of shape {shape}, not uint8 [height, width, channels, n].")
    if 8 * math.prod(shape) > max_bytes:
        raise InputError(f"{path}: X of shape {shape} is larger than {max_bytes / 2**30:.1f} GiB; split it.")
    kind, marks, _ = variables["y"]
    if math.prod(marks) != shape[3] or kind not in _NUMERIC:
        raise InputError(
            f"{path}: y is {kind} of shape {marks}, but X has {shape[3]} images; give one label per image."
        )


def _variables(file: BufferedReader, order: str) -> Iterator[tuple[str, _Variable]]:
    """The arrays' names, kinds and shapes, of which only the first bytes are unpacked."""
    end, place = file_size(file), file.tell()
    while place < end:
        file.seek(place)
        _, length, _ = _tag(file, order)
        stream = _element(file, order, place)
        if stream is not None:
            name, kind, shape = _describe(stream, order)
            yield name, _Variable(kind, shape, place)
        place += 8 + length


def _element(file: BufferedReader, order: str, place: int) -> Readable | None:
    """The inside of the array that begins at `place`, unpacked; None where something else does."""
    file.seek(place)
    stream: Readable = file
    kind, length, _ = _tag(stream, order)
    if place + 8 + length > file_size(file):
        raise EOFError("it is cut short")
    if kind == _COMPRESSED:
        stream = _Inflated(file, length)
        kind, _, _ = _tag(stream, order)
    return stream if kind == _MATRIX else None


def _describe(stream: Readable, order: str) -> tuple[str, str, tuple[int, ...]]:
    """The name, kind and shape at the beginning of an array."""
    flags = int(np.frombuffer(_part(stream, order), f"{order}u4")[0])
    shape = tuple(int(extent) for extent in np.frombuffer(_part(stream, order), f"{order}i4"))
    if min(shape) < 0:
        raise ValueError(f"shape {shape}")
    kind = _KINDS[flags & 0xFF]
    return _part(stream, order).decode("ascii"), "complex" if flags & 0x800 else kind, shape


def _values(file: BufferedReader, variable: _Variable, order: str) -> np.ndarray:
    stream = _element(file, order, variable.place)
    assert stream is not None
    _describe(stream, order)
    code, length, packed = _tag(stream, order)
    stored = np.dtype(order + _NUMBERS[code])
    if length != math.prod(variable.shape) * stored.itemsize:
        raise ValueError(f"{length} bytes of numbers for shape {variable.shape}")
    data = read_exactly(stream, length) if packed is None else np.frombuffer(packed, np.uint8)
    values = data.view(stored).astype(_NUMERIC[variable.kind], copy=False)
    return values.reshape(variable.shape[::-1]).T


def _part(stream: Readable, order: str) -> bytes:
    """The bytes of the next part of an array's description."""
    _, length, packed = _tag(stream, order)
    if packed is not None:
        return packed
    if length > _LONGEST_PART:
        raise ValueError(f"a description of {length} bytes")
    return read_exactly(stream, -(-length // 8) * 8)[:length].tobytes()


def _tag(stream: Readable, order: str) -> tuple[int, int, bytes | None]:
    """(code, length in bytes, the bytes themselves where they are so few that they lie within the tag)."""
    tag = read_exactly(stream, 8).tobytes()
    code, length = np.frombuffer(tag, f"{order}u4").tolist()
    if code >> 16:
        return code & 0xFFFF, code >> 16, tag[4 : 4 + (code >> 16)]
    return code, length, None


class _Inflated:
    """A compressed element of a file, unpacked no further than it is read."""

    def __init__(self, file: BufferedReader, length: int) -> None:
        self.file, self.left, self.inflate = file, length, zlib.decompressobj()

    def read(self, size: int = -1, /) -> bytes:
        while True:
            packed = self.inflate.unconsumed_tail or self.file.read(min(self.left, 2**16))
            self.left -= 0 if self.inflate.unconsumed_tail else len(packed)
            data = self.inflate.decompress(packed, size)
            if data or not packed:
                return data

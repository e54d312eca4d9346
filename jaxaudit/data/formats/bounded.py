"""Untrusted files as streams of bytes: unpacked if gzipped, and never more than a limit."""

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import GzipFile
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import open_data
from jaxaudit.errors import InputError

MOST_DEFLATED = 1032
"""The largest compression ratio of deflate (gzip, zip, MATLAB)."""
_BLOCK = 2**22
_LONGEST_HEADER = 2**20
_MOST_COLUMNS = 10_000


@runtime_checkable
class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes: ...


@contextmanager
def open_bounded(path: Path, max_bytes: int | None = MAX_BYTES) -> Iterator[io.BufferedIOBase]:
    """The bytes of a regular file, unpacked where its first two bytes say gzip, as a stream to read from.

    Reading past `max_bytes` unpacked bytes raises, so a small file that unpacks to a huge one does no harm; None is
    for a file that is read in pieces, however large.

    Raises:
        InputError: when the file is missing, no regular file, cut short, damaged or holds more than `max_bytes`; also
            for what the caller's reading runs into.
    """
    try:
        with open_data(path) as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            source: io.BufferedIOBase = GzipFile(fileobj=file) if packed else file
            with io.BufferedReader(_Bounded(source, max_bytes, path), 2**20) as stream:
                yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); was the download interrupted?") from error


def read_exactly(stream: Readable, size: int) -> np.ndarray:
    """`uint8[size]`: the next bytes of a stream, read in place, so that no second copy is made.

    Raises:
        EOFError: when the stream ends before.
    """
    buffer = np.empty(size, np.uint8)
    view, place = memoryview(buffer.data), 0
    while place < size:
        block = stream.read(min(_BLOCK, size - place))
        if not block:
            raise EOFError(f"{place} bytes of {size}")
        view[place : place + len(block)] = block
        place += len(block)
    return buffer


def header_line(stream: io.BufferedIOBase, path: Path) -> bytes:
    """The first line of a table. Parsers of CSV take seconds, or end the process, if there are too many columns.

    Raises:
        InputError: it has more than 10,000 columns or 1 MiB.
    """
    line = stream.readline(_LONGEST_HEADER)
    if len(line) == _LONGEST_HEADER or line.count(b",") >= _MOST_COLUMNS:
        raise InputError(
            f"{path}: its first line has more than {_MOST_COLUMNS:,} columns or 1 MiB; is it the right file?"
        )
    return line


class _Bounded(io.RawIOBase):
    def __init__(self, source: io.BufferedIOBase, max_bytes: int | None, path: Path) -> None:
        self.source, self.max_bytes, self.path, self.place = source, max_bytes, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview | bytearray, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self.source.read(len(buffer))
        self.place += len(data)
        if self.max_bytes is not None and self.place > self.max_bytes:
            raise InputError(
                f"{self.path}: has more than the allowed {self.max_bytes / 2**30:.1f} GiB; split it into smaller files."
            )
        buffer[: len(data)] = data
        return len(data)

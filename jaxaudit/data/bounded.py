"""Files from strangers as streams of bytes: unpacked when gzipped, and never more than is allowed."""

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import GzipFile
from pathlib import Path

from jaxaudit.data.arrays import MAX_BYTES
from jaxaudit.errors import InputError


@contextmanager
def open_bounded(path: Path, max_bytes: int | None = MAX_BYTES) -> Iterator[io.BufferedIOBase]:
    """The bytes of a file, unpacked where its first two bytes say gzip, as a stream to read from.

    Reading past `max_bytes` unpacked bytes raises, so a small file that unpacks to a huge one does no harm; None is
    for a file that is read in pieces, however large.

    Raises:
        InputError: when the file is missing, cut short, damaged or holds more than `max_bytes`; also for what the
            caller's reading runs into.
    """
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            source: io.BufferedIOBase = GzipFile(fileobj=file) if packed else file
            with io.BufferedReader(_Bounded(source, max_bytes, path), 2**20) as stream:
                yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); was the download interrupted?") from error


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
                f"{self.path}: holds more than the {self.max_bytes / 2**30:.1f} GiB that are allowed; split it "
                "into smaller files."
            )
        buffer[: len(data)] = data
        return len(data)

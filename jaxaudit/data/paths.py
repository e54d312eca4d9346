"""Paths from the command line or in untrusted folders: only regular files are opened, and writes are atomic."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader, FileIO
from pathlib import Path
from typing import Any

from jaxaudit.errors import InputError

BUFFER = 1 << 16
"""Bytes that are read at once, where less is asked for."""


def expanded(path: str | Path) -> Path:
    """`path` with `~` as the home folder; unchanged if the home folder is unknown (`~someone`, a user without one)."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def exists(path: Path) -> bool:
    """Whether this file or folder exists; False also for an impossible path (too long, a NUL character)."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed ({error.strerror}); is it a folder that you may read?") from error


def open_data(path: Path, *, links: bool = True) -> BufferedReader:
    """Opens a regular file of data, as `open_regular`, with error messages for the user, also while reading."""
    try:
        with open_regular(path, links=links) as file:
            # A copy of the handle, since the one of `file` is closed with it.
            return BufferedReader(_Told(os.dup(file.fileno()), path), BUFFER)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


class _Told(FileIO):
    """An open file whose reading fails with an InputError."""

    def __init__(self, handle: int, path: Path) -> None:
        super().__init__(handle, "rb")
        self._path = path

    def readinto(self, buffer: Any, /) -> int:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise _unreadable(self._path, error) from error


def read_small(path: Path, most_bytes: int, *, links: bool = True) -> bytes:
    """All bytes of a file, such as one that describes others, which may have at most `most_bytes`."""
    with open_data(path, links=links) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise InputError(f"{path}: has more than {most_bytes:,} bytes; is it the file that its name says?")
    return data


def file_size(file: BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def regular_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file below a folder, for parsers that open files; a pipe, a device or a linked folder is refused."""
    waiting = [folder]
    while waiting:
        for path in entries(waiting.pop()):
            try:
                status = path.stat()
                nested = stat.S_ISDIR(status.st_mode) and not path.is_symlink()
                if not nested:
                    refuse_irregular(status, path)
            except OSError as error:
                raise _unreadable(path, error) from error
            if nested:
                waiting.append(path)
            else:
                yield path, status


def _unreadable(path: Path, error: OSError | ValueError) -> InputError:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    return InputError(f"{path}: cannot be read ({reason}); is the path right, and may you read it?")


DRAFT = ".writing-"
"""Prefix of the name of a file that is still being written."""
_NOT_LINKS: int = getattr(os, "O_NOFOLLOW", 0)
_BYTES_NOT_WAITING: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path, *, links: bool = True) -> BufferedReader:
    """Opens a regular file, or a link to one if `links`; an OSError for all else: on a FIFO opening would block."""
    refuse_irregular(os.stat(path) if links else os.lstat(path), path)
    handle = os.open(path, os.O_RDONLY | _BYTES_NOT_WAITING | (0 if links else _NOT_LINKS))
    file = os.fdopen(handle, "rb")
    try:
        # The file may have been replaced since it was checked.
        refuse_irregular(os.fstat(handle), path)
    except OSError:
        file.close()
        raise
    return file


def refuse_irregular(status: os.stat_result, path: Path) -> None:
    """Raises an `OSError` for anything but a regular file; its `strerror` says what it is."""
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder"}
    if not stat.S_ISREG(status.st_mode):
        kind_words = kinds.get(stat.S_IFMT(status.st_mode), "a pipe or a device, not a file")
        raise OSError(errno.EINVAL, f"it is {kind_words}", os.fspath(path))


@contextmanager
def whole_file(
    path: Path, *, drafts: Path | None = None, private: bool = True, lasting: bool = True
) -> Iterator[BufferedRandom]:
    """A file to write, which appears at `path`, complete, when the block ends. It is written under an unpredictable
    name in `drafts` (by default the folder of `path`), without following links. `private`: only its owner may read it.
    `lasting`: waits, some milliseconds, until it survives a loss of power.
    """
    draft = (drafts or path.parent) / f"{DRAFT}{secrets.token_hex(8)}"
    mode = 0o600 if private else 0o666
    try:
        # Within the block, since an interruption may arrive as soon as the file is there.
        with open(draft, "x+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise

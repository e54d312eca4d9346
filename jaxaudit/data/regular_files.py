"""Safe access to files in folders that others can write to: only regular files are read, and writes are atomic."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import cast

DRAFT = ".writing-"
"""Prefix of the name of a file that is still being written."""
_NOT_LINKS: int = getattr(os, "O_NOFOLLOW", 0)
_BYTES_NOT_WAITING: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path, *, links: bool = True) -> BufferedReader:
    """Opens a regular file to read; a FIFO, on which opening would block, or a device is never opened.

    Args:
        path: the file.
        links: whether it may be a link to a regular file.

    Raises:
        OSError: it does not exist, is not a regular file, or cannot be read.
    """
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


def refuse_irregular(found: os.stat_result, path: Path) -> None:
    """Rejects anything but a regular file.

    Raises:
        OSError: it is not a regular file; `strerror` says what it is.
    """
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder"}
    if not stat.S_ISREG(found.st_mode):
        what = kinds.get(stat.S_IFMT(found.st_mode), "a pipe or a device, not a file")
        raise OSError(errno.EINVAL, f"it is {what}", os.fspath(path))


@contextmanager
def whole_file(
    path: Path, *, drafts: Path | None = None, private: bool = True, lasting: bool = True
) -> Iterator[BufferedRandom]:
    """A file to write, which appears at `path` when the block ends; if the block fails, nothing is left.

    It is written under an unpredictable name, without following links, flushed to disk if `lasting`, and then renamed.
    So a reader sees the complete new file or the previous one.

    Args:
        path: where it goes; an existing file is replaced. A link is replaced, not followed.
        drafts: the folder to write it in, on the same disk; by default that of `path`.
        private: whether only its owner may read it; else the umask decides.
        lasting: whether to wait, some milliseconds, until it is on disk: only then it survives a loss of power.

    Raises:
        OSError: it cannot be written.
    """
    draft = (drafts or path.parent) / f"{DRAFT}{secrets.token_hex(8)}"
    mode = 0o600 if private else 0o666
    opened = open(draft, "x+b", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
    try:
        with opened as file:
            yield cast(BufferedRandom, file)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise

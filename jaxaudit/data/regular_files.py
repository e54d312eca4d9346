"""Files in places that others can write: only regular files are read, and writes are atomic."""

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
"""How the name of a file begins that is still being written."""
_NOT_LINKS: int = getattr(os, "O_NOFOLLOW", 0)
_BYTES_NOT_WAITING: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path, *, links: bool = True) -> BufferedReader:
    """Opens a regular file to read; a FIFO, which would be waited for, or a device is never opened.

    Args:
        path: the file.
        links: whether it may be a link to one.

    Raises:
        OSError: it is not there, is no such file or cannot be read.
    """
    refuse_irregular(os.stat(path) if links else os.lstat(path), path)
    handle = os.open(path, os.O_RDONLY | _BYTES_NOT_WAITING | (0 if links else _NOT_LINKS))
    file = os.fdopen(handle, "rb")
    try:
        # What stands there may have changed since.
        refuse_irregular(os.fstat(handle), path)
    except OSError:
        file.close()
        raise
    return file


def refuse_irregular(found: os.stat_result, path: Path) -> None:
    """Refuses what is no regular file.

    Raises:
        OSError: where it is none; its `strerror` says what it is.
    """
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder"}
    if not stat.S_ISREG(found.st_mode):
        what = kinds.get(stat.S_IFMT(found.st_mode), "a pipe or a device, not a file")
        raise OSError(errno.EINVAL, f"it is {what}", os.fspath(path))


@contextmanager
def whole_file(
    path: Path, *, drafts: Path | None = None, private: bool = True, lasting: bool = True
) -> Iterator[BufferedRandom]:
    """A file to write, which stands at `path` when the block is through; where that fails nothing is left.

    It is written under a name that nobody can foresee, through no link, brought to the disk (`lasting`) and then moved,
    so that a reader sees all of it or what was there before.

    Args:
        path: where it goes; what is there is replaced, a link itself and not what it points to.
        drafts: the folder to write it in, on the same disk; by default that of `path`.
        private: whether nobody but its owner may read it; else whom the umask lets.
        lasting: whether to wait until the disk has it, some milliseconds: only then it is whole after a loss of power.

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

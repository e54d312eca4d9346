"""Paths that a person typed or a stranger's folder holds; only regular files are ever opened."""

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from jaxaudit.errors import InputError


def expanded(path: str | Path) -> Path:
    """`path` with `~` as the home folder; as it is where no home is known (`~someone`, a user without one)."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; False too where none can be called so (too long, a NUL character)."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def entries(folder: Path) -> list[Path]:
    """What lies in a folder, sorted by name.

    Raises:
        InputError: when it cannot be listed.
    """
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed ({error.strerror}); is it a folder that you may read?") from error


def open_regular(path: Path) -> BufferedReader:
    """A regular file, opened to read its bytes.

    Guarantees: a pipe, a device or a socket in a stranger's folder is neither waited for nor opened, not even where it
    takes the file's place meanwhile.

    Raises:
        InputError: when there is no such file, it is of another kind, or may not be read.
    """
    try:
        _refuse_irregular(path, path.stat())
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            _refuse_irregular(path, os.fstat(descriptor))
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise InputError(f"{path}: cannot be read ({reason}); is the path right, and may you read it?") from error


def file_size(file: BufferedReader) -> int:
    """The bytes of an open regular file."""
    return os.fstat(file.fileno()).st_size


def regular_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file below a folder, for parsers that open files by themselves; links to files are followed.

    Raises:
        InputError: at a pipe, a device, a socket, a link to a folder or to nothing, or a folder that cannot
            be listed.
    """
    waiting = [folder]
    while waiting:
        for path in entries(waiting.pop()):
            try:
                status = path.stat()
            except OSError as error:
                raise InputError(
                    f"{path}: cannot be read ({error.strerror}); is the folder copied whole, links and all?"
                ) from error
            if stat.S_ISDIR(status.st_mode) and not path.is_symlink():
                waiting.append(path)
            else:
                _refuse_irregular(path, status)
                yield path, status


def _refuse_irregular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = "a folder or a link to one" if stat.S_ISDIR(status.st_mode) else "no regular file (a pipe or a device)"
        raise InputError(f"{path}: is {what}; only files are read as data.")

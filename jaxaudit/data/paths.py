"""Paths from the command line or in untrusted folders; only regular files are opened."""

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from jaxaudit.data.regular_files import open_regular, refuse_irregular
from jaxaudit.errors import InputError


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
    """The files and folders in a folder, sorted by name.

    Raises:
        InputError: it cannot be listed.
    """
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed ({error.strerror}); is it a folder that you may read?") from error


def open_data(path: Path, *, links: bool = True) -> BufferedReader:
    """Opens a regular file of data to read its bytes: `open_regular` with error messages for the user.

    Guarantees: a pipe, a device or a socket is never opened or waited for, not even if it replaces the file in the
    meantime.

    Raises:
        InputError: when there is no such file, it is of another kind, or may not be read.
    """
    try:
        return open_regular(path, links=links)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def read_small(path: Path, most_bytes: int) -> bytes:
    """All bytes of a small file, such as one that describes other files.

    Raises:
        InputError: as `open_data`; or it has more than `most_bytes`.
    """
    with open_data(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise InputError(f"{path}: has more than {most_bytes >> 20} MiB; is it the file that its name says?")
    return data


def file_size(file: BufferedReader) -> int:
    """The bytes of an open regular file."""
    return os.fstat(file.fileno()).st_size


def regular_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file below a folder, for parsers that open files by themselves; links to files are followed.

    Raises:
        InputError: at a pipe, a device, a socket, a link to a folder or to nothing, or a folder that cannot be listed.
    """
    waiting = [folder]
    while waiting:
        for path in entries(waiting.pop()):
            try:
                status = path.stat()
            except OSError as error:
                raise InputError(
                    f"{path}: cannot be read ({error.strerror}); was the folder copied completely, with its links?"
                ) from error
            if stat.S_ISDIR(status.st_mode) and not path.is_symlink():
                waiting.append(path)
            else:
                try:
                    refuse_irregular(status, path)
                except OSError as error:
                    raise _unreadable(path, error) from error
                yield path, status


def _unreadable(path: Path, error: OSError | ValueError) -> InputError:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    return InputError(f"{path}: cannot be read ({reason}); is the path right, and may you read it?")

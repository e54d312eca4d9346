"""A run on disk: written completely or not at all, and never over another run.

result.json and others    the finished run; result.json is written last
table.txt                 the output of the command, for `report --text`
unfinished/               the work of a run that is not finished

A run shows which records are at risk, so only its owner may read its files, whatever the umask is.
"""

import json
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from jaxaudit.data.bank.bank import ARRAYS as BANK_ARRAYS
from jaxaudit.data.bank.description import DESCRIPTION
from jaxaudit.data.regular_files import whole_file
from jaxaudit.errors import InputError
from jaxaudit.runs.lock import refuse_in_use
from jaxaudit.runs.unfinished import NAME, is_unfinished, make_directories, remove_empty

RESULT, TABLE = "result.json", "table.txt"
OTHERS = {TABLE, "confidences.npz", "records.csv", "records.parquet", "outputs.npz", "forget.npz", "scores.npz"}
OTHERS |= {*BANK_ARRAYS, DESCRIPTION}
"""What commands put beside it, and"""
WEIGHTS = ".safetensors"
"""how the names of weights there end."""


Writer = Callable[[IO[bytes]], None]
"""Writes the content of a file into it, open."""


def claim(directory: Path) -> None:
    """Refuses a directory that could not be written, before any work is done.

    A directory with an unfinished run is accepted; `open_unfinished` checks whether it is the same run.

    Raises:
        InputError: it contains something else, another process uses it, or it cannot be written.
    """
    refuse_taken(directory)
    refuse_in_use(directory / NAME)


def refuse_taken(directory: Path) -> None:
    """The same, but for the other process.

    Raises:
        InputError: where it holds something else already, or cannot be written.
    """
    try:
        _refuse_taken(directory)
    except OSError as error:
        raise InputError(f"`directory` {directory} cannot be a directory: {error.strerror}; name another.") from error


def is_of_a_run(name: str) -> bool:
    """Whether a run may put something of this name into its directory, on disks that know no small letters, too."""
    name = name.lower()
    return name in (RESULT, NAME, *OTHERS) or name.endswith(WEIGHTS)


def write(
    directory: Path,
    result: Mapping[str, Any],
    files: Mapping[str, Callable[[IO[bytes]], None]],
    table: str | None = None,
) -> None:
    """Writes `result.json` and the other files into `directory` and removes the unfinished work there.

    Each is written beside that work and then moved to its place, `result.json` last. Where that fails, nothing is left
    but the work.

    Args:
        directory: as `claim` wants it.
        result: for `result.json`.
        files: names, and what writes each into an open file.
        table: for `table.txt`, see `table_text`.

    Raises:
        InputError: where it is taken, or cannot be written.
    """
    text = json.dumps(result, indent=1, allow_nan=False) + "\n"
    texts = {RESULT: text} if table is None else {TABLE: table, RESULT: text}
    saves = {**files, **{name: _as_text(text) for name, text in texts.items()}}
    refuse_taken(directory)
    try:
        _write(Path(os.path.realpath(directory)), saves)
    except OSError as error:
        raise InputError(
            f"`directory` {directory} cannot be written ({error.strerror or error}); free space there and repeat the "
            "command, which continues from kept work."
        ) from error


def write_files(directory: Path, files: Mapping[str, Writer]) -> None:
    """Writes these files into a new directory, in this order; where that fails, nothing is left.

    Args:
        directory: as `claim` wants it.
        files: names, also in new folders there, and what writes each into an open file; those before it are in their
            place by then.

    Raises:
        InputError: it is taken, or cannot be written; or as what writes a file.
    """
    refuse_taken(directory)
    try:
        _write(Path(os.path.realpath(directory)), files)
    except OSError as error:
        raise InputError(
            f"`directory` {directory} cannot be written ({error.strerror or error}); free space there, or name another "
            "directory."
        ) from error


def _write(directory: Path, saves: Mapping[str, Callable[[IO[bytes]], None]]) -> None:
    """The last file says that all are there."""
    work, last = directory / NAME, list(saves)[-1]
    made = make_directories(work)
    folders = tuple({(directory / name).parent for name in saves} - {directory})
    try:
        for folder in folders:
            folder.mkdir(mode=0o700)
        for name, save in saves.items():
            with whole_file(directory / name, drafts=work) as file:
                save(file)
    except BaseException:
        for name in () if (directory / last).exists() else saves:
            (directory / name).unlink(missing_ok=True)
        remove_empty((*folders, *made))
        raise
    shutil.rmtree(work, ignore_errors=True)


def _as_text(text: str) -> Callable[[IO[bytes]], None]:
    def save(file: IO[bytes]) -> None:
        file.write(text.encode())

    return save


def arrays(named: Mapping[str, np.ndarray]) -> Callable[[IO[bytes]], None]:
    """Writes arrays as a compressed .npz."""
    return lambda file: np.savez_compressed(file, allow_pickle=False, **named)


def _refuse_taken(directory: Path) -> None:
    taken = directory.exists()
    if taken and not directory.is_dir():
        raise InputError(f"`directory` {directory} is a file; name a directory that does not exist yet.")
    if taken and not _is_free(directory):
        what = "another run" if (directory / RESULT).exists() else "other files"
        raise InputError(
            f"`directory` {directory} already contains {what}; name a new directory (nothing was changed)."
        )
    place = _existing(directory)
    if not place.is_dir():
        raise InputError(f"`directory` {directory} cannot be written: {place} is a file; name another directory.")
    if not os.access(place, os.W_OK | os.X_OK) or not os.stat(place).st_mode & 0o222:
        raise InputError(f"`directory` {directory} cannot be written: {place} is not writable; name another directory.")


def _is_free(directory: Path) -> bool:
    """Whether it is empty or holds unfinished work alone; a run killed at its very end left the other files, too."""
    names = {path.name for path in directory.iterdir()}
    others = names - {NAME}
    left = all(
        (name in OTHERS or name.endswith(WEIGHTS)) and stat.S_ISREG((directory / name).lstat().st_mode)
        for name in others
    )
    return not names or (left and NAME in names and is_unfinished(directory / NAME))


def _existing(directory: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    place = Path(os.path.realpath(directory))
    while not place.exists():
        place = place.parent
    return place

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
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from jaxaudit.data.bank.bank import ARRAYS as BANK_ARRAYS
from jaxaudit.data.bank.description import DESCRIPTION
from jaxaudit.data.paths import whole_file
from jaxaudit.errors import InputError
from jaxaudit.runs.lock import refuse_in_use
from jaxaudit.runs.unfinished import NAME, is_unfinished, make_directories, remove_empty

RESULT, TABLE = "result.json", "table.txt"
OTHERS = {TABLE, "confidences.npz", "records.csv", "records.parquet", "outputs.npz", "forget.npz", "scores.npz"}
OTHERS |= {*BANK_ARRAYS, DESCRIPTION}
"""Names of files beside the result, and"""
WEIGHTS = ".safetensors"
"""the suffix of weights among them."""


Writer = Callable[[IO[bytes]], None]
"""Writes the content of a file into an open file."""


def claim(directory: Path) -> None:
    """Rejects a directory that could not be written, before any work is done.

    A directory with an unfinished run is accepted; `open_unfinished` checks whether it is the same run.

    Raises:
        InputError: it contains something else, another process uses it, or it cannot be written.
    """
    refuse_taken(directory)
    refuse_in_use(directory / NAME)


def refuse_taken(directory: Path) -> None:
    """As `claim`, but does not check whether another process uses the directory.

    Raises:
        InputError: it already contains something else, or cannot be written.
    """
    try:
        _refuse_taken(directory)
    except OSError as error:
        raise InputError(f"`directory` {directory} cannot be a directory: {error.strerror}; name another.") from error


def is_of_a_run(name: str) -> bool:
    """Whether a run may use this file name in its directory, also on file systems that ignore case."""
    name = name.lower()
    return name in (RESULT, NAME, *OTHERS) or name.endswith(WEIGHTS)


def write(
    directory: Path,
    result: Mapping[str, Any],
    files: Mapping[str, Writer],
    table: str | None = None,
) -> None:
    """Writes `result.json` and the other files into `directory` and removes the unfinished work there.

    Each file is written beside the unfinished work and then moved, `result.json` last. If that fails, only the
    unfinished work remains.

    Args:
        directory: accepted by `claim`.
        result: for `result.json`.
        files: names, and a writer for each open file.
        table: for `table.txt`, see `jaxaudit.cli.show.as_text`.

    Raises:
        InputError: the directory is taken, or cannot be written.
    """
    text = json.dumps(result, indent=1, allow_nan=False) + "\n"
    texts = {RESULT: text} if table is None else {TABLE: table, RESULT: text}
    saves = {**files, **{name: partial(_write_text, text) for name, text in texts.items()}}
    write_files(directory, saves, " and repeat the command, which continues from kept work")


def write_files(directory: Path, files: Mapping[str, Writer], advice: str = ", or name another directory") -> None:
    """Writes these files into a new directory, in this order; if that fails, nothing is left.

    Args:
        directory: accepted by `claim`.
        files: names, also in new folders there, and a writer for each open file; earlier files are in their final place
            when a writer is called.
        advice: what to do once there is space, if the directory cannot be written.

    Raises:
        InputError: the directory is taken, or cannot be written; or as raised by a writer.
    """
    refuse_taken(directory)
    directory, given = Path(os.path.realpath(directory)), directory
    work, last = directory / NAME, list(files)[-1]
    try:
        made = make_directories(work)
        folders = tuple({(directory / name).parent for name in files} - {directory})
        try:
            for folder in folders:
                folder.mkdir(mode=0o700)
            for name, save in files.items():
                with whole_file(directory / name, drafts=work) as file:
                    save(file)
        except BaseException:
            # The last file marks the others as complete.
            for name in () if (directory / last).exists() else files:
                (directory / name).unlink(missing_ok=True)
            remove_empty((*folders, *made))
            raise
    except OSError as error:
        raise InputError(
            f"`directory` {given} cannot be written ({error.strerror or error}); free space there{advice}."
        ) from error
    shutil.rmtree(work, ignore_errors=True)


def _write_text(text: str, file: IO[bytes]) -> None:
    file.write(text.encode())


def arrays(named: Mapping[str, np.ndarray]) -> Writer:
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
    folder = _existing(directory)
    if not folder.is_dir():
        raise InputError(f"`directory` {directory} cannot be written: {folder} is a file; name another directory.")
    if not os.access(folder, os.W_OK | os.X_OK) or not os.stat(folder).st_mode & 0o222:
        raise InputError(
            f"`directory` {directory} cannot be written: {folder} is not writable; name another directory."
        )


def _is_free(directory: Path) -> bool:
    """Whether it is empty or holds only unfinished work, or other files of a run killed at its very end."""
    names = {path.name for path in directory.iterdir()}
    others = names - {NAME}
    left = all(
        (name in OTHERS or name.endswith(WEIGHTS)) and stat.S_ISREG((directory / name).lstat().st_mode)
        for name in others
    )
    return not names or (left and NAME in names and is_unfinished(directory / NAME))


def _existing(directory: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    folder = Path(os.path.realpath(directory))
    while not folder.exists():
        folder = folder.parent
    return folder

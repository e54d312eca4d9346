"""A run on disk: a result that is whole or not there, never over another run.

result.json and others    the finished run; who sees the first sees a whole run
unfinished/               the work so far of one that was not finished
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from jaxaudit.errors import InputError
from jaxaudit.report.unfinished import NAME, is_unfinished, make_directories, refuse_in_use, remove_empty

RESULT = "result.json"
OTHERS = {"confidences.npz", "records.csv", "records.parquet", "outputs.npz", "forget.npz"}
"""What commands put beside it, and"""
WEIGHTS = ".safetensors"
"""how the names of weights there end."""


def claim(directory: Path) -> None:
    """Refuses, before any work is done, a directory that could not be written in the end.

    One with a run that was stopped is taken: whether it is this run, `open_unfinished` finds out.

    Raises:
        InputError: where it holds something else already, another process is at it, or it cannot be written.
    """
    refuse_taken(directory)
    refuse_in_use(directory / NAME)


def refuse_taken(directory: Path) -> None:
    """The same, but for the other process.

    Raises:
        InputError: where it holds something else already, or cannot be written.
    """
    try:
        taken = directory.exists()
    except OSError as error:
        raise InputError(f"--out {directory} cannot be a directory: {error.strerror}; name another.") from error
    if taken and not directory.is_dir():
        raise InputError(f"--out {directory} is a file; name a directory that does not exist yet.")
    if taken and not _is_free(directory):
        what = "another run" if (directory / RESULT).exists() else "other files"
        raise InputError(f"--out {directory} already holds {what}; name a new directory (nothing was changed).")
    place = _existing(directory)
    if not place.is_dir():
        raise InputError(f"--out {directory} cannot be written: {place} is a file; name a directory elsewhere.")
    if not os.access(place, os.W_OK | os.X_OK) or not os.stat(place).st_mode & 0o222:
        raise InputError(f"--out {directory} cannot be written: {place} is not writable; name a directory elsewhere.")


def write(directory: Path, result: Mapping[str, Any], files: Mapping[str, Callable[[IO[bytes]], None]]) -> None:
    """Writes `result.json` and the other files into `directory` and removes the unfinished work there.

    All are written beside that work and then moved to their place, `result.json` last. Where that fails, nothing is
    left but the work.

    Args:
        directory: as `claim` wants it.
        result: for `result.json`.
        files: names, and what writes each into an open file.
    """
    refuse_taken(directory)
    directory = directory.resolve()
    work = directory / NAME
    made = make_directories(work)
    drafts = {name: work / f".writing-{name}" for name in (*files, RESULT)}
    try:
        drafts[RESULT].write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        for name, save in files.items():
            with drafts[name].open("wb") as file:
                save(file)
        for name, draft in drafts.items():
            os.replace(draft, directory / name)
    except BaseException:
        placed = [] if (directory / RESULT).exists() else [directory / name for name in files]
        for path in (*drafts.values(), *placed):
            path.unlink(missing_ok=True)
        remove_empty(made)
        raise
    shutil.rmtree(work, ignore_errors=True)


def arrays(named: Mapping[str, np.ndarray]) -> Callable[[IO[bytes]], None]:
    """Writes arrays as a compressed .npz."""
    return lambda file: np.savez_compressed(file, allow_pickle=False, **named)


def _is_free(directory: Path) -> bool:
    """Whether it is empty or holds unfinished work alone; a run killed at its very end left the other files, too."""
    names = {path.name for path in directory.iterdir()}
    others = {name for name in names if name not in (NAME, *OTHERS) and not name.endswith(WEIGHTS)}
    return not names or (not others and NAME in names and is_unfinished(directory / NAME))


def _existing(directory: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    place = directory.resolve()
    while not place.exists():
        place = place.parent
    return place

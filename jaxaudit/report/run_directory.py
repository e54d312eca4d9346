"""A run on disk: written whole or not at all, never over another run."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxaudit.errors import InputError


def claim(directory: Path) -> None:
    """Refuses, before any work is done, a directory that could not be written in the end.

    Raises:
        InputError: where it holds something already, or its parent cannot be written.
    """
    try:
        taken = directory.exists()
    except OSError as error:
        raise InputError(f"--out {directory} cannot be a directory: {error.strerror}; name another.") from error
    if taken and not directory.is_dir():
        raise InputError(f"--out {directory} is a file; name a directory that does not exist yet.")
    if taken and any(directory.iterdir()):
        what = "another run" if (directory / "result.json").exists() else "other files"
        raise InputError(f"--out {directory} already holds {what}; name a new directory (nothing was changed).")
    parent = _existing_parent(directory)
    if not parent.is_dir():
        raise InputError(f"--out {directory} cannot be written: {parent} is a file; name a directory elsewhere.")
    if not os.access(parent, os.W_OK | os.X_OK) or not os.stat(parent).st_mode & 0o222:
        raise InputError(f"--out {directory} cannot be written: {parent} is not writable; name a directory elsewhere.")


def write(directory: Path, result: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes `result.json` and `confidences.npz` into `directory`, by way of a neighbour that is renamed at the end."""
    claim(directory)
    # A link to a directory cannot be replaced by a rename; what it points to can.
    directory = directory.resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".jaxaudit-", dir=directory.parent))
    try:
        (draft / "result.json").write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        with (draft / "confidences.npz").open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        draft.chmod(0o777 & ~_umask())
        if directory.is_dir():
            directory.rmdir()
        draft.rename(directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _existing_parent(directory: Path) -> Path:
    parent = directory.resolve().parent
    while not parent.exists():
        parent = parent.parent
    return parent


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""The models of a bank that one call of training is about, and where its unfinished work is kept."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Int

from jaxaudit.data.formats.arrays import map_npy
from jaxaudit.data.regular_files import whole_file
from jaxaudit.errors import InputError

FOLDER, MODELS = "unfinished", "models.npy"


@contextmanager
def unfinished_models(
    directory: Path, missing: Int[np.ndarray, " missing"]
) -> Iterator[tuple[Int[np.ndarray, " models"], Path]]:
    """The models that a stopped call was about, so that its unfinished batches are taken up; else those missing.

    Work is in the bank's folder `unfinished` until the block ends without an error.

    Raises:
        InputError: that folder is a link or cannot be written.
    """
    folder = directory / FOLDER
    if folder.is_symlink():
        raise InputError(f"{folder}: is a link; remove it.")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        models = _kept(folder / MODELS)
        if models is None or not np.isin(missing, models).any():
            shutil.rmtree(folder)
            folder.mkdir(mode=0o700)
            models = missing
            with whole_file(folder / MODELS) as file:
                np.lib.format.write_array(file, models, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror or error}).") from error
    yield models, folder
    shutil.rmtree(folder, ignore_errors=True)


def _kept(path: Path) -> Int[np.ndarray, " models"] | None:
    """The models of a stopped call; None without one."""
    try:
        found = np.array(map_npy(path))
    except InputError:
        return None
    return found if found.ndim == 1 and found.dtype.kind == "i" else None

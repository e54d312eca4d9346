"""The models that a call of `shadows train` works on, and the folder of its unfinished work."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Int

from jaxaudit.cli.progress import say
from jaxaudit.data.formats.arrays import read_npy
from jaxaudit.data.paths import open_regular, whole_file
from jaxaudit.errors import InputError

FOLDER, MODELS, VERSIONS = "unfinished", "models.npy", "versions.json"


@contextmanager
def unfinished_models(
    directory: Path, missing: Int[np.ndarray, " missing"], models: int, versions: Mapping[str, str]
) -> Iterator[tuple[Int[np.ndarray, " models"], Path]]:
    """The models of an interrupted call, so that its unfinished batches are resumed; otherwise all missing models.

    Work is in the bank's folder `unfinished` until the block ends without an error.
    """
    folder, ours = directory / FOLDER, json.dumps(versions, sort_keys=True).encode()
    if folder.is_symlink():
        raise InputError(f"{folder}: is a link; remove it.")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        begun = _kept(folder / MODELS, models)
        if begun is not None and _beginning(folder / VERSIONS, len(ours) + 1) != ours:
            say("models in training were begun with other versions of the libraries, and start again")
            begun = None
        if begun is None or not np.isin(missing, begun).any():
            shutil.rmtree(folder)
            folder.mkdir(mode=0o700)
            begun = missing
            with whole_file(folder / MODELS) as file:
                np.lib.format.write_array(file, begun, allow_pickle=False)
            with whole_file(folder / VERSIONS) as file:
                file.write(ours)
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror or error}).") from error
    yield begun, folder
    shutil.rmtree(folder, ignore_errors=True)


def _beginning(path: Path, count: int) -> bytes:
    """The first bytes of a file; none if it cannot be read."""
    try:
        with open_regular(path, links=False) as file:
            return file.read(count)
    except OSError:
        return b""


def _kept(path: Path, models: int) -> Int[np.ndarray, " models"] | None:
    """The models of an interrupted call, each once and in order; None if there is none."""
    try:
        numbers = read_npy(path, links=False)
    except InputError:
        return None
    if numbers.ndim != 1 or numbers.dtype.kind != "i" or not 0 < len(numbers) <= models:
        return None
    return numbers if numbers[0] >= 0 and numbers[-1] < models and (np.diff(numbers) > 0).all() else None

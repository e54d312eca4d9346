"""Writes a bank: its files, and the outputs of a model."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import Float32

from jaxaudit.data.bank.bank import ARRAYS, DESIGNS, MEMBERSHIP, SEEDS
from jaxaudit.data.bank.description import DESCRIPTION, Description, description_json
from jaxaudit.data.bank.outputs import FOLDER, outputs_path
from jaxaudit.data.paths import whole_file

Writer = Callable[[IO[bytes]], None]


def bank_files(
    description: Description,
    arrays: Mapping[str, np.ndarray],
    outputs: Mapping[int, Callable[[], np.ndarray]] | None = None,
) -> dict[str, Writer]:
    """A writer for each file of a bank, `bank.json` last."""
    writers = {name: _array(lambda name=name: arrays[name]) for name in ARRAYS if name in arrays}
    output_writers = {outputs_path(Path(), model).as_posix(): _array(make) for model, make in (outputs or {}).items()}

    def described(file: IO[bytes]) -> None:
        file.write(description_json(description))

    return {**writers, **output_writers, DESCRIPTION: described}


def grow(directory: Path, description: Description, arrays: Mapping[str, np.ndarray]) -> None:
    """Replaces the files that depend on the number of models, `bank.json` last; `load_bank` rejects a partial
    update.
    """
    writers = bank_files(description, {name: arrays[name] for name in (MEMBERSHIP, SEEDS, DESIGNS) if name in arrays})
    for name, write in writers.items():
        with whole_file(directory / name) as file:
            write(file)


def make_folder(directory: Path) -> None:
    """Makes the folder of outputs, if it is not there."""
    (directory / FOLDER).mkdir(mode=0o700, exist_ok=True)


def write_outputs(
    directory: Path, model: int, outputs: Float32[np.ndarray, "n views values"], description: Description
) -> Path:
    """Writes the outputs of a model into its bank, the whole file or none; returns its path."""
    path = outputs_path(directory, model)
    make_folder(directory)
    with whole_file(path) as file:
        np.lib.format.write_array(file, outputs.reshape(description.shape), allow_pickle=False)
    return path


def _array(make: Callable[[], np.ndarray]) -> Writer:
    return lambda file: np.lib.format.write_array(file, np.ascontiguousarray(make()), allow_pickle=False)

"""Shadow models of tensorflow/privacy's `research/mi_lira_2021`, the code of Carlini et al. (2022), and of its port.

y_train.npy                              int [pool]: labels, by train.py
experiment-*/keep.npy                    bool [n]: the records, of the first n, that a model was trained on, by train.py
experiment-*/hparams.json                how it was trained, by train.py
experiment-*/logits/0000000100.npy       float [n, 1, views, classes] after epoch 100, by inference.py
experiment-*/scores/0000000100.npy       float [n, views]: log-odds of each record's own class, by score.py

Of several epochs the last is read. An experiment without outputs is a model that is not trained yet. Names are those
that `train.py` gives (experiment-3_16, experiment-12345) or its README shows (experiment_3_of_16).

The port to PyTorch, orientino/lira-pytorch, writes into folders that are named by a number, keeps no labels, and

0/logits.npy                             float [n, views, classes]
0/scores.npy                             float [n, views]
"""

import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jaxaudit.data.bank.bank import booleans
from jaxaudit.data.bank.description import MOST_MODELS, Kind
from jaxaudit.data.bank.foreign import Foreign, has_array, is_folder, read_labels, refuse_large
from jaxaudit.data.formats.arrays import StoredArray, read_npy
from jaxaudit.data.formats.parsing import parsing, refuse_repeated_keys
from jaxaudit.data.paths import entries, read_small
from jaxaudit.errors import InputError

TOOL, PYTORCH = "tensorflow/privacy mi_lira_2021", "lira-pytorch"
LONGEST_HPARAMS = 1 << 16
LONGEST_RECIPE = 2_000
OWN = {"seed", "expid", "tunename"}
"""Entries of `hparams.json` that are not part of the recipe."""
_NUMBERED = re.compile(r"[0-9]{1,18}\.npy")


def is_lira_folder(directory: Path) -> bool:
    """Whether a directory has an experiment with a file of its training records."""
    return bool(_experiments(directory))


def read_lira(directory: Path, labels: Path | None) -> Foreign:
    """The experiments in a directory, in the order of their numbers."""
    experiments = _experiments(directory)
    records = len(_row(experiments[0]))
    refuse_large(len(experiments), records, directory)
    membership = np.empty((len(experiments), records), bool)
    for index, experiment in enumerate(experiments):
        row = _row(experiment)
        if len(row) != records:
            raise InputError(f"{experiment / 'keep.npy'}: is of {len(row)} records, the first of {records}.")
        membership[index] = booleans(row[:], str(experiment / "keep.npy"))
    logits, scores = ([_outputs(experiment, name) for experiment in experiments] for name in ("logits", "scores"))
    of_logits = logits.count(None) <= scores.count(None)
    kind: Kind = "logits" if of_logits else "log_odds"
    files = logits if of_logits else scores
    files_of_outputs = [file for file in files if file is not None]
    if not files_of_outputs:
        raise InputError(f"{directory}: no experiment has outputs; run inference.py, which writes logits.")
    readers = tuple(None if file is None else partial(_read, file, kind) for file in files)
    shape = _shape(StoredArray(files_of_outputs[0]).shape, kind, files_of_outputs[0])
    if labels is None and not has_array(directory, "y_train"):
        raise InputError(f"{directory}: has no y_train.npy; give the labels of the records (`labels`).")
    labels_array, classes = read_labels(labels or directory / "y_train.npy", records, shape[2] if of_logits else None)
    settings = [_hparams(experiment) for experiment in experiments]
    designs = tuple(str(setting.get("arch", "unknown")) for setting in settings)
    designs = designs if len(set(designs)) > 1 else ()
    tool = TOOL if any(_NUMBERED.fullmatch(file.name) for file in files_of_outputs) else PYTORCH
    recipe = _recipe(tool, settings, [int(file.stem) for file in files_of_outputs if _NUMBERED.fullmatch(file.name)])
    return Foreign(tool, kind, classes, shape[1], labels_array, membership, readers, designs, recipe)


def _experiments(directory: Path) -> list[Path]:
    folders = [
        path
        for path in entries(directory)
        if (path.name.startswith("experiment") or path.name.isdecimal()) and is_folder(path) and has_array(path, "keep")
    ]
    if len(folders) > MOST_MODELS:
        raise InputError(f"{directory}: has {len(folders):,} experiments, more than {MOST_MODELS:,}.")
    return sorted(
        folders, key=lambda path: ([int(digits[:18]) for digits in re.findall("[0-9]+", path.name)], path.name)
    )


def _row(experiment: Path) -> StoredArray:
    row = StoredArray(experiment / "keep.npy")
    if row.ndim != 1 or not len(row):
        raise InputError(f"{experiment / 'keep.npy'}: has shape {row.shape}; it must be one value for each record.")
    return row


def _outputs(experiment: Path, name: str) -> Path | None:
    """The file of the last epoch, or the one file, of outputs of this name."""
    folder = experiment / name
    names = [path for path in entries(folder) if _NUMBERED.fullmatch(path.name)] if is_folder(folder) else []
    alone = experiment / f"{name}.npy" if has_array(experiment, name) else None
    return max(names, key=lambda path: int(path.stem), default=alone)


def _read(file: Path, kind: Kind) -> np.ndarray:
    values = read_npy(file, links=False)
    return values.reshape(_shape(values.shape, kind, file))


def _shape(shape: tuple[int, ...], kind: Kind, file: Path) -> tuple[int, ...]:
    """`n, views, classes`, or `n, views` for log-odds, of an array of this shape."""
    axes = 3 if kind == "logits" else 2
    if len(shape) == axes + 1 and shape[1] == 1:
        return shape[0], *shape[2:]
    if len(shape) == axes - 1:
        return shape[0], 1, *shape[1:]
    if len(shape) != axes:
        layout = "[records, 1, views, classes]" if kind == "logits" else "[records, views]"
        raise InputError(f"{file}: has shape {shape}; {kind.replace('_', '-')} must be {layout}.")
    return shape


def _hparams(experiment: Path) -> dict[str, Any]:
    """The content of `hparams.json`; empty if there is none."""
    path = experiment / "hparams.json"
    if not path.exists() and not path.is_symlink():
        return {}
    with parsing(f"{path}: is not one JSON object of plain values", "delete it to import without it."):
        text = read_small(path, LONGEST_HPARAMS, links=False)
        refuse_repeated_keys(text)
        return msgspec.json.decode(text, type=dict[str, str | int | float | bool | None])


def _recipe(tool: str, settings: list[dict[str, Any]], epochs: list[int]) -> str:
    """The settings that all experiments share, as text."""
    common = [
        name
        for name in settings[0]
        if name not in OWN and all(setting.get(name) == settings[0][name] for setting in settings)
    ]
    values = [f"{name}={settings[0][name]}" for name in sorted(common) if settings[0][name] is not None]
    until = [f"outputs after epoch {epochs[0]}"] if len(set(epochs)) == 1 else []
    until = [f"after epochs {min(epochs)} to {max(epochs)}"] if len(set(epochs)) > 1 else until
    return f"{tool}: {', '.join([*values, *until]) or 'no settings are known'}"[:LONGEST_RECIPE]

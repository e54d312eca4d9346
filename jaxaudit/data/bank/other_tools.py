"""Shadow models in the files of another tool, in the form that a bank needs (`Foreign`).

LiRA: `y_train.npy`, and of each model `experiment-*/keep.npy`, `hparams.json` and `logits/EPOCH.npy` (float [n, 1,
views, classes]), as tensorflow/privacy's `research/mi_lira_2021` writes them; its port to PyTorch has folders named by
numbers, no labels, and `0/logits.npy`. Arrays of other tools become a bank in a few lines (its `__init__.py`).
"""

import os
import re
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxaudit.data.bank.bank import BYTES_A_RECORD, booleans
from jaxaudit.data.bank.description import MOST_CLASSES, MOST_MODELS, MOST_RECORDS, MOST_ROWS
from jaxaudit.data.formats.arrays import StoredArray, read_npy
from jaxaudit.data.formats.parsing import PICKLES, decoded_once, parsing, refuse_pickle
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import entries, read_small
from jaxaudit.errors import InputError

SPARE = 1 << 16


class Foreign(NamedTuple):
    """Shadow models that another tool trained on one pool; `read` gives the unchecked logits of each trained one."""

    tool: str
    classes: int
    views: int
    labels: Int[np.ndarray, " n"]
    membership: Bool[np.ndarray, "models n"]
    read: tuple[Callable[[], np.ndarray] | None, ...]
    recipe: str


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder. A symbolic link, which could lead out of the folder that is read, is refused."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        raise InputError(f"{path}: is a link; copy what it leads to in its place.")
    return stat.S_ISDIR(mode)


def has_array(folder: Path, stem: str) -> bool:
    """Whether a folder has the file `stem`.npy; a pickle in its place is refused."""
    suffixes = [suffix for suffix in (".npy", *PICKLES) if os.path.lexists(folder / f"{stem}{suffix}")][:1]
    for suffix in suffixes:
        refuse_pickle(folder / f"{stem}{suffix}")
    return bool(suffixes)


def refuse_large(models: int, records: int, of: Path) -> None:
    """Rejects more models and records than a bank may have, or than this machine has memory for."""
    most_records = min(MOST_RECORDS, MAX_BYTES // BYTES_A_RECORD)
    if models > MOST_MODELS or records > most_records or models * records > min(MOST_ROWS, MAX_BYTES):
        raise InputError(f"{of}: {models:,} models of {records:,} records exceed this machine's memory; keep fewer.")


def read_labels(path: Path, records: int, classes: int | None) -> tuple[Int[np.ndarray, " n"], int]:
    """The labels of the first records in a .npy file, and how many classes: by default the largest label plus 1."""
    refuse_pickle(path)
    stored = StoredArray(path)
    names = tuple(map(str, range(min(classes or 2, MOST_CLASSES + 1))))
    if stored.ndim and len(stored) >= records and stored.shape[1:] in ((), (1,)) and len(names) <= MOST_CLASSES:
        labels, class_names = encode_labels(stored[:records], names if classes else None, str(path))
        if class_names == tuple(map(str, range(len(class_names)))) and len(class_names) > 1:
            return labels, len(class_names)
    raise InputError(
        f"{path}: has labels of shape {stored.shape}; {records} records have one each, a class numbered from 0, of "
        f"which there are 2 to {MOST_CLASSES:,}, as many as outputs ({classes or 'not stated'})."
    )


def chosen_rows(path: Path, records: int, option: str) -> Int[np.ndarray, " chosen"]:
    """The records that a .npy file selects: by their numbers, in order and each once, or by a boolean for each."""
    refuse_pickle(path)
    rows = read_npy(path, 8 * records + SPARE)
    if rows.dtype == np.bool_ and rows.shape == (records,):
        rows = np.flatnonzero(rows)
    is_list = rows.dtype.kind in "iu" and rows.ndim == 1 and len(rows) > 0
    if not is_list or rows.min() < 0 or rows.max() >= records or len(np.unique(rows)) < len(rows):
        raise InputError(
            f"{option} {path}: has {rows.dtype} of shape {rows.shape}; give numbers from 0 to {records - 1}, the "
            "records of the pool, each once, or a boolean for each."
        )
    return rows.astype(np.int64)


LIRA, PYTORCH = "tensorflow/privacy mi_lira_2021", "lira-pytorch"
LONGEST_HPARAMS = 1 << 16
LONGEST_RECIPE = 2_000
OWN = {"seed", "expid", "tunename"}
"""Entries of `hparams.json` that are not part of the recipe."""
_NUMBERED = re.compile(r"[0-9]{1,18}\.npy")


def read_lira(directory: Path, labels: Path | None) -> Foreign | None:
    """The experiments in a directory, in the order of their numbers; None if it has none with `keep.npy`."""
    experiments = _experiments(directory)
    if not experiments:
        return None
    records = len(_row(experiments[0]))
    refuse_large(len(experiments), records, directory)
    membership = np.empty((len(experiments), records), bool)
    for index, experiment in enumerate(experiments):
        row = _row(experiment, records)
        membership[index] = booleans(row[:], str(experiment / "keep.npy"))
    files = [_logits(experiment) for experiment in experiments]
    files_of_outputs = [file for file in files if file is not None]
    if not files_of_outputs or not (labels or has_array(directory, "y_train")):
        raise InputError(
            f"{directory}: an experiment needs outputs (inference.py writes logits), and y_train.npy has the labels of "
            "the records, unless you give them (`labels`)."
        )
    readers = tuple(None if file is None else partial(_read, file) for file in files)
    _, views, outputs = _shape(StoredArray(files_of_outputs[0]).shape, files_of_outputs[0])
    labels_array, classes = read_labels(labels or directory / "y_train.npy", records, outputs)
    settings = [_hparams(experiment) for experiment in experiments]
    networks = dict.fromkeys(str(setting.get("arch", "unknown")) for setting in settings)
    if len(networks) > 1:
        raise InputError(
            f"{directory}: has experiments of several networks ({', '.join(networks)}), and a bank is of one: targets "
            "would be compared with models of others; import a folder of each."
        )
    tool = LIRA if any(_NUMBERED.fullmatch(file.name) for file in files_of_outputs) else PYTORCH
    shared = [
        f"{name}={value}"
        for name, value in sorted(settings[0].items())
        if name not in OWN and value is not None and all(of.get(name) == value for of in settings)
    ]
    words = ", ".join(shared) or "no settings are known"
    epochs = sorted({int(file.stem) for file in files_of_outputs if _NUMBERED.fullmatch(file.name)})
    until = f", outputs after epoch {', '.join(map(str, epochs))}" if epochs else ""
    recipe = f"{tool}: {words}{until}"[:LONGEST_RECIPE]
    return Foreign(tool, classes, views, labels_array, membership, readers, recipe)


def _experiments(directory: Path) -> list[Path]:
    folders = [
        path
        for path in entries(directory)
        if (path.name.startswith("experiment") or path.name.isdecimal()) and is_folder(path) and has_array(path, "keep")
    ]
    return sorted(
        folders, key=lambda path: ([int(digits[:18]) for digits in re.findall("[0-9]+", path.name)], path.name)
    )


def _row(experiment: Path, records: int | None = None) -> StoredArray:
    row = StoredArray(experiment / "keep.npy")
    if row.ndim != 1 or not len(row) or len(row) != (records or len(row)):
        raise InputError(
            f"{experiment / 'keep.npy'}: has shape {row.shape}; it must be one value for each record, of as many "
            "records as the first experiment."
        )
    return row


def _logits(experiment: Path) -> Path | None:
    """The file of the last epoch, or the one file."""
    folder = experiment / "logits"
    names = [path for path in entries(folder) if _NUMBERED.fullmatch(path.name)] if is_folder(folder) else []
    alone = experiment / "logits.npy" if has_array(experiment, "logits") else None
    return max(names, key=lambda path: int(path.stem), default=alone)


def _read(file: Path) -> np.ndarray:
    values = read_npy(file, links=False)
    return values.reshape(_shape(values.shape, file))


def _shape(shape: tuple[int, ...], file: Path) -> tuple[int, ...]:
    """`n, views, classes` of an array of this shape."""
    if len(shape) == 4 and shape[1] == 1:
        return shape[0], *shape[2:]
    if len(shape) == 2:
        return shape[0], 1, shape[1]
    if len(shape) != 3:
        raise InputError(f"{file}: has shape {shape}; logits must be [records, 1, views, classes].")
    return shape


def _hparams(experiment: Path) -> dict[str, Any]:
    """The content of `hparams.json`; empty if there is none."""
    path = experiment / "hparams.json"
    if not path.exists() and not path.is_symlink():
        return {}
    with parsing(f"{path}: is not one JSON object of plain values", "delete it to import without it."):
        return decoded_once(read_small(path, LONGEST_HPARAMS, links=False), dict[str, str | int | float | bool | None])

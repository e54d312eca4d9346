"""`Foreign`: shadow models in the files of another tool, in the form that a bank needs."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxaudit.data.bank.bank import BYTES_A_RECORD
from jaxaudit.data.bank.description import MOST_CLASSES, MOST_RECORDS, MOST_ROWS, SCORED, Direction, Kind
from jaxaudit.data.formats.arrays import StoredArray, read_npy
from jaxaudit.data.formats.parsing import PICKLES, refuse_pickle
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.errors import InputError

SPARE = 1 << 16


class Foreign(NamedTuple):
    """Shadow models that another tool trained on one pool of records; `outputs` is their kind, as in `Description`.

    Attributes:
        views: number of views of each record.
        read: for each model a function that reads its outputs `[n, views, values]`, unchecked (without the last axis
            for log-odds); None for a model that is not trained yet.
        designs: the name of each model's design; empty for a single design.
        recipe: how they were trained, from the tool's files.
        note: how files were read where that was a guess.
    """

    tool: str
    outputs: Kind
    classes: int
    views: int
    labels: Int[np.ndarray, " n"]
    membership: Bool[np.ndarray, "models n"]
    read: tuple[Callable[[], np.ndarray] | None, ...]
    designs: tuple[str, ...] = ()
    recipe: str = ""
    note: str = ""

    @property
    def direction(self) -> Direction | None:
        """Of outputs without classes: a higher number means that a model was trained on a record."""
        return "higher" if self.outputs in SCORED else None


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; False if nothing is there.

    Raises:
        InputError: `path` is a symbolic link, which could lead out of the folder that is read.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        raise InputError(f"{path}: is a link; copy what it leads to in its place.")
    return stat.S_ISDIR(mode)


def has_array(folder: Path, stem: str) -> bool:
    """Whether a folder has the file `stem`.npy.

    Raises:
        InputError: there is no such file, but a pickle of this name.
    """
    suffixes = [suffix for suffix in (".npy", *PICKLES) if os.path.lexists(folder / f"{stem}{suffix}")][:1]
    for suffix in suffixes:
        refuse_pickle(folder / f"{stem}{suffix}")
    return bool(suffixes)


def refuse_large(models: int, records: int, of: Path) -> None:
    """Rejects more models and records than a bank may have, or than this machine has memory for."""
    if records > MOST_RECORDS or records * BYTES_A_RECORD > MAX_BYTES or models * records > min(MOST_ROWS, MAX_BYTES):
        raise InputError(f"{of}: {models:,} models of {records:,} records exceed this machine's memory; keep fewer.")


def read_labels(path: Path, records: int, classes: int | None) -> tuple[Int[np.ndarray, " n"], int]:
    """The labels of the first records in a .npy file, and the number of classes: by default the largest label
    plus 1.
    """
    refuse_pickle(path)
    stored = StoredArray(path)
    if stored.ndim not in (1, 2) or len(stored) < records or stored.shape[1:] not in ((), (1,)):
        raise InputError(
            f"{path}: has labels of shape {stored.shape}, but there are {records} records: one label each."
        )
    if classes is not None and classes > MOST_CLASSES:
        raise InputError(f"{path}: outputs are of {classes:,} classes; a bank has at most {MOST_CLASSES:,}.")
    names = None if classes is None else tuple(map(str, range(classes)))
    labels, class_names = encode_labels(stored[:records], names, str(path))
    if class_names != tuple(map(str, range(len(class_names)))) or len(class_names) < 2:
        raise InputError(f"{path}: labels must be classes numbered from 0, of which there are at least 2.")
    return labels, len(class_names)


def chosen_rows(path: Path, records: int, option: str) -> Int[np.ndarray, " chosen"]:
    """The records that a .npy file selects: by their numbers, in order and each once, or by a boolean for each record
    of the pool.
    """
    refuse_pickle(path)
    rows = read_npy(path, 8 * records + SPARE)
    if rows.dtype == np.bool_ and rows.shape == (records,):
        rows = np.flatnonzero(rows)
    if rows.dtype.kind not in "iu" or rows.ndim != 1 or not len(rows):
        raise InputError(f"{option} {path}: has {rows.dtype} of shape {rows.shape}; give numbers or booleans.")
    if rows.min() < 0 or rows.max() >= records or len(np.unique(rows)) < len(rows):
        raise InputError(
            f"{option} {path}: must have numbers from 0 to {records - 1}, the records of the pool, each once."
        )
    return rows.astype(np.int64)

"""`Bank`: shadow models trained by anyone, read from a directory whose files are checked against one another."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from jaxaudit.data.bank.description import DESCRIPTION, SCORED, Description, read_description
from jaxaudit.data.bank.outputs import FOLDER, WHOLE, open_outputs, outputs_path
from jaxaudit.data.formats.arrays import StoredArray
from jaxaudit.data.groups import Groups, as_groups
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import expanded, refuse_irregular
from jaxaudit.errors import InputError

LABELS, MEMBERSHIP, SEEDS = "labels.npy", "membership.npy", "seeds.npy"
GROUPS, DESIGNS, DROPPED, CORRECT = "groups.npy", "designs.npy", "dropped.npy", "correct.npy"
ARRAYS = (LABELS, SEEDS, GROUPS, DESIGNS, DROPPED, MEMBERSHIP, CORRECT, WHOLE)
"""Files in the order in which they are written; `bank.json` is last, so a directory without it is not a bank."""
BYTES_A_RECORD = 64
"""Bytes for the labels, groups and one model's outputs of a record, while they are read."""
BLOCK = 1 << 20
_NAME = re.compile(r"[0-9]{5,7}\.npy")


@dataclass(frozen=True, eq=False)
class Bank:
    """Shadow models: for each, the records that it was trained on and, once trained, its outputs on all records.

    Columns of all arrays over records are, in this order: the query set (the records in question), the holdout (records
    of the same origin that the audited model never saw), and the calibration set (other data of the same domain).
    Arrays are in memory and read-only. Outputs are read from disk, one model at a time.

    Attributes:
        directory: the folder that contains the bank.
        description: the content of `bank.json`.
        labels: the class of each record, from 0; all 0 if records have no classes.
        membership: row m marks the records that model m is trained on.
        seeds: the training seed of each model; None if models have no stated seeds.
        groups: the group (such as the patient) of each query and holdout record, if a model gets a group whole or not
            at all; else None.
        designs: for each model, the index of its design in `description.designs`. A design is a network together with
            its training recipe. All 0 if all models have one design.
        dropped: marks records that no model is trained on and no test uses, because of copies in the data. The label of
            a dropped record means nothing.
        correct: in a bank of `log_odds`, whether each model classifies each record correctly; None if unknown.
    """

    directory: Path
    description: Description
    labels: Int[np.ndarray, " n"]
    membership: Bool[np.ndarray, "models n"]
    seeds: UInt32[np.ndarray, " models"] | None
    groups: Groups | None
    designs: Int[np.ndarray, " models"]
    dropped: Bool[np.ndarray, " n"]
    correct: Bool[np.ndarray, "models n"] | None = None

    def __len__(self) -> int:
        return self.description.models

    def __repr__(self) -> str:
        sizes = self.description.sizes
        return f"Bank({self.directory.name}: {len(self)} models of {sizes.query} query records)"

    @property
    def query(self) -> slice:
        """The columns of the query set."""
        return slice(0, self.description.sizes.query)

    @property
    def holdout(self) -> slice:
        """The columns of the holdout."""
        return slice(self.description.sizes.query, self.description.sizes.compared)

    @property
    def calibration(self) -> slice:
        """The columns of the calibration set."""
        return slice(self.description.sizes.compared, self.description.records)

    def finished(self) -> Int[np.ndarray, " finished"]:
        """The numbers of the trained models: those with outputs on disk, in ascending order. Links, pipes and folders
        in place of outputs are refused.
        """
        return finished_in(self.directory, len(self))

    def missing(self) -> Int[np.ndarray, " missing"]:
        """The numbers of the models without outputs, in ascending order."""
        return np.setdiff1d(np.arange(len(self)), self.finished(), assume_unique=True)

    def outputs(self, model: int) -> Float[np.ndarray, "n views values"]:
        """The outputs of a model on every record, as stored: one value for `log_odds`, else one for each class.

        Raises:
            InputError: there is no such file; it is a link, damaged or cut short; or its numbers have another shape,
                are NaN, or are not of the kind that `bank.json` declares.
        """
        return open_outputs(self.directory, model, self.description)()


def load_bank(path: str | Path) -> Bank:
    """The bank in a directory, with its files checked against one another; outputs are checked when they are read.

    Raises:
        InputError: a file is missing, a link, damaged, or does not agree with `bank.json`; labels are out of range;
            every model was trained on all records, or every model on none; files are far larger than their space on
            disk (`refuse_holes`); or there are more records than memory for one model's outputs.
    """
    directory = expanded(path)
    description = read_description(directory)
    n, models, sizes = description.records, description.models, description.sizes
    refuse_larger(directory, n * BYTES_A_RECORD, MAX_BYTES, "keep fewer records for this machine's memory")
    refuse_holes(directory)
    classed = description.outputs not in SCORED
    for name, is_expected in ((LABELS, classed), (GROUPS, description.groups), (DESIGNS, bool(description.designs))):
        if is_expected != _there(directory, name):
            words = f"wants {name}, but there is none" if is_expected else f"wants no {name}, but there is one"
            raise InputError(f"{directory}: {DESCRIPTION} {words}.")

    def read(name: str, kinds: str, shape: tuple[int, ...]) -> np.ndarray:
        stored = StoredArray(directory / name, max_bytes=MAX_BYTES)
        if stored.dtype.kind not in kinds or stored.shape != shape:
            raise InputError(
                f"{directory / name}: is {stored.dtype} of shape {stored.shape}, but {DESCRIPTION} wants {shape}. If "
                "`jaxaudit shadows plan` was stopped there, repeat it."
            )
        return stored[:]

    def below(most: int, name: str, values: np.ndarray) -> None:
        outside = int(((values < 0) | (values >= most)).sum())
        if outside:
            raise InputError(f"{directory / name}: {outside} of its numbers are not from 0 to {most - 1}.")

    labels = read(LABELS, "iu", (n,)) if classed else np.zeros(n, int)
    dropped = booleans(read(DROPPED, "b", (n,)), DROPPED) if _there(directory, DROPPED) else np.zeros(n, bool)
    below(description.classes, LABELS, labels[~dropped])
    membership = read(MEMBERSHIP, "b", (models, n))
    _check_rows(membership, dropped, directory / MEMBERSHIP)
    seeds, designs, groups = None, np.zeros(models, int), None
    if _there(directory, SEEDS):
        seeds = read(SEEDS, "iu", (models,))
        below(2**32, SEEDS, seeds)
        seeds = seeds.astype(np.uint32)
    if description.groups:
        values = read(GROUPS, "iu", (sizes.compared,))
        groups = as_groups(values[: sizes.query], values[sizes.query :])
    if description.designs:
        designs = read(DESIGNS, "iu", (models,)).astype(int)
        below(len(description.designs), DESIGNS, designs)
    correct = read(CORRECT, "b", (models, n)) if _there(directory, CORRECT) else None
    if correct is not None and description.outputs != "log_odds":
        raise InputError(f"{directory / CORRECT}: is for log-odds, but this is a bank of {description.outputs}.")
    arrays = (labels.astype(int), membership, seeds, designs, dropped, correct)
    for array in arrays:
        if array is not None:
            array.flags.writeable = False
    labels, membership, seeds, designs, dropped, correct = arrays
    return Bank(directory, description, labels, membership, seeds, groups, designs, dropped, correct)


def finished_in(directory: Path, models: int) -> Int[np.ndarray, " finished"]:
    """The numbers below `models` of the models with outputs in a bank, as `Bank.finished`."""
    folder, numbers = directory / FOLDER, []
    if _there(directory, WHOLE):
        if _there(directory, FOLDER):
            raise InputError(f"{directory}: has {WHOLE} and a folder {FOLDER}; a bank has its outputs in one of them.")
        return np.arange(models)
    if folder.is_symlink():
        raise InputError(f"{folder}: is a link; a bank has its outputs in a folder of its own.")
    try:
        names = os.listdir(folder) if _there(directory, FOLDER) else []
        for name in names:
            number = int(name.partition(".")[0]) if _NAME.fullmatch(name) else models
            path = outputs_path(directory, number)
            if number < models and name == path.name:
                with suppress(FileNotFoundError):  # gone meanwhile
                    refuse_irregular(path.lstat(), path)
                    numbers.append(number)
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror}).") from error
    return np.array(sorted(numbers), int)


def _check_rows(membership: np.ndarray, dropped: np.ndarray, path: Path) -> None:
    """Rejects masks that are not boolean or include dropped records, and a matrix that is all true or all false."""
    without, kept = np.flatnonzero(dropped), np.count_nonzero(~dropped)
    some = some_out = False
    for part in row_blocks(membership):
        rows = booleans(membership[part], path.name)
        wrong = rows[:, without].any(axis=1)
        if wrong.any():
            model = part.start + int(wrong.argmax())
            raise InputError(f"{path}: row {model} has records that were dropped because of copies.")
        counts = np.count_nonzero(rows, axis=1)
        some, some_out = some or counts.max() > 0, some_out or counts.min() < kept
    if not (some and some_out):
        which = "all records" if some else "no record"
        raise InputError(f"{path}: every model is trained on {which}, so nothing can be compared.")


def row_blocks(membership: Bool[np.ndarray, "models n"]) -> Iterator[slice]:
    """The models in order, in blocks, so that results computed from their masks stay small and few calls are made."""
    models, n = membership.shape
    size = max(1, BLOCK // max(1, n))
    return (slice(start, start + size) for start in range(0, models, size))


def booleans(array: np.ndarray, name: str) -> np.ndarray:
    """The array, if its bytes are all 0 or 1: NumPy accepts other booleans, and counts them inconsistently."""
    if array.dtype != np.bool_ or array.view(np.uint8).max(initial=0) > 1:
        raise InputError(f"{name}: has values of type {array.dtype} that are not all true or false: must be boolean.")
    return array


def _there(directory: Path, name: str) -> bool:
    return os.path.lexists(directory / name)


SMALL, SHRUNK = 1 << 28, 100
"""Bytes that are always accepted, and the largest ratio of claimed to stored bytes."""
STORAGE_UNIT = 512
"""Bytes of the unit in which a file system counts blocks, whatever its own block size."""


def refuse_holes(directory: Path) -> None:
    """Refuses a bank whose files claim far more than the disk holds of them.

    Even a compressing file system needs more space for a bank, since membership masks are random. A file system that
    does not report allocated space, as some network file systems do not, is trusted.
    """
    try:
        folders = [folder for folder in (directory, directory / FOLDER) if folder.is_dir()]
        stats = [entry.stat(follow_symlinks=False) for folder in folders for entry in os.scandir(folder)]
    except OSError:
        return  # whoever reads it says what is wrong
    held = sum(STORAGE_UNIT * getattr(stat_result, "st_blocks", 0) for stat_result in stats)
    claimed = sum(stat_result.st_size for stat_result in stats)
    if held and claimed > max(SMALL, SHRUNK * held):
        raise InputError(
            f"{directory}: its files claim {claimed / 2**30:.1f} GiB, of which {held / 2**20:.1f} MiB are on the disk, "
            "so they have holes in place of numbers; was the bank copied whole?"
        )

"""`Bank`: shadow models trained by anyone, a directory whose files are checked against one another; and its writing."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Shaped, UInt32

from jaxaudit.data.bank.description import (
    DESCRIPTION,
    FOLDER,
    SCORED,
    WHOLE,
    Description,
    description_json,
    outputs_path,
    read_description,
    read_model,
)
from jaxaudit.data.examples import Sets
from jaxaudit.data.formats.arrays import StoredArray
from jaxaudit.data.groups import number_sets
from jaxaudit.data.labels import LONGEST
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import expanded, refuse_irregular, whole_file
from jaxaudit.errors import InputError
from jaxaudit.json_types import hash_of

LABELS, MEMBERSHIP, SEEDS = "labels.npy", "membership.npy", "seeds.npy"
GROUPS, DROPPED, CORRECT, IDS = "groups.npy", "dropped.npy", "correct.npy", "ids.npy"
ARRAYS = (LABELS, SEEDS, GROUPS, DROPPED, IDS, MEMBERSHIP, CORRECT, WHOLE)
"""Files in the order in which they are written; `bank.json` is last, so a directory without it is not a bank."""
BYTES_A_RECORD = 64
"""Bytes for the labels, groups and one model's outputs of a record, while they are read."""
BLOCK = 1 << 20
_NAME = re.compile(r"[0-9]{5,7}\.npy")


@dataclass(frozen=True, eq=False)
class Bank:
    """Shadow models: for each, the records that it was trained on and, once trained, its outputs on all records.

    Arrays are those of the files, read-only, their columns the query set, the holdout (records of the same origin that
    the audited model never saw) and the calibration set (other data of the same domain). Outputs are read from disk,
    one model at a time.

    Attributes:
        labels: the class of each record, from 0; all 0 if records have no classes; meaningless of dropped ones.
        membership: row m marks the records that model m is trained on.
        groups: of each query and holdout record, numbered from 0, if a model gets a group whole or not at all.
        dropped: records that no model is trained on and no test uses, because of copies in the data.
        correct: in a bank of `log_odds`, whether each model classifies each record correctly, if known.
        ids: the caller's own names of the records, if asked for; empty for the calibration set.
    """

    directory: Path
    description: Description
    labels: Int[np.ndarray, " n"]
    membership: Bool[np.ndarray, "models n"]
    seeds: UInt32[np.ndarray, " models"] | None
    groups: Int[np.ndarray, " dealt"] | None
    dropped: Bool[np.ndarray, " n"]
    correct: Bool[np.ndarray, "models n"] | None = None
    ids: Shaped[np.ndarray, " n"] | None = None

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
        """The numbers of the models with outputs on disk, ascending; what is no file in their place is refused."""
        return finished_in(self.directory, len(self))

    def missing(self) -> Int[np.ndarray, " missing"]:
        """The numbers of the models without outputs, in ascending order."""
        return np.setdiff1d(np.arange(len(self)), self.finished(), assume_unique=True)

    def outputs(self, model: int) -> Float[np.ndarray, "n views values"]:
        """The outputs of a model on every record, as stored: one value for `log_odds`, else one for each class."""
        return read_model(self.directory, model, self.description)


def load_bank(path: str | Path) -> Bank:
    """The bank in a directory, with its files checked against one another; outputs are checked when they are read."""
    directory = expanded(path)
    description = read_description(directory)
    n, models, sizes = description.records, description.models, description.sizes
    refuse_larger(directory, n * BYTES_A_RECORD, MAX_BYTES, "keep fewer records for this machine's memory")
    refuse_holes(directory)
    classed = description.outputs not in SCORED
    present = {name for name in ARRAYS if _there(directory, name)}
    needed = {MEMBERSHIP, *([LABELS] if classed else ()), *([GROUPS] if description.groups else ())}
    allowed = {*needed, SEEDS, DROPPED, IDS, WHOLE, *([CORRECT] if description.outputs == "log_odds" else ())}
    if not needed <= present <= allowed:
        wrong = ", ".join(sorted((needed - present) | (present - allowed)))
        raise InputError(f"{directory}: {DESCRIPTION} needs {', '.join(sorted(needed))}; lacking or too many: {wrong}.")

    def read(name: str, shape: tuple[int, ...], end: int | None = None) -> np.ndarray:
        """The whole numbers below `end`, or booleans, or ids of a file; numbers of dropped records count as 0."""
        stored = StoredArray(directory / name, max_bytes=MAX_BYTES)
        kinds = "U" if name == IDS else "b" if end is None else "iu"
        fits = stored.dtype.kind in kinds and stored.dtype.itemsize <= 4 * LONGEST and stored.shape == shape
        values = stored[:] if fits else np.zeros(0)
        counted = values[~dropped] if fits and name == LABELS else values
        content_words = {"U": "texts", "b": "booleans"}.get(kinds, f"numbers from 0 to {(end or 0) - 1}")
        if not fits or (end is not None and ((counted < 0) | (counted >= end)).any()):
            raise InputError(
                f"{directory / name}: is {stored.dtype} of shape {stored.shape}, but {DESCRIPTION} wants {shape}, "
                f"{content_words}. If `jaxaudit shadows plan` was stopped there, repeat it."
            )
        return values

    dropped = booleans(read(DROPPED, (n,)), DROPPED) if DROPPED in present else np.zeros(n, bool)
    labels = read(LABELS, (n,), description.classes) if classed else np.zeros(n, int)
    membership = read(MEMBERSHIP, (models, n))
    _check_rows(membership, dropped, directory / MEMBERSHIP)
    seeds = read(SEEDS, (models,), 2**32).astype(np.uint32) if SEEDS in present else None
    groups = None
    if description.groups:
        values = read(GROUPS, (sizes.compared,), 2**63)
        of_sets = number_sets(Sets(query=values[: sizes.query], holdout=values[sizes.query :]))
        groups = np.concatenate([*of_sets.values()])
    correct = read(CORRECT, (models, n)) if CORRECT in present else None
    ids = read(IDS, (n,)) if IDS in present else None
    bank = Bank(directory, description, labels.astype(int), membership, seeds, groups, dropped, correct, ids)
    for value in vars(bank).values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return bank


SMALL, SHRUNK = 1 << 28, 100
"""Bytes that are always accepted, and the largest ratio of claimed to stored bytes."""
STORAGE_UNIT = 512
"""Bytes of the unit in which a file system counts blocks, whatever its own block size."""


def refuse_holes(directory: Path) -> None:
    """Refuses files that claim far more than the disk holds: random masks cannot be packed so tightly."""
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


def finished_in(directory: Path, models: int) -> Int[np.ndarray, " finished"]:
    """The numbers below `models` of the models with outputs in a bank, as `Bank.finished`."""
    folder, numbers = directory / FOLDER, []
    whole = _there(directory, WHOLE)
    if folder.is_symlink() or (whole and _there(directory, FOLDER)):
        raise InputError(f"{folder}: is a link, or beside {WHOLE}; a bank has its outputs there or in that file.")
    if whole:
        return np.arange(models)
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
    some = some_out = some_dropped = False
    for part in row_blocks(membership):
        rows = booleans(membership[part], path.name)
        counts = np.count_nonzero(rows, axis=1)
        some, some_out = some or counts.max() > 0, some_out or counts.min() < kept
        some_dropped = some_dropped or rows[:, without].any()
    if some_dropped or not (some and some_out):
        raise InputError(
            f"{path}: models are trained on records that were dropped because of copies, or all of them on all records "
            "or on none, so that nothing can be compared."
        )


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


Found = TypeVar("Found")
READ_BLOCK = 1 << 19


def read_models(
    bank: Bank, models: Sequence[int], use: Callable[[int, Float[np.ndarray, "n views values"]], Found]
) -> tuple[list[Found], str]:
    """What a function makes of the outputs of these models, in order, and the hash of all that was read."""
    digests, results = dict[int, bytes](), list[Found]()
    for index, model in enumerate(models):
        try:
            values = bank.outputs(model)
            digests[model] = _digest(model, bank.membership[model], values)
            results.append(use(index, values))
        except InputError as error:
            raise InputError(
                f"{bank.directory.name}, model {model} of {len(bank)}: {error} Make these outputs again, or use the "
                "bank without that file."
            ) from error
    labels = np.where(bank.dropped, -1, bank.labels).astype("<i4").tobytes()
    return results, hash_of([labels, *(digests[model] for model in sorted(digests))])


def _digest(model: int, row: Bool[np.ndarray, " n"], values: Float[np.ndarray, "n views values"]) -> bytes:
    """The digest of a model's number, membership mask and outputs as stored."""
    stored = values.dtype.newbyteorder("<")
    digest = hashlib.blake2b(f"{model} {stored.name} {values.shape}".encode(), digest_size=16)
    digest.update(np.packbits(row).tobytes())
    rows = max(1, READ_BLOCK // max(1, values.shape[1] * values.shape[2]))
    for start in range(0, len(values), rows):
        digest.update(np.ascontiguousarray(values[start : start + rows], stored).tobytes())
    return digest.digest()


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
    """Replaces the files that depend on the number of models, `bank.json` last: `load_bank` rejects a part."""
    writers = bank_files(description, {name: arrays[name] for name in (MEMBERSHIP, SEEDS) if name in arrays})
    for name, write in writers.items():
        with whole_file(directory / name) as file:
            write(file)


def make_folder(directory: Path) -> None:
    (directory / FOLDER).mkdir(mode=0o700, exist_ok=True)


def write_outputs(
    directory: Path, model: int, outputs: Float32[np.ndarray, "n views values"], description: Description
) -> Path:
    """Writes the outputs of a model into its bank, the whole file or none; returns its path."""
    path = outputs_path(directory, model)
    make_folder(directory)
    with whole_file(path) as file:
        np.save(file, outputs.reshape(description.shape), allow_pickle=False)
    return path


def _array(make: Callable[[], np.ndarray]) -> Writer:
    return lambda file: np.save(file, np.ascontiguousarray(make()), allow_pickle=False)

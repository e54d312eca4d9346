"""The outputs of a target on the records of a bank, from a file."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.audits.bank_odds import log_odds_of, score_outputs
from jaxaudit.audits.resolution import grid_of
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import SCORED
from jaxaudit.data.bank.outputs import load_into
from jaxaudit.data.formats.arrays import npy_shape, read_npy
from jaxaudit.data.outputs.outputs import Kind, Outputs, load_outputs
from jaxaudit.data.paths import exists
from jaxaudit.errors import InputError
from jaxaudit.metrics.output_order import counted, described, moved_columns
from jaxaudit.metrics.scores import cut


def prefixes(bank: Bank) -> dict[int, str]:
    """The numbers of records that a target's outputs may be on, each with a name for these records."""
    sizes = bank.description.sizes
    # Without a holdout the last two are of one size: the query set.
    return {
        bank.description.records: "all records",
        sizes.compared: "query set and holdout",
        sizes.query: "query set",
    }


def target_log_odds(path: Path, bank: Bank, kind: Kind = "auto") -> tuple[Float[np.ndarray, "views records"], Outputs]:
    """Log-odds (nats) of each record's own class, and the stored outputs, from a file of a target's outputs.

    The file has one row for each of the first records of the bank, of one of the numbers in `prefixes`. A .npy file may
    have the form of the bank's own files: several views, or log-odds if the bank holds log-odds. Other files have
    logits or probabilities of every class, which are converted to log-odds; of a bank of scores one column, whose
    scores take the place of log-odds: larger for records that were used. The stored outputs show the resolution.

    Raises:
        InputError: as `load_outputs`; the file has another number of rows; or the bank has several views and the file
            has one.
    """
    sizes_known, description = prefixes(bank), bank.description
    if path.suffix.lower() == ".npy" and exists(path):
        shape = npy_shape(path)
        if shape[:1] and shape[0] not in sizes_known:
            sizes = ", ".join(f"{count:,} ({what_records})" for count, what_records in sizes_known.items())
            raise InputError(f"{path.name}: has {shape[0]:,} rows; the bank has {sizes}: give one row per record.")
        if shape[1:] == description.shape[1:] != (description.classes,) and description.outputs not in SCORED:
            records = shape[0]
            values = load_into(path, msgspec.structs.replace(description, records=records, counts=None))
            grid = grid_of(description, values, values.dtype.name, path.name)
            return log_odds_of(description.outputs, values, _labels(bank, records)), grid
        sizes_known = {shape[0]: sizes_known[shape[0]]} if shape else sizes_known
    if description.queries > 1:
        raise InputError(
            f"{path.name}: the bank has {description.queries} views of each record; give a .npy with them, of shape "
            f"{description.shape}."
        )
    problem: InputError | None = None
    # The number of rows of a file other than .npy is unknown before it is read.
    for records, what_records in sorted(sizes_known.items(), reverse=True):
        try:
            if description.outputs in SCORED:
                outputs = score_outputs(path, description, records)
                return outputs.values[None, :, 1], outputs
            outputs = load_outputs(path, description.class_names or description.classes, records, kind, of=what_records)
        except InputError as error:
            problem = problem or error
            continue
        values = outputs.values
        if values.shape[1] == 1:
            second = values.astype(np.float64)
            values = np.concatenate([1 - second if outputs.kind == "probabilities" else 0 * second, second], axis=1)
        outputs = _with_order(outputs, bank, records)
        of_kind = "probabilities" if outputs.kind == "probabilities" else "logits"
        odds = log_odds_of(of_kind, values[:, None], _labels(bank, records))
        # Cut as the log-odds of the bank's files are: see `log_odds_of`.
        return (odds if description.outputs == "logits" else cut(odds)), outputs
    assert problem is not None
    raise problem


def _with_order(outputs: Outputs, bank: Bank, records: int) -> Outputs:
    """The same outputs, whose reading says if the labels are met far better with their columns in another order."""
    names, kept = bank.description.class_names, ~bank.dropped[:records]
    moved = moved_columns([counted(outputs.probabilities[kept], bank.labels[:records][kept])])
    if moved is None:
        return outputs
    better = described(moved[1], names or tuple(map(str, range(bank.description.classes))))
    note = f"but the labels are met far better with {better}: are the columns in the order of the classes?"
    return replace(outputs, reading=(*outputs.reading, note))


def _labels(bank: Bank, records: int) -> np.ndarray:
    return np.where(bank.dropped, 0, bank.labels)[:records]


def read_members(path: Path, records: int) -> Bool[np.ndarray, " records"]:
    """Which records a target was trained on, from a .npy of booleans; anything else is refused."""
    if path.suffix.lower() != ".npy":
        raise InputError(f"{path.name}: which records a target was trained on is read from a .npy of booleans.")
    row = read_npy(path, records + (1 << 16))
    if row.shape != (records,) or row.dtype.kind != "b" or row.view(np.uint8).max(initial=0) > 1:
        raise InputError(
            f"{path.name}: is {row.dtype} of shape {row.shape}; give a boolean for each of {records:,} records."
        )
    return row

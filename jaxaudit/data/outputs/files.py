"""Reads the numbers in a file of model outputs."""

from pathlib import Path

import numpy as np

from jaxaudit.data.files import TABLES
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parsing import parsing, refuse_pickle
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.outputs.expected import (
    HARD_LABELS,
    LONGEST_NAME,
    RECORD,
    SPARE,
    Expected,
    OutputColumns,
    order_of_rows,
)
from jaxaudit.data.paths import exists
from jaxaudit.errors import InputError

# In the order of preference where a .npz holds several.
ARRAY_NAMES = ("probabilities", "probs", "logits", "outputs", "predictions", "y_pred", "arr_0")


def read_outputs(path: Path, expected: Expected) -> OutputColumns:
    """The numbers in a .npz, .npy, .csv or .parquet file.

    Tables must have the expected rows and columns.
    """
    if not (exists(path) and path.is_file()):
        raise InputError(f"{path}: there is no such file; is the path right?")
    suffix = path.suffix.lower()
    if suffix in TABLES:
        # Imported here because pyarrow takes a tenth of a second.
        from jaxaudit.data.outputs.tables import read_csv_outputs, read_parquet_outputs

        return (read_csv_outputs if suffix == ".csv" else read_parquet_outputs)(path, expected)
    most = expected.rows * (expected.classes + 1) * np.dtype(np.longdouble).itemsize + SPARE
    if suffix == ".npy":
        array = read_npy(path, min(MAX_BYTES, most))
        order, notes = order_of_rows(None, "", expected, path.name)
    elif suffix == ".npz":
        archive = NpzArrays(path)
        name = _choose_array(archive.names, path)
        refuse_larger(f"{path.name}[{name}]", archive.sizes[name], most)
        array = archive.read(name)
        order, notes = order_of_rows(_names_in(archive, expected), f"its array {RECORD!r}", expected, path.name)
    else:
        refuse_pickle(path)
        kinds = ", ".join((".npz", ".npy", *TABLES))
        raise InputError(f"{path}: outputs are read from {kinds}; save them as one of these (a .txt or .tsv: as .csv).")
    if array.dtype.kind not in "uif":
        advice = HARD_LABELS if array.ndim == 1 or array.shape[1:] == (1,) else "save numbers"
        raise InputError(f"{path.name}: has values of type {array.dtype}: {advice}.")
    if array.ndim not in (1, 2):
        raise InputError(f"{path.name}: has shape {array.shape}; outputs must be [records, classes].")
    array = array[:, None] if array.ndim == 1 else array
    # Other shapes are refused by who reads on, which can say what is wrong with them.
    if array.shape == (expected.rows, expected.classes) or array.shape == (expected.rows, expected.classes + 1):
        # Imported here because pyarrow takes a tenth of a second.
        from jaxaudit.data.outputs.columns import choose_columns

        chosen = choose_columns((), (), (), list(array.T), expected, path.name)
        notes = (*chosen.notes, *notes)
        array = array if len(chosen.columns) == array.shape[1] else array[:, chosen.columns]
    return OutputColumns(array if order is None or len(order) != len(array) else array[order], notes)


def _names_in(archive: NpzArrays, expected: Expected) -> list[str] | None:
    """The names of records in a .npz: its array `record`, or any text that has one of the expected names."""
    texts = [name for name in archive.names if name.lower() == RECORD]
    if expected.records is None:
        return [] if texts else None
    if not texts:
        most = expected.rows * 4 * LONGEST_NAME + SPARE
        texts = [name for name, size in archive.sizes.items() if size <= most]
    for name in texts:
        with parsing(f"{archive.path.name}: its array {name[:40]!r} cannot be read", "save names as text."):
            stored = archive.open(name)
            if stored.dtype.kind not in "US" or len(stored.shape) != 1:
                continue
            names = stored[:].astype(str).tolist()
        if name.lower() == RECORD or not set(expected.records).isdisjoint(names):
            return names
    return None


def _choose_array(names: list[str], path: Path) -> str:
    by_lower = {name.lower(): name for name in names}
    candidates = [by_lower[name] for name in ARRAY_NAMES if name in by_lower]
    if len(names) == 1 or candidates:
        return names[0] if len(names) == 1 else candidates[0]
    raise InputError(
        f"{path}: contains the arrays {', '.join(repr(name[:40]) for name in names[:10]) or '(none)'}; name the "
        "outputs 'probabilities' or 'logits'."
    )

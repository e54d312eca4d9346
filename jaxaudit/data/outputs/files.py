"""Reads the numbers in a file of model outputs."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxaudit.data.files import TABLES
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parsing import parsing, refuse_pickle
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import exists
from jaxaudit.errors import InputError

# In the order of preference where a .npz holds several.
ARRAY_NAMES = ("probabilities", "probs", "logits", "outputs", "predictions", "y_pred", "arr_0")
HARD_LABELS = "these are predicted labels, but confidences are needed; save the probabilities or logits of every class"
RECORD = "record"
"""The column or array with the names of records in what `jaxaudit deal --blind` writes."""
LONGEST_NAME = 4096
"""The most characters of a record's name."""
SPARE = 1 << 26
"""Bytes that any file may have, however few the records, so that a file of another set gets the right error."""


class Expected(NamedTuple):
    """The set that outputs must fit: its numbers of records and classes, the class names, and its name in messages.

    `records` are the names of its records in order, if they are known: a file that names its records is read by them.
    """

    rows: int
    classes: int
    class_names: Sequence[str] | None
    of: str
    records: Sequence[str] | None = None

    def check_rows(self, count: int, source: str) -> None:
        """Rejects a number of rows other than one per record."""
        if count != self.rows:
            raise InputError(
                f"{source}: has {count} rows but the {self.of} has {self.rows} records; give one row per record, in "
                f"the order of the {self.of}."
            )

    def other_columns(self, count: int, source: str) -> InputError:
        """The error for a file whose number of columns is not the number of classes."""
        shown_names = [name[:40] for name in (self.class_names or ())[:10]]
        names = (
            f" ({', '.join(shown_names)}{', ...' if self.classes > len(shown_names) else ''})" if shown_names else ""
        )
        return InputError(
            f"{source}: has {count} columns but the {self.of} has {self.classes} classes{names}; give one column per "
            "class, in label order. A class that the model does not know has a column of zeros, or, in a table whose "
            "header names the classes, no column."
        )

    def title(self, index: int) -> str:
        """What messages call a class."""
        return repr(str(self.class_names[index] if self.class_names else index)[:40])


class OutputColumns(NamedTuple):
    """The numbers in a file of outputs, and what its reader took them for.

    Attributes:
        values: `[rows, columns]`, integers or floats of the file's own type; rows in the order of the records' names if
            the file and its reader know them, columns in the order of the classes.
        notes: what the reader guessed or left out, in words.
        only: of a single column the class that its header names, if it does.
        absent: classes without a column in a table whose header names the others.
    """

    values: np.ndarray
    notes: tuple[str, ...] = ()
    only: int | None = None
    absent: tuple[int, ...] = ()


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
        raise InputError(f"{path}: outputs are read from {kinds}; save them as one of these.")
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


def order_of_rows(
    names: Sequence[str] | None, where: str, expected: Expected, source: str
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The order in which to take a file's rows so that they follow the records of the set, and notes for the user.

    The order is None if rows are taken as they come: if the file does not name its records, or the names of the set's
    records are not known.

    Args:
        names: the names of records in the file, row by row; None if there are none.
        where: the place of these names in the file, for messages.
        expected: the set.
        source: the name of the file, for messages.

    Raises:
        InputError: the names of the set's records are known, and the file has others.
    """
    record_names = expected.records
    if record_names is None:
        note = f"{where} is not used: rows are taken in the order of the {expected.of}"
        return None, (note,) if names is not None else ()
    if names is None:
        return None, (f"it does not name its records: rows are taken in the order of the {expected.of}",)
    rows = {name: row for row, name in enumerate(names)}
    if len(names) != len(record_names) or rows.keys() != set(record_names):
        raise InputError(
            f"{source}: the names of records in {where} are not those of the {expected.of}, each once: these are "
            f"outputs on other records, or the names were changed. Give the outputs on this {expected.of}, with its "
            f"names, or the {expected.of} that these outputs are on."
        )
    return np.array([rows[name] for name in record_names]), (f"rows are put in order by the names in {where}",)


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

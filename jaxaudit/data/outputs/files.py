"""Reads the numbers in a file of model outputs."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxaudit.data.files import TABLES
from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import exists
from jaxaudit.errors import InputError

# In the order of preference where a .npz holds several.
ARRAY_NAMES = ("probabilities", "probs", "logits", "outputs", "predictions", "y_pred", "arr_0")
HARD_LABELS = "these are predicted labels, but confidences are needed; save the probabilities or logits of every class"
SPARE = 1 << 26
"""Bytes that any file may have, however few the records, so that a file of another set gets the right error."""


class Expected(NamedTuple):
    """The set that outputs must fit: its numbers of records and classes, the class names, and its name in messages."""

    rows: int
    classes: int
    class_names: Sequence[str] | None
    of: str

    def check_rows(self, found: int, source: str) -> None:
        """Rejects a number of rows other than one per record."""
        if found != self.rows:
            raise InputError(
                f"{source}: has {found} rows but the {self.of} has {self.rows} records; give one row per record, in "
                f"the order of the {self.of}."
            )

    def other_columns(self, found: int, source: str) -> InputError:
        """The error for another number of columns."""
        return InputError(
            f"{source}: has {found} columns but the {self.of} has {self.classes} classes; give one column per class, "
            "in label order."
        )


def read_outputs(path: Path, expected: Expected) -> np.ndarray:
    """The numbers in a .npz, .npy, .csv or .parquet file, `[rows, columns]`, integers or floats of the file's own type.

    Tables must have the expected rows and columns; the class columns are in the order of the names.
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
    elif suffix == ".npz":
        archive = NpzArrays(path)
        name = _choose_array(archive.names, path)
        refuse_larger(f"{path.name}[{name}]", archive.sizes[name], most)
        array = archive.read(name)
    else:
        refuse_pickle(path)
        kinds = ", ".join((".npz", ".npy", *TABLES))
        raise InputError(f"{path}: outputs are read from {kinds}; save them as one of these.")
    if array.dtype.kind not in "uif":
        what = HARD_LABELS if array.ndim == 1 or array.shape[1:] == (1,) else "save numbers"
        raise InputError(f"{path.name}: has values of type {array.dtype}: {what}.")
    if array.ndim not in (1, 2):
        raise InputError(f"{path.name}: has shape {array.shape}; outputs must be [records, classes].")
    return array[:, None] if array.ndim == 1 else array


def _choose_array(names: list[str], path: Path) -> str:
    by_lower = {name.lower(): name for name in names}
    known = [by_lower[name] for name in ARRAY_NAMES if name in by_lower]
    if len(names) == 1 or known:
        return names[0] if len(names) == 1 else known[0]
    raise InputError(
        f"{path}: contains the arrays {', '.join(repr(name[:40]) for name in names[:10]) or '(none)'}; name the "
        "outputs 'probabilities' or 'logits'."
    )

"""Writes tables of scores as CSV or Parquet.

A table tells which record is in which set. So it is written whole or not at all, never over a file or link that is
there, and only its owner may read it, whatever the umask is.
"""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from jaxaudit.data.paths import whole_file
from jaxaudit.errors import InputError


def _write_csv(table: pa.Table, file: IO[bytes]) -> None:
    """Writes each number with as many digits as it needs, as Python does; pyarrow would quote every text."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(table.column_names)
    rows.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    # Flushed, and the file left open for its owner.
    text.detach()


_WRITERS = {".csv": _write_csv, ".parquet": parquet.write_table}


def claim_scores(path: Path) -> None:
    """Rejects a file that `write_scores` could not write, before any work is done."""
    if path.suffix.lower() not in _WRITERS:
        raise InputError(f"`out` {path} must be a .csv or a .parquet file, such as {path.stem or 'scores'}.csv.")
    if os.path.lexists(path):
        raise InputError(f"`out` {path} already exists; name a new file (nothing was changed).")
    if not path.parent.is_dir():
        raise InputError(f"`out` {path} cannot be written: there is no directory {path.parent}; create it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(f"`out` {path} cannot be written: {path.parent} is not writable; name another file.")


def write_scores(path: Path, columns: Mapping[str, Sequence[Any] | np.ndarray]) -> None:
    """Writes a table of scores, by the suffix of `path` as CSV or Parquet; `columns` have a cell a record, by their
    names.

    A number reads back bit for bit, as a 64-bit float if it is no integer. None and NaN become empty cells. A path that
    `claim_scores` rejects is rejected.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "scores.csv"
    >>> write_scores(path, {"set": ["query", "holdout"], "target.loss": [0.1, None]})
    >>> print(path.read_text().strip())
    set,target.loss
    query,0.1
    holdout,
    """
    claim_scores(path)
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        least, most = (chosen(lengths, key=lambda name: lengths[name]) for chosen in (min, max))
        raise InputError(
            f"`columns` must have a cell a record, but {least} has {lengths[least]:,} and {most} {lengths[most]:,}."
        )
    table = pa.table({name: _cells(values) for name, values in columns.items()})
    try:
        with whole_file(path) as file:
            _WRITERS[path.suffix.lower()](table, file)
    except OSError as error:
        raise InputError(
            f"`out` {path} cannot be written ({error.strerror or error}); free space there, or name another file."
        ) from error


def _cells(values: Sequence[Any] | np.ndarray) -> pa.Array:
    cells = pa.array(values, from_pandas=True)
    return cells.cast(pa.float64()) if pa.types.is_floating(cells.type) else cells

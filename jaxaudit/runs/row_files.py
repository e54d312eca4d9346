"""Tables of records for other programs, one row per record: CSV, for spreadsheets, and Parquet.

Class names may come from untrusted data. In the CSV file control characters are escaped, and a name that a spreadsheet
could treat as a formula (it begins with `=`, `+`, `-` or `@`, and is not a number) gets a leading apostrophe, which
marks text. The Parquet file and `result.json` have unchanged names.
"""

import re
from collections.abc import Callable, Mapping
from typing import IO

import numpy as np

from jaxaudit.errors import visible

Columns = Mapping[str, np.ndarray]
_FORMULA = re.compile(r"(^|[;,|])(\s*)(?=[=+\-@])")
_NUMBER = re.compile(r"[+\-]?\d+([.,]\d+)?([eE][+\-]?\d+)?")


def record_files(columns: Columns) -> dict[str, Callable[[IO[bytes]], None]]:
    """Writers of `records.csv` and `records.parquet`, in full precision; NaN becomes an empty cell."""
    return {
        "records.csv": lambda file: _write_csv(columns, file),
        "records.parquet": lambda file: _write_parquet(columns, file),
    }


def as_cell(text: str) -> str:
    r"""Text as a cell that no spreadsheet treats as a formula.

    >>> print(as_cell("=cmd|' /C calc'!A0"), as_cell("-1.5"), as_cell("a\x1b[31m"), as_cell("a;=b"))
    '=cmd|' /C calc'!A0 -1.5 a\x1b[31m a;'=b
    """
    seen = visible(text)
    return seen if _NUMBER.fullmatch(seen) else _FORMULA.sub(r"\1\2'", seen)


def _write_csv(columns: Columns, file: IO[bytes]) -> None:
    import pyarrow.csv

    def safe(values: np.ndarray) -> np.ndarray:
        return np.array([as_cell(text) for text in values.tolist()], object) if values.dtype.kind == "U" else values

    pyarrow.csv.write_csv(_table({as_cell(name): safe(values) for name, values in columns.items()}), file)


def _write_parquet(columns: Columns, file: IO[bytes]) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(_table(columns), file)


def _table(columns: Columns):
    import pyarrow

    return pyarrow.table({name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()})

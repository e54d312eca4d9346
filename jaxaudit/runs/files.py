"""Reads the files of a run, which may be untrusted: types are fixed, sizes are checked first. Writes tables of records.

Class names of these tables may come from untrusted data. In the CSV file control characters are escaped, and a name
that a spreadsheet could treat as a formula (it begins with `=`, `+`, `-` or `@`, and is not a number) gets a leading
apostrophe, which marks text. The Parquet file and `result.json` have unchanged names.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.formats.parquet_footer import declared_columns
from jaxaudit.data.formats.parsing import refuse_repeated_keys
from jaxaudit.data.paths import open_regular
from jaxaudit.errors import visible

LARGEST_RESULT = 64 << 20
"""The most bytes of a result: twice the size of one with 100,000 records, the most that a result lists."""
MOST_VALUES = 3_000_000
MOST_GROUPS = 500_000
"""The most lists and objects of a result, which take memory and time out of proportion to its length."""
LONGEST_WHOLE = 18
"""The most characters of a whole number, as for 64 bits."""
DEEPEST = 50
LARGEST_ARRAYS = 512 << 20
MOST_RECORDS = 10_000_000
BATCH = 1 << 16
LARGEST_TABLE = 1 << 20


def read_result(path: Path) -> Mapping[str, Any]:
    """The object in a JSON file.

    Raises:
        ValueError: it is not such an object, or has more entries, larger numbers or deeper nesting than results have.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        text = file.read(LARGEST_RESULT + 1)
    if len(text) > LARGEST_RESULT:
        raise ValueError(f"it is larger than {LARGEST_RESULT >> 20} MiB")
    if text.count(b"[") + text.count(b"{") > MOST_GROUPS or text.count(b",") > MOST_VALUES:
        raise ValueError("it has more values than jaxaudit writes")
    try:
        refuse_repeated_keys(text)
        result = json.loads(text.decode(), parse_constant=_refuse, parse_int=_whole, parse_float=_finite)
    except RecursionError:
        result = None
    if not isinstance(result, dict) or not _is_shallow(result):
        raise ValueError("it is not a JSON object, or nested too deeply")
    return result


def read_archive(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The requested arrays that a .npz holds; empty if there is no such file.

    Raises:
        InputError: an array is damaged, or larger than a report can draw.
    """
    if not os.path.lexists(path):
        return {}
    with open_regular(path, links=False) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_ARRAYS:
            raise ValueError(f"{path.name} is larger than {LARGEST_ARRAYS >> 20} MiB")
    archive = NpzArrays(path, LARGEST_ARRAYS)
    names_present = set(archive.names)
    return {name: archive.read(name) for name in names if name in names_present}


def read_columns(path: Path, names: list[str], rows: int) -> dict[str, np.ndarray]:
    """These columns of numbers of a .parquet with this number of rows; empty if there is no such file.

    Raises:
        ValueError: it has other rows or columns, more than a report can draw, or is damaged.
        OSError: it cannot be read.
    """
    if not os.path.lexists(path):
        return {}
    import pyarrow
    import pyarrow.parquet

    if rows > MOST_RECORDS:
        raise ValueError(f"{path.name} has more than {MOST_RECORDS:,} records")
    try:
        with (
            open_regular(path, links=False) as opened,
            pyarrow.parquet.ParquetFile(
                opened, thrift_string_size_limit=1 << 20, thrift_container_size_limit=100_000
            ) as file,
        ):
            _hold(file, names, rows, path.name)
            if sum(column.unpacked_bytes for column in declared_columns(opened)) > LARGEST_ARRAYS:
                raise ValueError(f"{path.name} unpacks to more than {LARGEST_ARRAYS >> 20} MiB")
            # Read in pieces, so that pages with more values than declared are noticed early.
            columns, index = {name: np.empty(rows) for name in names}, 0
            for batch in file.iter_batches(BATCH, columns=names):
                end = index + len(batch)
                if end > rows:
                    break
                for name in names:
                    columns[name][index:end] = batch.column(name).to_numpy(zero_copy_only=False)
                index = end
    except (pyarrow.ArrowException, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} cannot be read") from error
    if index != rows:
        raise ValueError(f"{path.name} has other records")
    return columns


def read_printed_table(path: Path) -> str:
    """A table as it was printed.

    Raises:
        ValueError: it is not text, or longer than tables are.
        OSError: it cannot be read.
    """
    with open_regular(path, links=False) as file:
        text = file.read(LARGEST_TABLE + 1)
    if len(text) > LARGEST_TABLE:
        raise ValueError(f"it is larger than {LARGEST_TABLE >> 20} MiB")
    return text.decode()


def _hold(file: Any, names: list[str], rows: int, source: str) -> None:
    """Checks the file's metadata against the expected columns, before a column is unpacked."""
    metadata = file.metadata
    # Only the row counts: for damaged column chunks pyarrow's own accessors end the process.
    groups = (metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
    if metadata.num_rows != rows or sum(groups) != rows:
        raise ValueError(f"{source} has other records")
    schema = file.schema_arrow
    if any(schema.names.count(name) != 1 or str(schema.field(name).type) != "double" for name in names):
        raise ValueError(f"{source} has other columns")


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _whole(digits: str) -> int:
    if len(digits) > LONGEST_WHOLE:
        raise ValueError("a whole number has too many digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("a number is too large")
    return value


def _is_shallow(value: Any) -> bool:
    """Whether it is nested no deeper than results are."""
    level = [value]
    for _ in range(DEEPEST):
        children = [list(node.values() if isinstance(node, dict) else node) for node in level]
        level = [value for values in children for value in values if isinstance(value, dict | list)]
        if not level:
            return True
    return False


Columns = Mapping[str, np.ndarray]
_FORMULA = re.compile(r"(^|[;,|])(\s*)(?=[=+\-@])")
_NUMBER = re.compile(r"[+\-]?\d+([.,]\d+)?([eE][+\-]?\d+)?")


def record_files(columns: Columns) -> dict[str, Callable[[IO[bytes]], None]]:
    """Writers of `records.csv` and `records.parquet`, in full precision; NaN becomes an empty cell."""

    def table(columns: Columns) -> Any:
        import pyarrow

        return pyarrow.table({name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()})

    def safe(values: np.ndarray) -> np.ndarray:
        return np.array([as_cell(text) for text in values.tolist()], object) if values.dtype.kind == "U" else values

    def write_csv(file: IO[bytes]) -> None:
        import pyarrow.csv

        pyarrow.csv.write_csv(table({as_cell(name): safe(values) for name, values in columns.items()}), file)

    def write_parquet(file: IO[bytes]) -> None:
        import pyarrow.parquet

        pyarrow.parquet.write_table(table(columns), file)

    return {"records.csv": write_csv, "records.parquet": write_parquet}


def as_cell(text: str) -> str:
    r"""Text as a cell that no spreadsheet treats as a formula.

    >>> print(as_cell("=cmd|' /C calc'!A0"), as_cell("-1.5"), as_cell("a\x1b[31m"), as_cell("a;=b"))
    '=cmd|' /C calc'!A0 -1.5 a\x1b[31m a;'=b
    """
    seen = visible(text)
    return seen if _NUMBER.fullmatch(seen) else _FORMULA.sub(r"\1\2'", seen)

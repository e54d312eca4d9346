"""Your own Parquet file -> the same table of text that a CSV file gives."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from jaxaudit.data.formats.text_table import TextTable
from jaxaudit.data.paths import open_data
from jaxaudit.errors import InputError

MAGIC = b"PAR1"


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet does; False where nothing can be read."""
    try:
        if not path.is_file():
            return False
        with open_data(path) as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def read_parquet(
    path: Path, *, keep: Collection[str], drop: Collection[str], most_columns: int, max_bytes: int
) -> tuple[TextTable, tuple[str, ...]]:
    """The cells as text, empty where there is none, and what is to be said of the columns.

    Numbers, truth values, dates, times and decimal numbers are written out; texts that are stored as a dictionary are
    looked up. The columns that pandas kept its index in (its metadata say which) are left out unless they are in
    `keep` or `drop`; of a column of another kind that is to be dropped, all cells are empty.

    Args:
        most_columns: refuse more columns than this.
        max_bytes: refuse files that unpack to more, or whose cells take more at eight bytes each.

    Raises:
        InputError: when the file is damaged or too large, or a column holds lists or anything else without a text.
    """
    try:
        with open_data(path) as stream, parquet.ParquetFile(stream) as file:
            schema = file.schema_arrow
            _check_size(path, file.metadata, most_columns, max_bytes)
            if len(set(schema.names)) < len(schema.names):
                raise InputError(f"{path}: two columns have the same name; give each its own.")
            index = [name for name in _index_columns(schema.metadata) if name in schema.names]
            index = [name for name in index if name not in keep and name not in drop]
            names = [name for name in schema.names if name not in index]
            cells = file.read([name for name in names if _flat(path, schema.field(name), drop)])
            nothing = pa.chunked_array([pa.repeat("", len(cells) or file.metadata.num_rows)])
            columns = [_as_text(cells.column(name)) if name in cells.column_names else nothing for name in names]
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise InputError(f"{path}: is not a readable Parquet file; was it copied in full?") from error
    listed = ", ".join(map(repr, index))
    notes = (f"the pandas index in the file ({listed}) is left out",) if index else ()
    return TextTable(names, columns, path.name), notes


def _check_size(path: Path, metadata: Any, most_columns: int, max_bytes: int) -> None:
    rows, count = metadata.num_rows, metadata.num_columns
    if count > most_columns:
        raise InputError(f"{path}: has {count:,} columns; at most {most_columns:,} are allowed.")
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    size = max(sum(group.total_byte_size for group in groups), 8 * rows * count)
    if size > max_bytes:
        raise InputError(
            f"{path}: {rows:,} rows of {count:,} columns unpack to {size / 2**30:.2f} GiB or more; at most "
            f"{max_bytes / 2**30:.2f} GiB are allowed; keep fewer rows or columns."
        )


def _index_columns(metadata: dict[bytes, bytes] | None) -> list[str]:
    """Names of the columns that hold pandas' index; damaged metadata name none."""
    try:
        said = json.loads((metadata or {}).get(b"pandas", b"{}"))
        return [name for name in said["index_columns"] if isinstance(name, str)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _flat(path: Path, field: pa.Field, drop: Collection[str]) -> bool:
    """Whether a column holds one value a cell; one that does not must be left out."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    written = text or pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    if written and not (pa.types.is_duration(kind) or pa.types.is_interval(kind)):
        return True
    if field.name in drop:
        return False
    raise InputError(
        f"{path}: column {field.name!r} has values of type {str(kind)[:60]}, which a classifier cannot use; leave "
        "it out (--drop), or write it as numbers or text."
    )


def _as_text(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    text = pc.fill_null(cells.cast(pa.string()), "")
    text.validate(full=True)
    return text

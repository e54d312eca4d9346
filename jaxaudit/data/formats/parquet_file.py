"""Parquet files of another party: their columns as text, bounded before they are decoded.

A few bytes of Parquet can hold gigabytes: pages are compressed, a value that occurs often is stored once, and a text
may be stored as what it shares with the one before. So the headers of pages are added up first (`parquet_footer`), the
schema decides what is read, and columns are decoded some rows at a time, texts with a number in place of each repeated
one, which Arrow refuses for texts that are stored as differences. Values are added up before they are unpacked.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedReader
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from jaxaudit.data.formats.parquet_footer import MAGIC, unpacked_bytes
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.formats.text_table import TextTable, float_cells, read_csv
from jaxaudit.data.labels import COLUMN, are_dealt
from jaxaudit.data.memory import MAX_BYTES, MOST_COLUMNS, most_unpacked, refuse_larger
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.errors import InputError

CELL = 16
"""Bytes that a cell takes beside its text."""
ROWS = 1 << 16
"""The most rows that are decoded together."""
ADVICE = "keep fewer rows or columns"
LONGEST, MOST = 1 << 24, 1 << 22
"""Bytes of a text of the footer, and entries of a list there."""


@contextmanager
def opened_parquet(path: Path) -> Iterator[tuple[parquet.ParquetFile, BufferedReader]]:
    """A Parquet file, its texts as dictionaries, and its bytes; whatever reading it raises is an InputError."""
    # A stream, because pyarrow does not accept a path that is not UTF-8.
    with open_data(path) as stream, reading_parquet(path):
        limits = {"thrift_string_size_limit": LONGEST, "thrift_container_size_limit": MOST, "pre_buffer": False}
        schema = parquet.ParquetFile(stream, **limits).schema_arrow
        texts = [name for name, kind in zip(schema.names, schema.types, strict=True) if is_text(kind)]
        with parquet.ParquetFile(stream, read_dictionary=texts, **limits) as file:
            yield file, stream


def reading_parquet(path: Path) -> AbstractContextManager[None]:
    return parsing(
        f"{path}: is not a readable Parquet file",
        "was it copied in full? Texts that are stored as differences (DELTA_BYTE_ARRAY) are not read: "
        "pandas.read_parquet(FILE).to_parquet(FILE) stores them otherwise.",
    )


def parquet_names(path: Path) -> list[str]:
    """The names of the columns of a Parquet file."""
    with opened_parquet(path) as (file, _):
        return file.schema_arrow.names


def index_names(path: Path) -> list[str]:
    """The columns of a Parquet file that hold pandas' index; damaged metadata name none."""
    with opened_parquet(path) as (file, _), suppress(ValueError, KeyError, TypeError, RecursionError):
        schema = file.schema_arrow
        names = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
        return [name for name in schema.names if name in names]
    return []


def typed_columns(path: Path, names: list[str]) -> pa.Table:
    """Columns that `read_parquet` has read and so bounded, with their types: categories as what they stand for.

    Notes of the file, which may have what no cell has, are left out.
    """
    with opened_parquet(path) as (file, _):
        table = file.read(columns=names).select(names)
    fields = [field.remove_metadata() for field in table.schema]
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in fields]
    return table.cast(pa.schema([field.with_type(kind) for field, kind in zip(fields, kinds, strict=True)]))


def read_parquet(path: Path, only: Callable[[str], bool] = lambda _: True) -> TextTable:
    """The cells as text, empty where missing.

    Numbers, booleans, dates, times and decimals are converted to text; dictionary-encoded text is decoded. A column of
    lists, or of anything else without a text, is refused. `only` says by its name whether a column is read; others get
    empty cells, whatever their type.
    """
    with opened_parquet(path) as (file, stream):
        schema, rows, count = file.schema_arrow, file.metadata.num_rows, len(file.schema_arrow.names)
        title, most = f"{path}, {rows:,} rows of {count:,} columns", most_unpacked(file_size(stream), MAX_BYTES)
        if max(count, len(file.schema)) > MOST_COLUMNS or len(set(schema.names)) < count:
            raise InputError(
                f"{path}: has {len(file.schema):,} columns, of which at most {MOST_COLUMNS:,} are allowed, or two of "
                "one name; give each its own."
            )
        read = [name for name in schema.names if only(name)]
        for name in read:
            _check_flat(path, schema.field(name))
        refuse_larger(title, CELL * rows * max(1, len(read)), most, ADVICE)
        refuse_larger(title, unpacked_bytes(stream), most, ADVICE)
        parts: dict[str, list[pa.Array]] = {name: [] for name in read}
        size = done = 0
        for batch in file.iter_batches(ROWS, columns=read) if read else ():
            text_bytes = sum(map(_bytes, batch.columns))
            refuse_larger(title, size + CELL * len(read) * len(batch) + text_bytes, most, ADVICE)
            for name in read:
                parts[name].append(_as_text(batch.column(name)))
                # A number may be longer as text.
                size += CELL * len(batch) + parts[name][-1].nbytes
                refuse_larger(title, size, most, ADVICE)
            done += len(batch)
    nothing = pa.chunked_array([pa.repeat("", done if read else rows)])
    columns = [pa.chunked_array(parts[name], pa.string()) if name in parts else nothing for name in schema.names]
    kinds = {name: schema.field(name).type for name in read}
    floats = {name: np.dtype(kind.to_pandas_dtype()) for name, kind in kinds.items() if pa.types.is_floating(kind)}
    return TextTable(schema.names, columns, path.name, floats=floats)


def _check_flat(path: Path, field: pa.Field) -> None:
    """Refuses a column that does not hold one value per cell."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    written = is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    if not written or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise InputError(
            f"{path}: column {field.name!r} has values of type {str(kind)[:60]}, which a classifier cannot use; leave "
            "it out (`drop`), or write it as numbers or text. Images are read from a folder of folders, one a class, "
            "and texts from JSON Lines."
        )


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of this type are text, in a dictionary or not."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner)


def _bytes(cells: pa.Array) -> int:
    """The bytes of the texts of a column, each as often as it occurs, and two for every value."""
    kind, size = cells.type, 2 * len(cells)
    if not is_text(kind):
        return size
    values = cells.dictionary if pa.types.is_dictionary(kind) else cells
    lengths = pc.call_function("cast", [pc.call_function("binary_length", [values])], pc.CastOptions(pa.int64()))
    if pa.types.is_dictionary(kind):
        lengths = pc.call_function("take", [lengths, cells.indices])
    return size + (pc.call_function("sum", [lengths]).as_py() or 0)


def _as_text(cells: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    text = pc.fill_null(cells.cast(pa.string()), "")
    text.validate(full=True)
    return text


def read_text_table(path: Path, only: Callable[[str], bool] = lambda _: True) -> TextTable:
    """The cells of a CSV file with a header line, or of a Parquet file; its first bytes show which format it has, and
    what ends in .parquet is no CSV file. `only` is as for `read_parquet`.
    """
    return read_parquet(path, only) if is_parquet(path) else read_csv(path)


def is_parquet(path: Path) -> bool:
    """Whether a table is Parquet: its first bytes say so, or its name."""
    with open_data(path) as stream:
        return stream.read(len(MAGIC)) == MAGIC or path.suffix.lower() == ".parquet"


def has_dealt_groups(table: TextTable) -> bool:
    """Whether a column `group` has the random numbers of a deal, see `are_dealt`."""
    if table.header.count(COLUMN) != 1:
        return False
    numbers = float_cells(table.columns[table.header.index(COLUMN)], table.decimal)
    return numbers is not None and are_dealt(numbers)


def without_dealt_groups(table: TextTable, needed_names: Collection[str]) -> tuple[TextTable, tuple[str, ...]]:
    """The table without the groups that `deal` wrote, unless they are needed, and a note: they are no input."""
    if COLUMN in needed_names or not has_dealt_groups(table):
        return table, ()
    return table.without([COLUMN]), (f"column {COLUMN!r} has the groups that `jaxaudit deal` wrote and is left out",)

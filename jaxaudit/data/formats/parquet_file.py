"""Parquet files of another party: their columns as text, bounded before they are decoded.

A few bytes of Parquet can hold gigabytes: pages are compressed, and a value that occurs often is stored once. So the
headers of pages are added up first (`unpacked_bytes`), and columns are decoded some rows at a time, texts with a number
in place of each repeated one, which Arrow refuses for texts that are stored as differences.

pyarrow gives the footer's numbers, but for a damaged file the call ends the process (version 26: an uncaught C++
exception), and a footer may say less than pages hold. Footer and headers are Thrift structs in the compact protocol:
https://github.com/apache/parquet-format and thrift-compact-protocol.md of Apache Thrift."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.formats.text_table import TextTable, float_cells, read_csv
from jaxaudit.data.labels import COLUMN, are_dealt
from jaxaudit.data.memory import MAX_BYTES, MOST_COLUMNS, RATIO, SPARE, refuse_larger
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.errors import InputError

CELL = 16
"""Bytes that a cell takes beside its text."""
ROWS = 1 << 16
"""The most rows that are decoded together."""
ADVICE = "keep fewer rows or columns"
IS_WHOLE = (
    "was it copied in full? Texts that are stored as differences (DELTA_BYTE_ARRAY) are not read: "
    "pandas.read_parquet(FILE).to_parquet(FILE) stores them otherwise."
)
LONGEST, MOST = 1 << 24, 1 << 22
"""Bytes of a text of the footer, and entries of a list there."""


@contextmanager
def opened_parquet(path: Path) -> Iterator[tuple[parquet.ParquetFile, BufferedReader]]:
    """A Parquet file, its texts as dictionaries, and its bytes; whatever reading it raises is an InputError."""
    # A stream, because pyarrow does not accept a path that is not UTF-8.
    complaint = f"{path}: is not a readable Parquet file"
    with open_data(path) as stream, parsing(complaint, IS_WHOLE):
        limits = {"thrift_string_size_limit": LONGEST, "thrift_container_size_limit": MOST, "pre_buffer": False}
        schema = parquet.ParquetFile(stream, **limits).schema_arrow
        texts = [name for name, kind in zip(schema.names, schema.types, strict=True) if is_text(kind)]
        with parquet.ParquetFile(stream, read_dictionary=texts, **limits) as file:
            yield file, stream


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
    """Columns that `read_parquet` has bounded, with their types: categories as what they stand for."""
    with opened_parquet(path) as (file, _):
        table = file.read(columns=names).select(names)
    fields = [field.remove_metadata() for field in table.schema]
    return table.cast(pa.schema([field.with_type(_of_cells(field.type)) for field in fields]))


def read_parquet(path: Path, only: Callable[[str], bool]) -> TextTable:
    """The cells as text, empty where missing.

    Numbers, booleans, dates, times and decimals are converted to text. A column of lists, or of anything else without a
    text, is refused. `only` says by its name whether a column is read; others get empty cells, whatever their type.
    """
    with opened_parquet(path) as (file, stream):
        schema, rows, count = file.schema_arrow, file.metadata.num_rows, len(file.schema_arrow.names)
        title = f"{path}, {rows:,} rows of {count:,} columns"
        most = min(MAX_BYTES, max(SPARE, RATIO * file_size(stream)))
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
    kind = _of_cells(field.type)
    written = is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    if not written or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise InputError(
            f"{path}: column {field.name!r} has values of type {str(kind)[:60]}, which a classifier cannot use; leave "
            "it out (`drop`), or write it as numbers or text. Images are read from a folder of folders, one a class, "
            "and texts from JSON Lines."
        )


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of this type are text, in a dictionary or not."""
    inner = _of_cells(kind)
    return pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner)


def _of_cells(kind: pa.DataType) -> pa.DataType:
    """The type of the cells, in a dictionary or not."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


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
    text = pc.fill_null(cells.cast(_of_cells(cells.type)).cast(pa.string()), "")
    text.validate(full=True)
    return text


def read_text_table(path: Path, only: Callable[[str], bool]) -> TextTable:
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
    numbers = float_cells(table.column(COLUMN), table.decimal)
    return numbers is not None and are_dealt(numbers)


MAGIC = b"PAR1"
LONGEST_FOOTER = 1 << 22
DEEPEST = 32
MOST_PAGES = 1_000_000
HEADERS = 1 << 10, 1 << 16, 1 << 22
"""Bytes in which the header of a page is sought: few have long texts as statistics."""
_ROW_GROUPS, _COLUMNS, _META, _VALUES, _UNPACKED, _PACKED, _DATA, _DICTIONARY = 4, 1, 3, 5, 6, 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _, _, _STRUCT = range(1, 13)
_SIZES = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}


def unpacked_bytes(stream: BufferedIOBase) -> int:
    """The size of all decompressed, still encoded pages, by the footer or their headers, whichever is more; a
    `ValueError` where these are damaged. The stream is left anywhere.
    """
    end = stream.seek(0, 2)
    stream.seek(max(0, end - 8))
    tail = stream.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > min(end - 8, LONGEST_FOOTER):
        raise ValueError("it has no footer")
    stream.seek(end - 8 - length)
    try:
        groups = _Reader(stream.read(length)).value(_STRUCT).get(_ROW_GROUPS, [])
        metas = [column[_META] for group in groups for column in group[_COLUMNS]]
        in_pages = 0
        for pages, size in enumerate((size for meta in metas for size in _page_sizes(stream, meta, end)), 1):
            in_pages += size
            if pages > MOST_PAGES:
                raise ValueError(f"it has more than {MOST_PAGES:,} pages")
        return max(in_pages, sum(_size(meta[_UNPACKED]) for meta in metas))
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("its footer or a page is damaged") from error


def _size(number: int) -> int:
    if number < 0:
        raise ValueError("it states a size below 0")
    return number


def _page_sizes(stream: BufferedIOBase, meta: dict[int, Any], end: int) -> Iterator[int]:
    """What the pages of a column chunk unpack to; they are found as Arrow finds them."""
    start, dictionary = meta[_DATA], meta.get(_DICTIONARY, 0)
    place = dictionary if 0 < dictionary < start else start
    # Without values nothing is read.
    last = min(place + meta[_PACKED], end) if _size(meta[_VALUES]) else 0
    while 0 <= place < last:
        stream.seek(place)
        data = b""
        for size in HEADERS:
            data += stream.read(size - len(data))
            reader = _Reader(data)
            try:
                page = reader.value(_STRUCT)
                break
            except IndexError:
                if len(data) < size or size == HEADERS[-1]:
                    raise
        yield _size(page[_PAGE_UNPACKED])
        place += reader.at + _size(page[_PAGE_PACKED])


class _Reader:
    """Reads values of the compact protocol one after another; raises IndexError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def taken(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise IndexError
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        number = 0
        for shift in range(0, 64, 7):
            (byte,) = self.taken(1)
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("its footer has too large a number")

    def signed(self) -> int:
        number = self.number()
        return number >> 1 ^ -(number & 1)

    def value(self, kind: int, depth: int = 0) -> Any:
        """A number, a list, or a struct by the numbers of its fields; texts and fractions say nothing on sizes."""
        if depth > DEEPEST:
            raise ValueError("its footer is nested too deeply")
        if kind in (_I16, _I32, _I64):
            return self.signed()
        if kind == _STRUCT:
            fields, number = dict[int, Any](), 0
            while head := self.taken(1)[0]:
                number = number + (head >> 4) if head >> 4 else self.signed()
                # Of a field that is true or false the kind is the value.
                fields[number] = None if head & 15 in (_TRUE, _FALSE) else self.value(head & 15, depth + 1)
            return fields
        if kind == _LIST:
            (head,) = self.taken(1)
            size = self.number() if head >> 4 == 15 else head >> 4
            # Each has a byte at least.
            if size > len(self.data) - self.at:
                raise IndexError
            return [self.value(head & 15, depth + 1) for _ in range(size)]
        if kind != _BINARY and kind not in _SIZES:  # Parquet has neither sets nor maps
            raise ValueError("its footer is invalid")
        return self.taken(self.number() if kind == _BINARY else _SIZES[kind])

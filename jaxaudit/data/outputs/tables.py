"""Reads tables of a model's outputs: CSV and Parquet files in which some columns are the classes."""

import csv
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from jaxaudit.data.formats.csv_file import read_csv
from jaxaudit.data.formats.parquet_file import index_columns
from jaxaudit.data.formats.parquet_footer import Declared, declared_columns
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.formats.text_table import INDEX_NAMES, counting
from jaxaudit.data.memory import refuse_larger
from jaxaudit.data.outputs.files import HARD_LABELS, SPARE, Expected
from jaxaudit.data.paths import open_data
from jaxaudit.errors import InputError

LISTS = (pa.types.is_list, pa.types.is_fixed_size_list, pa.types.is_large_list)
LONGEST_LINE = 1 << 20
WIDEST_CELL = 64
LONGEST_NAME = 4096
"""The most characters of a number, or of a record's name, in a table."""


def read_csv_outputs(path: Path, expected: Expected) -> np.ndarray:
    """The class columns of a CSV file; its size and first line are checked before it is parsed."""
    rows, classes = expected.rows, expected.classes
    if path.stat().st_size > (rows + 1) * ((classes + 1) * WIDEST_CELL + LONGEST_NAME) + SPARE:
        raise InputError(f"{path.name}: is longer than {rows} rows of {classes} numbers; is it of the {expected.of}?")
    first = _first_line(path)
    if first is not None and len(first) > classes + 1:
        raise expected.other_columns(len(first), path.name)
    found = _numbers_at_once(path, first, expected) if first else None
    return _from_cells(path, expected) if found is None else found


def _first_line(path: Path) -> list[str] | None:
    """The cells of a first line of comma-separated UTF-8, trimmed; None if it is not such a line."""
    try:
        with TextIOWrapper(open_data(path), encoding="utf-8-sig", newline="") as stream:
            line = stream.readline(LONGEST_LINE + 1)
        if len(line) > LONGEST_LINE:
            raise InputError(f"{path.name}: its first line is longer than {LONGEST_LINE} characters; is it a CSV file?")
        cells = next(csv.reader([line]), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    return [cell.strip() for cell in cells]


def _numbers_at_once(path: Path, first: list[str], expected: Expected) -> np.ndarray | None:
    """The numbers of a clean table, parsed as numbers; None if cells must be checked one by one."""
    header = first if _is_header(first, False, expected) else None
    titles = [str(column) for column in range(len(first))]
    try:
        with open_data(path) as stream:
            cells = arrow_csv.read_csv(
                stream,
                arrow_csv.ReadOptions(column_names=titles, skip_rows=0 if header is None else 1, use_threads=False),
                arrow_csv.ParseOptions(newlines_in_values=True),
                arrow_csv.ConvertOptions(column_types=dict.fromkeys(titles, pa.float64()), null_values=[]),
            )
    except (pa.ArrowException, OSError, ValueError):
        return None
    columns = [column.to_numpy() for column in cells.columns]
    if header is None and _is_header(first, len(columns[0]) == expected.rows + 1, expected):
        header, columns = first, [column[1:] for column in columns]
    expected.check_rows(len(columns[0]), path.name)
    chosen = _class_columns(header, columns[0], len(columns), expected, path.name)
    return np.stack([columns[column] for column in chosen]).T


def _from_cells(path: Path, expected: Expected) -> np.ndarray:
    """The same numbers of any table, cell by cell if needed, so that a message can name the row and the column."""
    table = read_csv(path, header=False)
    first = [column[0].as_py().strip() for column in table.columns]
    if _is_header(first, table.rows == expected.rows + 1, expected):
        table = table.with_header()
    expected.check_rows(table.rows, path.name)
    if len(table.columns) == 1 and not _are_numbers([str(table.columns[0][-1])]):
        raise InputError(f"{path.name}: {HARD_LABELS}.")
    leading = table.numbers(0) if _are_numbers([table.columns[0][0].as_py()]) else None
    chosen = _class_columns(table.header, leading, len(table.columns), expected, path.name)
    return np.stack([table.numbers(column) for column in chosen]).T


def read_parquet_outputs(path: Path, expected: Expected) -> np.ndarray:
    """The class columns, or the one column of lists, of a Parquet file whose footer is checked first."""
    with parsing(f"{path}: is not a readable Parquet file", "was it copied in full?"), open_data(path) as stream:
        # A stream, because pyarrow does not accept a path that is not UTF-8.
        declared = declared_columns(stream)
        with parquet.ParquetFile(stream, pre_buffer=True) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            index = index_columns(schema)
            for name in index:
                expected.check_rows(rows, path.name)
                if _is_number(schema.field(name).type):
                    _refuse_out_of_order(file.read([name]).column(0).to_numpy(), "its pandas index", path.name)
            places = [place for place, name in enumerate(schema.names) if name not in index]
            names, types = [schema.names[place] for place in places], [schema.types[place] for place in places]
            declared = [declared[place] for place in places] if len(declared) == len(schema.names) else declared
            # A first column of text is taken to name the records, and is not read.
            skipped = int(len(names) > 1 and not _is_number(types[0]))
            _check_before_reading(rows, declared[skipped:], skipped, path.name, expected)
            # A few bytes can hold a long text in each cell.
            texts = [place for place, kind in enumerate(types[skipped:], skipped) if not _is_number(kind)]
            of_labels = len(names) == 1 and not any(is_kind(types[0]) for is_kind in LISTS)
            table = None if texts and (len(names) > 1 or of_labels) else file.read(names[skipped:])
    if table is None and len(names) == 1:
        raise InputError(f"{path.name}: {HARD_LABELS}.")
    if table is None:
        raise _no_number(names[texts[0]], types[texts[0]], path.name)
    if texts:
        return _from_lists(table.column(0), path.name)
    if table.num_columns != len(names) - skipped:
        raise InputError(f"{path.name}: has several columns of the same name; give each its own.")
    leading = None if skipped or not _is_number(types[0]) else table.column(0).to_numpy()
    chosen = _class_columns(names, leading, len(names), expected, path.name)
    for column in chosen:
        if table.column(column - skipped).null_count:
            raise InputError(f"{path.name}: column {names[column][:40]!r} has empty cells; outputs must be numbers.")
    return np.stack([table.column(column - skipped).to_numpy() for column in chosen]).T


def _no_number(name: str, kind: pa.DataType, source: str) -> InputError:
    return InputError(f"{source}: column {name[:40]!r} is of type {str(kind)[:40]}; outputs must be numbers.")


def _check_before_reading(
    held: int, declared: Sequence[Declared], skipped: int, source: str, expected: Expected
) -> None:
    """Rejects columns behind the first `skipped` that hold more than outputs of this shape can."""
    rows, classes = expected.rows, expected.classes
    if not declared:
        raise InputError(f"{source}: has no columns; did the model write its outputs?")
    expected.check_rows(held, source)
    if len(declared) + skipped > classes + 1:
        raise expected.other_columns(len(declared) + skipped, source)
    # A few bytes can hold lists of millions of equal values.
    most = max(column.values for column in declared)
    if most > rows * classes:
        raise InputError(f"{source}: has {most} values in {rows} lists of {classes} classes; save only the outputs.")
    size = sum(column.unpacked_bytes for column in declared)
    refuse_larger(source, size, rows * (classes + 1) * WIDEST_CELL + SPARE, "save only the outputs")


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _from_lists(cells: pa.ChunkedArray, source: str) -> np.ndarray:
    kind = cells.type.value_type
    # Only offsets are read: a few bytes of Parquet can hold millions of equal values.
    lengths = pc.call_function("unique", [pc.call_function("list_value_length", [cells])]).to_pylist()
    if not _is_number(kind) or len(lengths) != 1 or not lengths[0]:
        raise InputError(f"{source}: its lists differ in length or are not numbers; save one column per class.")
    flat = cells.combine_chunks().flatten()
    if flat.null_count:
        raise InputError(f"{source}: has empty cells; outputs must be numbers.")
    return flat.to_numpy(zero_copy_only=False).reshape(-1, lengths.pop())


def _are_numbers(cells: Sequence[str]) -> bool:
    try:
        [float(cell) for cell in cells]
    except ValueError:
        return False
    return True


def _is_header(first: list[str], one_line_too_many: bool, expected: Expected) -> bool:
    """Whether a first line with these cells names the columns."""
    if first[0] == "" or not _are_numbers(first[1:]) or (len(first) == 1 and not _are_numbers(first)):
        return True
    classes, class_names = expected.classes, expected.class_names
    # A line of numbers names the columns only if it names the classes and the file is one line longer than the set.
    names = first[1:] if len(first) == classes + 1 else first
    numbered = names == [str(k) for k in range(classes)]
    return one_line_too_many and (numbered or (class_names is not None and set(names) == set(class_names)))


def _class_columns(
    header: list[str] | None, leading: np.ndarray | None, count: int, expected: Expected, source: str
) -> list[int]:
    """The columns that hold the classes, in class order; a leading row number or identifier is left out."""
    classes, class_names = expected.classes, expected.class_names
    columns = list(range(count))
    # One column fewer than classes is enough for two classes: the probability of the second.
    if count > 1 and (count == classes + 1 or (classes == 2 and count == 2)):
        spare = count == classes + 1
        named = header is not None and header[0].lower() in (*INDEX_NAMES, "__index_level_0__")
        if leading is None:
            columns = columns[1:]
        elif _counts_records(leading) or (spare and named):
            _refuse_out_of_order(leading, "its first column", source)
            columns = columns[1:]
    if header is None or class_names is None or len(columns) != classes:
        return columns
    titles = [header[column] for column in columns]
    unknown = [title for title in titles if title not in class_names]
    if len(set(titles)) == classes and not unknown:
        return [columns[titles.index(name)] for name in class_names]
    if len(unknown) < len(titles):
        raise InputError(
            f"{source}: some columns are named after classes, but {unknown[0] if unknown else titles[0]!r} "
            f"{'is not a class' if unknown else 'occurs twice'}; name all columns after the classes "
            f"({', '.join(map(str, list(class_names)[:5]))}, ...) or none."
        )
    return columns


def _refuse_out_of_order(numbers: np.ndarray, what: str, source: str) -> None:
    if not _counts_records(numbers) and _counts_records(np.sort(numbers)):
        raise InputError(f"{source}: {what} numbers the rows out of order; sort them.")


def _counts_records(numbers: np.ndarray) -> bool:
    """Whether it is 0, 1, 2, ... or 1, 2, 3, ...: at least three, because two could be outputs."""
    return len(numbers) > 2 and counting(numbers)

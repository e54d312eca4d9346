"""Reads tables of a model's outputs: CSV and Parquet files in which some columns are the classes."""

import csv
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from jaxaudit.data.formats.csv_file import parse_csv, read_csv
from jaxaudit.data.formats.parquet_file import index_columns, is_text
from jaxaudit.data.formats.parquet_footer import DeclaredColumn, declared_columns
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.formats.text_table import TextTable, trimmed
from jaxaudit.data.memory import refuse_larger
from jaxaudit.data.outputs.columns import PANDAS_INDEX, Chosen, are_numbers, choose_columns, is_header, titled
from jaxaudit.data.outputs.expected import HARD_LABELS, LONGEST_NAME, SPARE, Expected, OutputColumns, order_of_rows
from jaxaudit.data.outputs.number_cells import plain_numbers, separated_by_blanks, with_points
from jaxaudit.data.outputs.titles import classes_named
from jaxaudit.data.paths import open_data
from jaxaudit.errors import InputError

LISTS = (pa.types.is_list, pa.types.is_fixed_size_list, pa.types.is_large_list)
LONGEST_LINE = 1 << 20
_LOOKED_AT = 1000
WIDEST_CELL = 64
"""The most characters of a number in a table."""


def read_csv_outputs(path: Path, expected: Expected) -> OutputColumns:
    """The class columns of a CSV file; its size and first line are checked before it is parsed."""
    rows, classes = expected.rows, expected.classes
    if path.stat().st_size > (rows + 1) * ((classes + 1) * WIDEST_CELL + LONGEST_NAME) + SPARE:
        raise InputError(f"{path.name}: is longer than {rows} rows of {classes} numbers; is it of the {expected.of}?")
    line = _first_line(path)
    first = None if line is None else _split(line)
    if line is not None and first and (rewritten := _rewritten(path, line, len(first), expected)):
        table = parse_csv(rewritten[0].encode(), path, header=False)
        notes = dict.fromkeys((rewritten[1], *(("decimal commas",) if table.decimal == "," else ())))
        return _from_cells(replace(table, note=", ".join(notes)), expected)
    # A delimiter at the end of each line makes an empty column.
    if first is not None and len(first) - (first[-1:] == [""]) > classes + 1:
        raise expected.other_columns(len(first), path.name)
    # Names of records are text, and so are read cell by cell.
    outputs_at_once = _numbers_at_once(path, first, expected) if first and expected.records is None else None
    return (
        _from_cells(plain_numbers(read_csv(path, header=False)), expected)
        if outputs_at_once is None
        else outputs_at_once
    )


def _rewritten(path: Path, line: str, cells: int, expected: Expected) -> tuple[str, str] | None:
    """The text of a table whose numbers no comma separates, so that some sign does, and a note; None of any other.

    `line` is the first, and has this many cells.
    """
    blanks, point = len(line.split()) > 1 and ", " not in line, cells < 3 and expected.classes <= 2
    if not (blanks or point):
        return None
    with suppress(UnicodeDecodeError), open_data(path) as stream:
        text = stream.read().decode("utf-8-sig")
        return (separated_by_blanks(text) if blanks else None) or (
            with_points(text, expected, path.name) if point else None
        )
    return None


def _first_line(path: Path) -> str | None:
    """The first line of UTF-8; None if it is not UTF-8."""
    try:
        with TextIOWrapper(open_data(path), encoding="utf-8-sig", newline="") as stream:
            line = stream.readline(LONGEST_LINE + 1)
    except (OSError, UnicodeDecodeError):
        return None
    if len(line) > LONGEST_LINE:
        raise InputError(f"{path.name}: its first line is longer than {LONGEST_LINE} characters; is it a CSV file?")
    return line


def _split(line: str) -> list[str] | None:
    """The cells of a comma-separated line, trimmed; None if it is not such a line."""
    try:
        cells = [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return None
    return [cells[0].removeprefix("# "), *cells[1:]] if cells else cells


def _numbers_at_once(path: Path, first: list[str], expected: Expected) -> OutputColumns | None:
    """The numbers of a clean table, parsed as numbers; None if cells must be checked one by one."""
    header = first if is_header(first, False, expected) else []
    titles = [str(column) for column in range(len(first))]
    try:
        with open_data(path) as stream:
            cells = arrow_csv.read_csv(
                stream,
                arrow_csv.ReadOptions(column_names=titles, skip_rows=1 if header else 0, use_threads=False),
                arrow_csv.ParseOptions(newlines_in_values=True),
                arrow_csv.ConvertOptions(column_types=dict.fromkeys(titles, pa.float64()), null_values=[]),
            )
    except (pa.ArrowException, OSError, ValueError):
        return None
    columns = [column.to_numpy() for column in cells.columns]
    if not header and is_header(first, len(columns[0]) == expected.rows + 1, expected):
        header, columns = first, [column[1:] for column in columns]
    expected.check_rows(len(columns[0]), path.name)
    chosen = choose_columns(header, (), (), columns, expected, path.name)
    return _made(chosen, [columns[column] for column in chosen.columns], None, expected, path.name)


def _from_cells(table: TextTable, expected: Expected) -> OutputColumns:
    """The same numbers of any table, cell by cell if needed, so that a message can name the row and the column."""
    first = [column[0].as_py().strip() for column in table.columns]
    first[0] = first[0].removeprefix("# ")
    if is_header(first, table.rows == expected.rows + 1, expected, table.decimal):
        table = replace(table.with_header(), header=first)
    table, left_out = table.without_empty(())
    expected.check_rows(table.rows, table.source)
    cells = [next((cell for cell in trimmed(column[:_LOOKED_AT]).to_pylist() if cell), "0") for column in table.columns]
    texts = [place for place, cell in enumerate(cells) if not are_numbers([cell], table.decimal)]
    if len(table.columns) == 1 and texts:
        raise InputError(f"{table.source}: {HARD_LABELS}.")
    # Text in a column that is named after a class is refused where the column is read.
    name_columns = [place for place in texts if not table.header or not classes_named([table.header[place]], expected)]
    numbers = [None if place in texts else _whole_column(table, place) for place in range(len(cells))]
    chosen = choose_columns(table.header, name_columns, (), numbers, expected, table.source)
    names = None
    if len(name_columns) == 1 and name_columns[0] not in chosen.columns:
        title = titled(table.header, name_columns[0])
        names = title, lambda: trimmed(table.columns[name_columns[0]]).to_pylist()
    notes = (*((table.note,) if table.note else ()), *left_out)
    read = [table.numbers(column) for column in chosen.columns]
    return _made(chosen._replace(notes=(*notes, *chosen.notes)), read, names, expected, table.source)


def _whole_column(table: TextTable, column: int) -> np.ndarray | None:
    """The numbers of a column; None if a cell is none."""
    try:
        return table.numbers(column)
    except InputError:
        return None


def _made(
    chosen: Chosen,
    columns: Sequence[np.ndarray],
    names: tuple[str, Callable[[], list[str]]] | None,
    expected: Expected,
    source: str,
) -> OutputColumns:
    """The chosen columns, with rows in the order that a column of names (what it is called, and its cells) tells."""
    where, read = names or ("", list)
    record_names = None if names is None else [] if expected.records is None else read()
    if record_names and expected.class_names is not None and set(record_names) <= set(expected.class_names):
        record_names = None  # the classes that the model tells, or the labels
    order, notes = order_of_rows(record_names, where, expected, source)
    values = np.stack(columns).T if columns else np.empty((expected.rows, 0))
    return OutputColumns(
        values if order is None else values[order], (*chosen.notes, *notes), chosen.only, chosen.absent
    )


def read_parquet_outputs(path: Path, expected: Expected) -> OutputColumns:
    """The class columns, or the one column of lists, of a Parquet file whose footer is checked first."""
    with parsing(f"{path}: is not a readable Parquet file", "was it copied in full?"), open_data(path) as stream:
        # A stream, because pyarrow does not accept a path that is not UTF-8.
        declared = declared_columns(stream)
        with parquet.ParquetFile(stream, pre_buffer=True) as file:
            schema = file.schema_arrow
            names, types = schema.names, schema.types
            texts = [place for place, kind in enumerate(types) if len(names) > 1 and is_text(kind)]
            # Cells of text are read only if they are the names of records and these are known.
            held = [place for place in range(len(names)) if place not in texts]
            _check_before_reading(
                file.metadata.num_rows,
                [declared[place] for place in held if place < len(declared)],
                len(texts),
                path.name,
                expected,
            )
            index = index_columns(schema)
            table = file.read([names[place] for place in held])
    for column, place in enumerate(held):
        if pa.types.is_decimal(types[place]):
            # As databases and Spark write numbers.
            types[place] = pa.float64()
            table = table.set_column(column, names[place], table.column(column).cast(pa.float64()))
    if len(names) == 1 and is_text(types[0]):
        raise InputError(f"{path.name}: {HARD_LABELS}.")
    of_lists = [place for place in held if any(is_kind(types[place]) for is_kind in LISTS)]
    name_columns = [place for place in texts if not classes_named([names[place]], expected)]
    cells = None
    if len(name_columns) == 1:
        cells = (
            titled(names, name_columns[0]),
            lambda: _texts(path, names[name_columns[0]], declared[name_columns[0]], expected),
        )
    if len(held) == len(of_lists) == 1:
        columns = list(_from_lists(table.column(0), path.name).T)
        chosen = choose_columns((), (), (), columns, expected, path.name)
        return _made(chosen, [columns[column] for column in chosen.columns], cells, expected, path.name)
    if table.num_columns != len(held):
        raise InputError(f"{path.name}: has several columns of the same name; give each its own.")
    numbers = [
        table.column(held.index(place)).to_numpy() if place in held and _is_number(types[place]) else None
        for place in range(len(names))
    ]
    indices = [place for place in held if names[place] in (*index, PANDAS_INDEX)]
    chosen = choose_columns(names, name_columns, indices, numbers, expected, path.name)
    for column in chosen.columns:
        if not _is_number(types[column]) or table.column(held.index(column)).null_count:
            trouble = "has empty cells" if _is_number(types[column]) else f"is of type {str(types[column])[:40]}"
            raise InputError(f"{path.name}: column {names[column][:40]!r} {trouble}; outputs must be numbers.")
    if cells is not None and name_columns[0] in chosen.columns:
        cells = None
    read = [table.column(held.index(column)).to_numpy() for column in chosen.columns]
    return _made(chosen, read, cells, expected, path.name)


def _texts(path: Path, name: str, declared: DeclaredColumn, expected: Expected) -> list[str]:
    """The cells of a column of text, which must be no longer than the expected names; empty where they are missing."""
    longest = max(map(len, expected.records or [""]))
    # A dictionary may hold one long text that each record repeats, so it is looked at before it is unpacked.
    refuse_larger(path.name, declared.unpacked_bytes, expected.rows * LONGEST_NAME + SPARE, "save only the outputs")
    with parsing(f"{path}: is not a readable Parquet file", "was it copied in full?"), open_data(path) as stream:
        cells = parquet.read_table(stream, columns=[name], read_dictionary=[name]).column(0)
        cells = cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()
        cells = cells.combine_chunks()
        distinct_texts = [text if len(text) <= longest else "" for text in map(_text, cells.dictionary)]
        numbers = cells.indices.to_pylist()
    return ["" if number is None else distinct_texts[number] for number in numbers]


def _text(cell: pa.Scalar) -> str:
    return str(cell.as_py() or "")


def _check_before_reading(
    held: int, declared: Sequence[DeclaredColumn], skipped: int, source: str, expected: Expected
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

"""Reads the numbers in a file of model outputs."""

import csv
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.formats.arrays import NpzArrays, read_npy
from jaxaudit.data.formats.parquet_footer import Declared, declared_columns
from jaxaudit.data.formats.pickles import refuse_pickle
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.outputs.columns import are_numbers, class_columns, is_header
from jaxaudit.data.paths import exists, open_data
from jaxaudit.errors import InputError

# In the order of preference where a .npz holds several.
ARRAY_NAMES = ("probabilities", "probs", "logits", "outputs", "predictions", "y_pred", "arr_0")
SUFFIXES = (".npz", ".npy", ".csv", ".parquet")
HARD_LABELS = "these are predicted labels, but confidences are needed; save the probabilities or logits of every class"


LONGEST_LINE = 1 << 20
"""Characters of a table's first line, names included."""
WIDEST_CELL = 64
LONGEST_NAME = 4096
"""Characters that a number, and what names a record, take in a table."""
SPARE = 1 << 26
"""Bytes that any file may have, however few the records: a file of other records is then refused for what it is."""


class RawOutputs(NamedTuple):
    """What a file of outputs holds.

    Attributes:
        values: `[rows, columns]`, integers or floating-point numbers of the file's own type.
        dtype: the file's type of number; "text" for CSV.
    """

    values: np.ndarray
    dtype: str


def read_outputs(path: Path, rows: int, classes: int, class_names: Sequence[str] | None, of: str) -> RawOutputs:
    """The numbers in a .npz, .npy, .csv or .parquet file; in tables, the class columns in the order of `class_names`.

    Raises:
        InputError: when the file cannot be read, is not numbers, or a table has other rows or columns than asked for.
    """
    if not (exists(path) and path.is_file()):
        raise InputError(f"{path}: there is no such file; is the path right?")
    suffix = path.suffix.lower()
    if suffix == ".npy":
        most = rows * (classes + 1) * np.dtype(np.longdouble).itemsize + SPARE
        return _from_array(read_npy(path, min(MAX_BYTES, most)), path.name)
    if suffix == ".npz":
        archive = NpzArrays(path)
        return _from_array(archive.read(_choose_array(archive.names, path)), path.name)
    if suffix == ".csv":
        return _from_csv(path, rows, classes, class_names, of)
    if suffix == ".parquet":
        return _from_parquet(path, rows, classes, class_names, of)
    refuse_pickle(path)
    raise InputError(f"{path}: outputs are read from {', '.join(SUFFIXES)}; save them as one of these.")


def check_rows(found: int, rows: int, source: str, of: str) -> None:
    """Checks that the file has one row per record of its set.

    Raises:
        InputError: otherwise, with both numbers.
    """
    if found != rows:
        raise InputError(
            f"{source}: has {found} rows but the {of} has {rows} records; give one row per record, in the order of the "
            f"{of}."
        )


def _choose_array(names: list[str], path: Path) -> str:
    if len(names) == 1:
        return names[0]
    by_lower = {name.lower(): name for name in names}
    for name in ARRAY_NAMES:
        if name in by_lower:
            return by_lower[name]
    raise InputError(
        f"{path}: contains the arrays {', '.join(repr(name[:40]) for name in names[:10]) or '(none)'}; name the "
        "outputs 'probabilities' or 'logits'."
    )


def _from_array(array: np.ndarray, source: str) -> RawOutputs:
    if array.dtype.kind not in "uif":
        what = HARD_LABELS if array.ndim == 1 or array.shape[1:] == (1,) else "save numbers"
        raise InputError(f"{source}: has values of type {array.dtype}: {what}.")
    if array.ndim not in (1, 2):
        raise InputError(f"{source}: has shape {array.shape}; outputs must be [records, classes].")
    return RawOutputs(array[:, None] if array.ndim == 1 else array, array.dtype.name)


def _from_csv(path: Path, rows: int, classes: int, class_names: Sequence[str] | None, of: str) -> RawOutputs:
    most = (rows + 1) * ((classes + 1) * WIDEST_CELL + LONGEST_NAME) + SPARE
    if path.stat().st_size > most:
        raise InputError(
            f"{path.name}: is longer than {rows} rows of {classes} numbers can be; is it a file of outputs on the {of}?"
        )
    first = _first_line(path)
    if first is not None and len(first) > classes + 1:
        raise _too_many(len(first), classes, path.name, of)
    found = _numbers_at_once(path, first, rows, classes, class_names, of) if first else None
    return found or _from_cells(path, rows, classes, class_names, of)


def _first_line(path: Path) -> list[str] | None:
    """The cells of a first line of comma-separated UTF-8, trimmed; None where it is none."""
    try:
        with TextIOWrapper(open_data(path), encoding="utf-8-sig", newline="") as stream:
            line = stream.readline(LONGEST_LINE + 1)
        if len(line) > LONGEST_LINE:
            raise InputError(f"{path.name}: its first line is longer than {LONGEST_LINE} characters; is it a CSV file?")
        cells = next(csv.reader([line]), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    return [cell.strip() for cell in cells]


def _numbers_at_once(
    path: Path, first: list[str], rows: int, classes: int, class_names: Sequence[str] | None, of: str
) -> RawOutputs | None:
    """A clean table's numbers, parsed as numbers; None where it is not so clean and its cells must be looked at."""
    # Imported here because pyarrow takes a tenth of a second.
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    header = first if is_header(first, False, classes, class_names) else None
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
    if header is None and is_header(first, len(columns[0]) == rows + 1, classes, class_names):
        header, columns = first, [column[1:] for column in columns]
    check_rows(len(columns[0]), rows, path.name, of)
    chosen = class_columns(header, columns[0], len(columns), classes, class_names, path.name)
    return RawOutputs(_beside([columns[column] for column in chosen]), "text")


def _from_cells(path: Path, rows: int, classes: int, class_names: Sequence[str] | None, of: str) -> RawOutputs:
    """The same of any table, a cell at a time where need be, so that a message can name the row and the column."""
    from jaxaudit.data.formats.csv_file import read_csv

    table = read_csv(path, header=False)
    first = [column[0].as_py().strip() for column in table.columns]
    if is_header(first, table.rows == rows + 1, classes, class_names):
        table = table.with_header()
    check_rows(table.rows, rows, path.name, of)
    if len(table.columns) == 1 and not are_numbers([str(table.columns[0][-1])]):
        raise InputError(f"{path.name}: {HARD_LABELS}.")
    leading = table.numbers(0) if are_numbers([table.columns[0][0].as_py()]) else None
    chosen = class_columns(table.header, leading, len(table.columns), classes, class_names, path.name)
    return RawOutputs(_beside([table.numbers(column) for column in chosen]), "text")


def _beside(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Columns side by side, each as it lies in memory."""
    return np.stack(columns).T


def _from_parquet(path: Path, rows: int, classes: int, class_names: Sequence[str] | None, of: str) -> RawOutputs:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # A stream, because pyarrow takes no path that is not UTF-8.
        with open_data(path) as stream:
            declared = declared_columns(stream)
            with parquet.ParquetFile(stream, pre_buffer=True) as file:
                names, types = file.schema_arrow.names, file.schema_arrow.types
                # A first column of text names the records, and is not read.
                skipped = int(len(names) > 1 and not _is_number(types[0]))
                _check_before_reading(file.metadata.num_rows, declared, skipped, path.name, rows, classes, of)
                table = file.read(names[skipped:])
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise InputError(f"{path}: is not a readable Parquet file ({reason}).") from error
    if len(names) == 1 and _is_text(types[0]):
        raise InputError(f"{path.name}: {HARD_LABELS}.")
    if len(names) == 1 and _is_list(types[0]):
        return _from_lists(table.column(0), path.name)
    if table.num_columns != len(names) - skipped:
        raise InputError(f"{path.name}: has several columns of the same name; give each its own.")
    leading = None if skipped or not _is_number(types[0]) else table.column(0).to_numpy()
    chosen = class_columns(names, leading, len(names), classes, class_names, path.name)
    for column in chosen:
        if not _is_number(types[column]) or table.column(column - skipped).null_count:
            what = "has empty cells" if _is_number(types[column]) else f"is of type {str(types[column])[:40]}"
            raise InputError(f"{path.name}: column {names[column][:40]!r} {what}; outputs must be numbers.")
    values = _beside([table.column(column - skipped).to_numpy() for column in chosen])
    return RawOutputs(values, values.dtype.name)


def _check_before_reading(
    held: int, declared: Sequence[Declared], skipped: int, source: str, rows: int, classes: int, of: str
) -> None:
    """Nothing where the columns after the first `skipped` hold no more than outputs of this shape can."""
    if not declared:
        raise InputError(f"{source}: has no columns; did the model write its outputs?")
    check_rows(held, rows, source, of)
    if len(declared) > classes + 1:
        raise _too_many(len(declared), classes, source, of)
    # A few bytes can hold lists of millions of equal values.
    most = max(column.values for column in declared[skipped:])
    if most > rows * classes:
        raise InputError(
            f"{source}: has {most} values in {rows} lists, more than one for each of {classes} classes; save only "
            "the outputs."
        )
    size = sum(column.unpacked_bytes for column in declared[skipped:])
    if size > rows * (classes + 1) * WIDEST_CELL + SPARE:
        raise InputError(f"{source}: unpacks to {size / 2**30:.1f} GiB; save only the outputs.")


def _too_many(columns: int, classes: int, source: str, of: str) -> InputError:
    return InputError(
        f"{source}: has {columns} columns but the {of} has {classes} classes; give one column per class, in label "
        "order."
    )


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind)


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _from_lists(cells: Any, source: str) -> RawOutputs:
    import pyarrow.compute as pc

    kind = cells.type.value_type
    # From the offsets alone: a few bytes of Parquet can hold millions of equal values.
    lengths = pc.call_function("unique", [pc.call_function("list_value_length", [cells])]).to_pylist()
    if not _is_number(kind) or len(lengths) != 1 or not lengths[0]:
        raise InputError(f"{source}: its lists differ in length or are not numbers; save one column per class.")
    flat = cells.combine_chunks().flatten()
    if flat.null_count:
        raise InputError(f"{source}: has empty cells; outputs must be numbers.")
    values = flat.to_numpy(zero_copy_only=False)
    return RawOutputs(values.reshape(-1, lengths.pop()), values.dtype.name)

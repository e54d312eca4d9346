"""The numbers in a file of model outputs, before anyone has judged what they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.arrays import MAX_BYTES, NpzArrays, read_npy
from jaxaudit.data.files import exists
from jaxaudit.errors import InputError

# In the order of preference where a .npz holds several.
ARRAY_NAMES = ("probabilities", "probs", "logits", "outputs", "predictions", "y_pred", "arr_0")
INDEX_NAMES = ("", "index", "id", "row", "unnamed: 0", "__index_level_0__")
SUFFIXES = (".npz", ".npy", ".csv", ".parquet")
HARD_LABELS = (
    "these are predicted labels, but the method needs confidences; save the probabilities or logits of every class"
)


class RawOutputs(NamedTuple):
    """What a file of outputs holds.

    Attributes:
        values: `float64[rows, columns]`.
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
        return _from_array(read_npy(path), path.name)
    if suffix == ".npz":
        archive = NpzArrays(path)
        return _from_array(archive.read(_choose_array(archive.names, path)), path.name)
    if suffix == ".csv":
        return _from_csv(path, rows, classes, class_names, of)
    if suffix == ".parquet":
        return _from_parquet(path, rows, classes, class_names, of)
    raise InputError(f"{path}: outputs are read from {', '.join(SUFFIXES)}; save them as one of these.")


def check_rows(found: int, rows: int, source: str, of: str) -> None:
    """Nothing when the file has as many rows as the set it is of.

    Raises:
        InputError: otherwise, with both numbers.
    """
    if found != rows:
        raise InputError(
            f"{source}: has {found} rows but the {of} {rows} records; give one row for each, in the order of the {of}."
        )


def _choose_array(names: list[str], path: Path) -> str:
    if len(names) == 1:
        return names[0]
    by_lower = {name.lower(): name for name in names}
    for name in ARRAY_NAMES:
        if name in by_lower:
            return by_lower[name]
    raise InputError(
        f"{path}: holds the arrays {', '.join(map(repr, names[:10])) or '(none)'}; call the outputs 'probabilities' or "
        "'logits'."
    )


def _from_array(array: np.ndarray, source: str) -> RawOutputs:
    if array.dtype.kind not in "uif":
        what = HARD_LABELS if array.ndim == 1 or array.shape[1:] == (1,) else "save numbers"
        raise InputError(f"{source}: holds values of type {array.dtype}: {what}.")
    if array.ndim not in (1, 2):
        raise InputError(f"{source}: has shape {array.shape}; outputs are [records, classes].")
    return RawOutputs((array[:, None] if array.ndim == 1 else array).astype(np.float64), array.dtype.name)


def _from_csv(path: Path, rows: int, classes: int, class_names: Sequence[str] | None, of: str) -> RawOutputs:
    # Imported here because pyarrow takes a tenth of a second.
    from jaxaudit.data.tables import read_table

    table = read_table(path, header=False)
    first = [column[0].as_py().strip() for column in table.columns]
    if _is_header(first, table.rows == rows + 1, classes, class_names):
        table = table.with_header()
    check_rows(table.rows, rows, path.name, of)
    if len(table.columns) == 1 and not _are_numbers([str(table.columns[0][-1])]):
        raise InputError(f"{path.name}: {HARD_LABELS}.")
    columns: dict[int, np.ndarray] = {}

    def numbers(column: int) -> np.ndarray:
        if column not in columns:
            columns[column] = table.numbers(column)
        return columns[column]

    leading = numbers(0) if _are_numbers([table.columns[0][0].as_py()]) else None
    chosen = _class_columns(table.header, leading, len(table.columns), classes, class_names, path.name)
    return RawOutputs(np.stack([numbers(column) for column in chosen], axis=1), "text")


def _from_parquet(path: Path, rows: int, classes: int, class_names: Sequence[str] | None, of: str) -> RawOutputs:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        if not file.metadata.num_columns:
            raise InputError(f"{path}: has no columns; did the model write its outputs?")
        # Before anything is unpacked.
        check_rows(file.metadata.num_rows, rows, path.name, of)
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        if size > MAX_BYTES:
            raise InputError(f"{path}: unpacks to {size / 2**30:.1f} GiB; save only the outputs.")
        # A few bytes can hold lists of millions of equal values.
        for column in range(file.metadata.num_columns):
            held = sum(file.metadata.row_group(group).column(column).num_values for group in groups)
            if held > rows * classes:
                raise InputError(
                    f"{path.name}: holds {held} values in {rows} lists, more than one for each of {classes} classes; "
                    "save only the outputs."
                )
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise InputError(f"{path}: is not a readable Parquet file ({reason}).") from error
    names = table.column_names
    if len(names) == 1 and _is_text(table.schema.types[0]):
        raise InputError(f"{path.name}: {HARD_LABELS}.")
    if len(names) == 1 and _is_list(table.schema.types[0]):
        return _from_lists(table.column(0), path.name)
    leading = _column(table, 0) if _is_number(table.schema.types[0]) else None
    chosen = _class_columns(names, leading, len(names), classes, class_names, path.name)
    for column in chosen:
        if not _is_number(table.schema.types[column]) or table.column(column).null_count:
            what = "has empty cells" if table.column(column).null_count else f"is of type {table.schema.types[column]}"
            raise InputError(f"{path.name}: column {names[column]!r} {what}; outputs are numbers.")
    types = {table.schema.types[column].to_pandas_dtype() for column in chosen}
    values = np.stack([_column(table, column) for column in chosen], axis=1)
    return RawOutputs(values, np.dtype(types.pop()).name if len(types) == 1 else "float64")


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind)


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _column(table: Any, column: int) -> np.ndarray:
    return table.column(column).to_numpy().astype(np.float64)


def _from_lists(cells: Any, source: str) -> RawOutputs:
    import pyarrow.compute as pc

    kind = cells.type.value_type
    # From the offsets alone: a few bytes of Parquet can hold millions of equal values.
    lengths = pc.call_function("unique", [pc.call_function("list_value_length", [cells])]).to_pylist()
    if not _is_number(kind) or len(lengths) != 1 or None in lengths:
        raise InputError(f"{source}: its lists are not all of one length, or not numbers; save one column a class.")
    flat = cells.combine_chunks().flatten()
    if flat.null_count:
        raise InputError(f"{source}: has empty cells; outputs are numbers.")
    values = flat.to_numpy(zero_copy_only=False).astype(np.float64)
    return RawOutputs(values.reshape(-1, lengths.pop()), np.dtype(kind.to_pandas_dtype()).name)


def _are_numbers(cells: Sequence[str]) -> bool:
    try:
        [float(cell) for cell in cells]
    except ValueError:
        return False
    return True


def _is_header(first: list[str], one_line_too_many: bool, classes: int, class_names: Sequence[str] | None) -> bool:
    if first[0] == "" or not _are_numbers(first[1:]) or (len(first) == 1 and not _are_numbers(first)):
        return True
    # A line of numbers names the columns only when it names the classes and the file is one line longer than the set.
    names = first[1:] if len(first) == classes + 1 else first
    numbered = names == [str(k) for k in range(classes)]
    return one_line_too_many and (numbered or (class_names is not None and set(names) == set(class_names)))


def _class_columns(
    header: list[str] | None,
    leading: np.ndarray | None,
    count: int,
    classes: int,
    class_names: Sequence[str] | None,
    source: str,
) -> list[int]:
    """The columns that hold the classes, in class order; a leading row number or identifier is left out."""
    columns = list(range(count))
    # One column fewer than classes is enough for two classes: the probability of the second.
    if count > 1 and (count == classes + 1 or (classes == 2 and count == 2)):
        spare = count == classes + 1
        named = header is not None and header[0].lower() in INDEX_NAMES
        if leading is None:
            columns = columns[1:]
        elif _counts(leading) or (spare and named):
            if not _counts(leading) and _counts(np.sort(leading)):
                raise InputError(
                    f"{source}: its first column numbers the rows out of order; sort them into the order of the "
                    "query set."
                )
            columns = columns[1:]
    if header is None or class_names is None or len(columns) != classes:
        return columns
    titles = [header[column] for column in columns]
    unknown = [title for title in titles if title not in class_names]
    if len(set(titles)) == classes and not unknown:
        return [columns[titles.index(name)] for name in class_names]
    if len(unknown) < len(titles):
        raise InputError(
            f"{source}: some columns are named after classes, but {unknown[0] if unknown else titles[0]!r} is "
            f"{'no class' if unknown else 'there twice'}; name all columns after the classes "
            f"({', '.join(map(str, list(class_names)[:5]))}, ...) or none."
        )
    return columns


def _counts(numbers: np.ndarray) -> bool:
    """True for 0, 1, 2, ... and 1, 2, 3, ...: at least three, because two could be outputs."""
    return len(numbers) > 2 and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())

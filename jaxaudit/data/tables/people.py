"""Reads your own CSV or Parquet file: as a `Table`, the kinds of columns detected and reported, or as `Examples`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats import text_table
from jaxaudit.data.formats.csv_file import DETECTED, CsvOptions
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.tables import cells as column_cells
from jaxaudit.data.tables.columns import check_choice
from jaxaudit.data.tables.reading import read_text_table, without_dealt_groups
from jaxaudit.data.tables.table import Column, Table
from jaxaudit.errors import InputError

Missing = Literal["error", "drop", "mean", "category"]
FEW = 10
"""A column with at most this many distinct numbers is categorical."""
LARGEST_WHOLE = 2.0**53
"""From here on, a floating-point number may stand for several whole ones."""
_SUSPECT_ROWS = 20
"""In a column of at most this many whole numbers, all may be distinct by chance."""


class ChosenColumns(NamedTuple):
    """The columns of a table that are inputs and label, by their places in what was read of the file."""

    table: text_table.TextTable
    inputs: list[int]
    label: int
    guessed: bool
    notes: tuple[str, ...]


def roles_of_columns(path: Path, *, label: str | None, drop: Sequence[str], groups: Sequence[str]) -> ChosenColumns:
    """Which columns of a CSV or Parquet file are inputs, and which is the label; see `load_columns`."""
    needed_columns, left_out = () if label is None else (label,), (*drop, *groups)
    table, notes = read_text_table(path, keep=needed_columns, drop=left_out)
    if table.rows == 0:
        raise InputError(f"{path}: there are no rows below the header line. Is the file empty?")
    if label in left_out:
        raise InputError(f"{path.name}: column {label!r} cannot be the label (`label`) and be left out (`drop`).")
    whole = table.header
    check_choice(whole, path.name, drop=drop)
    table, note = without_dealt_groups(table.without(left_out), needed_columns)
    notes += note
    if not table.columns:
        raise InputError(f"{path}: there is no column other than those left out; add inputs and labels.")
    header = table.header
    label_column = text_table.label_place(header, table.source, label)
    lost = [name for name in left_out if name in whole and name.lower() in text_table.LABEL_NAMES]
    if lost and label_column is None:
        raise InputError(
            f"{path.name}: column {lost[0]!r} is named like a label and is left out, and no other one is; name the "
            "label (`label`)."
        )
    place = len(header) - 1 if label_column is None else label_column
    features = [index for index in range(len(header)) if index != place]
    for number in text_table.row_numbers(table):
        if number != place:
            features.remove(number)
            notes += (_row_number(number, header[number]),)
    return ChosenColumns(table, features, place, label_column is None, notes)


def load_columns(
    path: Path,
    *,
    label: str | None = None,
    drop: Sequence[str] = (),
    groups: Sequence[str] = (),
    exact: bool = False,
) -> Examples:
    """The records of a CSV file with a header line or of a Parquet file, as `float32[n, features]`.

    The label column is `label`, else the one named label, labels, class, target or y (in any case), else the last;
    `notes` say which one was guessed. A column named index or id, or a first one without a name, that counts the rows
    is not a feature; nor are the columns that pandas kept its index in, columns without a name and a value, those of
    `drop`, and those of `groups`, which a file may lack, and a column `group` that `deal` wrote. With `exact`, features
    are `float64`, and whole numbers that are none are refused.
    """
    table, features, place, guessed, notes = roles_of_columns(path, label=label, drop=drop, groups=groups)
    header = table.header
    codes, class_names = _classes(table, place, guessed=guessed)
    if not features:
        raise InputError(f"{path}: there is no column other than the label; is it comma-separated?")
    inputs = np.empty((table.rows, len(features)), np.float64 if exact else np.float32)
    identifiers: list[str] = []
    for index, feature in enumerate(features):
        numbers = table.numbers(feature)
        if len(numbers) > _SUSPECT_ROWS and _all_whole_and_other(numbers):
            identifiers.append(header[feature])
        if exact and (np.abs(numbers) >= LARGEST_WHOLE).any() and text_table.whole(table.columns[feature]):
            raise InputError(
                f"{path.name}: {table.title(feature)} has whole numbers of 2^53 or more, of which some would become "
                "others; is it an identifier? Then leave it out (`drop`)."
            )
        with np.errstate(over="ignore"):
            # The shortest text of a number of 32 bits is one of 64 bits only nearly.
            inputs[:, index] = numbers.astype(table.floats.get(header[feature], np.float64))
    if identifiers:
        more = f" (and {len(identifiers) - 1} more)" if len(identifiers) > 1 else ""
        notes += (
            f"column {identifiers[0]!r}{more} has another whole number in each row and is read as an input; an "
            "identifier? Then leave it out (`drop`)",
        )
    if label is None:
        why = "it is the last one" if guessed else "of its name"
        notes += (f"{table.title(place)} is read as the label, because {why}",)
    return Examples(inputs, codes, class_names, path.name, notes, tuple(header[feature] for feature in features))


def _all_whole_and_other(numbers: np.ndarray) -> bool:
    """Whether these are whole numbers that all differ."""
    return bool((numbers == np.rint(numbers)).all()) and len(np.unique(numbers)) == len(numbers)


def _row_number(place: int, name: str) -> str:
    return f"the {'first ' if place == 0 else ''}column, {name!r}, is a row number and is left out"


def _classes(table: text_table.TextTable, place: int, *, guessed: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    """The labels and the names of the classes."""
    cells = text_table.trimmed(table.columns[place]).to_numpy().astype(str)
    empty = np.flatnonzero(cells == "")
    other = " No column is named like a label, so the last one is read; name the label (`label`)." if guessed else ""
    if len(empty):
        title = table.title(place)
        raise InputError(f"{table.source}: row {empty[0] + 1} has no label ({title} is empty).{other}")
    try:
        return encode_labels(cells, None, f"{table.source}, {table.title(place)}")
    except InputError as error:
        raise InputError(f"{error}{other}") from error


def read_people(
    path: Path,
    *,
    label: str | None = None,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    missing: Missing = "error",
    options: CsvOptions = DETECTED,
) -> Table:
    """The records of a CSV file with a header line, or of a Parquet file, with numeric and categorical columns.

    A column is numeric if every present value is a finite number and more than 10 of them are distinct, or if it is in
    `numeric`; else, and if it is in `categorical`, it is categorical. Its categories are the distinct texts, in
    ascending order (numerical if all are numbers). A few texts among many different numbers are refused unless the
    column is in `categorical`. A value is missing if it is empty, `?`, `NA`, `N/A`, `#N/A`, `nan`, `null` or `<NA>` in
    any case; in a categorical column, missing values are the last category, `MISSING`. Blanks around a value are
    ignored.

    The label column is `label`, or the one named label, labels, class, target or y, in any case. Labels are text or
    numbers: the classes are the distinct texts, in sorted order, numbers in numerical order.

    A column named index or id, or a first one without a name, that counts the rows is left out, with a note, unless it
    is named here; so are the index columns that pandas wrote into a Parquet file, and those of `drop`. Columns without
    a name are called `column 3`. A constant column is kept (see `describe_table`). A note names columns that look like
    identifiers, and gives the format of the file if it is unusual.

    | missing numbers | what happens |
    |---|---|
    | `error` | refused |
    | `drop` | records with a missing value in any column, or label, are left out (`Table.places` says which stay) |
    | `mean` | the mean of the column's other values |
    | `category` | that mean, and a further column of two categories says where they were missing |

    That mean is taken once over all records and not changed for a model that leaves a record out, as the scale is not.
    So an audit does not see what a record reveals through the mean alone.

    Raises:
        InputError: when a column is unknown, occurs twice, cannot be what it is said to be, or has more than 10,000
            categories; numbers are missing; or the label is not one, or has more than 1,000 classes (50 of numbers).
            Rows count from 1 below the header.
    """
    if missing not in get_args(Missing):
        raise InputError(f"`missing` must be one of {', '.join(get_args(Missing))}, not {missing!r}.")
    needed_columns = {name for name in (label, *categorical, *numeric) if name is not None}
    text, notes = read_text_table(path, keep=needed_columns, drop=drop, options=options)
    text, note = without_dealt_groups(text, {*needed_columns, *drop})
    notes += note
    names, source = [name or f"column {index}" for index, name in enumerate(text.header, 1)], path.name
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"{path}: two columns are named {twice!r}; give each its own name in the header line.")
    if text.rows == 0:
        raise InputError(f"{path}: there are no records below the header line. Is the file empty?")
    guess: tuple[str, ...] = ()
    if label is None:
        index = text_table.label_place(names, source)
        if index is None:
            raise InputError(f"{source}: no column is named the label; name the label column (`label`).")
        label, guess = names[index], (f"column {names[index]!r} is read as the label, because of its name",)
    check_choice(names, source, label=[label], categorical=categorical, numeric=numeric, drop=drop)
    left_out = set(drop)
    for number in text_table.row_numbers(text):
        if names[number] not in {label, *needed_columns, *drop}:
            left_out.add(names[number])
            notes += (_row_number(number, names[number]),)
    kept = [index for index, name in enumerate(names) if name not in left_out]
    indices = None
    if missing == "drop":
        text, indices, lost = _complete(text, kept)
        notes += lost
    labels, class_names = column_cells.as_classes(
        column_cells.read_cells(text.columns[names.index(label)], text.decimal), label, source
    )
    columns: list[Column] = []
    arrays: list[np.ndarray] = []
    gaps: dict[str, int] = {}
    for name, cells in ((names[index], text.columns[index]) for index in kept if names[index] != label):
        is_numeric = None if name not in {*categorical, *numeric} else name in numeric
        converted = _categories_or_numbers(cells, name, text, is_numeric)
        if isinstance(converted, np.ndarray) and np.isnan(converted).any():
            gaps[name] = int(np.isnan(converted).sum())
            columns_of_cell, values, note = _filled(name, converted, names, missing)
            columns += columns_of_cell
            arrays += values
            notes += (note,)
            continue
        categories, values = ((), converted) if isinstance(converted, np.ndarray) else converted
        columns.append(Column(name, categories))
        arrays.append(values)
        if name not in {*categorical, *numeric}:
            notes += _suspicion(name, categories, values)
    if missing == "error" and gaps:
        listed = ", ".join(f"{name!r} ({count:,} of {len(labels):,})" for name, count in list(gaps.items())[:10])
        more = f" and {len(gaps) - 10} more columns" if len(gaps) > 10 else ""
        raise InputError(
            f"{source}: numbers are missing in {listed}{more}; choose what to do (`missing` drop, mean or "
            "category), make the column categorical (`categorical`) or leave it out (`drop`)."
        )
    kind = np.float64 if not all(column.categories for column in columns) else np.float32
    side_by_side = np.stack(arrays, axis=1, dtype=kind, casting="unsafe") if arrays else np.empty((len(labels), 0))
    return Table(side_by_side, tuple(columns), labels, class_names, source, notes + guess, indices)


def _complete(
    text: text_table.TextTable, columns: Sequence[int]
) -> tuple[text_table.TextTable, np.ndarray | None, tuple[str, ...]]:
    """The records with a value in all these columns, their indices if others were dropped, and notes."""
    gaps = np.zeros(text.rows, bool)
    for column in columns:
        gaps |= column_cells.are_missing(text.columns[column])
    rows = np.flatnonzero(~gaps)
    lost = text.rows - len(rows)
    if not lost:
        return text, None, ()
    if not len(rows):
        raise InputError(f"{text.source}: every record has a missing value; also leave out columns (`drop`).")
    note = (
        f"{lost:,} of {text.rows:,} records have a missing value and are left out; the others keep their record numbers"
    )
    return replace(text, columns=[cells.take(pa.array(rows)) for cells in text.columns]), rows, (note,)


def _categories_or_numbers(
    cells: pa.ChunkedArray, name: str, text: text_table.TextTable, numeric: bool | None
) -> np.ndarray | tuple[tuple[str, ...], np.ndarray]:
    """The content of a column: of the requested kind, or of the detected kind if `numeric` is None."""
    decimal, source = text.decimal, text.source
    plain = None if numeric is False else column_cells.all_numbers(cells, decimal, 0 if numeric else FEW)
    if plain is not None:
        return plain
    parsed_cells = column_cells.read_cells(cells, decimal)
    if numeric or (numeric is None and column_cells.are_numeric(parsed_cells, FEW, name, source)):
        return column_cells.as_numbers(parsed_cells, name, source)
    return column_cells.as_categories(parsed_cells, name, source)


def _filled(
    name: str, numbers: np.ndarray, taken: Sequence[str], missing: Missing
) -> tuple[list[Column], list[np.ndarray], str]:
    """A column of numbers with its gaps (NaN) filled as for `mean` and `category`, and notes."""
    gaps = np.isnan(numbers)
    present_numbers = numbers[~gaps]
    largest = max(abs(present_numbers).max(initial=0.0), np.finfo(float).tiny)
    # Divided first, since the sum of very large numbers could be infinite.
    values = np.where(gaps, (present_numbers / largest).mean() * largest if len(present_numbers) else 0.0, numbers)
    note = f"column {name!r}: {gaps.sum():,} of {len(gaps):,} values are missing and set to the mean of the others"
    if missing == "mean":
        return [Column(name)], [values], note
    indicator = f"{name} is missing"
    while indicator in taken:
        indicator += "'"
    columns = [Column(name), Column(indicator, ("no", "yes"))]
    return columns, [values, gaps.astype(np.float64)], f"{note}, and column {indicator!r} marks them"


def _suspicion(name: str, categories: tuple[str, ...], values: np.ndarray) -> tuple[str, ...]:
    """A note on a column in which all or nearly all records differ, so that it may identify them."""
    rows = len(values)
    if len(categories) == rows > FEW if categories else _all_different_whole(values):
        return (f"column {name!r} has a different value in every record: is it an identifier? Then leave it out",)
    if len(categories) <= max(FEW, rows / 2):
        return ()
    return (
        f"column {name!r} has {len(categories)} categories in {rows} records: is it an identifier (leave it out), or "
        "numbers with units or separators (correct them)?",
    )


def _all_different_whole(numbers: np.ndarray) -> bool:
    few = _SUSPECT_ROWS
    if len(numbers) < few or len(np.unique(numbers[:few])) < few or not (numbers == np.rint(numbers)).all():
        return False
    return len(np.unique(numbers)) == len(numbers)

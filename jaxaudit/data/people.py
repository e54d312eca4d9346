"""A person's own CSV file -> `Table`: which columns are numbers and which categories is found, and can be said."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jaxaudit.data.bounded import open_bounded
from jaxaudit.data.column_choice import check_choice
from jaxaudit.data.table import MISSING, Column, Table
from jaxaudit.data.tables import LABEL_NAMES, counts_rows, read_table
from jaxaudit.errors import InputError

MISSING_TEXTS = ("", "?", "na", "n/a", "nan")
MAX_BYTES = 2**30
_HEADER_BYTES = 2**22


def read_people(
    path: Path,
    *,
    label: str | None = None,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    few: int = 10,
    most_columns: int = 10_000,
    most_categories: int = 10_000,
    most_classes: int = 1_000,
    max_bytes: int = MAX_BYTES,
) -> Table:
    """The records of a CSV file (commas, UTF-8, a header line), with numbers and categories told apart.

    A column is numeric when every value that is there is a finite number and more than `few` different ones occur;
    else it is categorical. Its categories are the different texts, in ascending order (of numbers where all are
    numbers). A value is missing where it is empty, `?`, `NA`, `N/A` or `nan` in any case: in a categorical column
    these are the last category, `MISSING`; a numeric column must have none. Blanks around a value do not count.

    A first column without a name or named index or id that counts the rows is left out, with a note, unless it is
    named here. Columns without a name are called `column 3`. A constant column is kept (see `describe_table`).

    Labels are text or numbers: the classes are their different texts, in sorted order, numbers as numbers.

    Args:
        label: the label column; None is the one named label, labels, class, target or y, in any case.
        categorical: columns that are categorical even if they hold numbers.
        numeric: columns that are numeric even if they hold few different numbers.
        drop: columns to leave out.
        few: so many different numbers, or fewer, are categories.
        most_columns: refuse more columns than this.
        most_categories: refuse more categories in a column than this.
        most_classes: refuse more classes than this; of numbers, more than 50.
        max_bytes: refuse larger files.

    Raises:
        InputError: when the file cannot be read, is ragged, without a header or without records; a column is unknown,
            occurs twice, or cannot be what it is said to be; or the label is not one. Rows count from 1 below the
            header.
    """
    _check_size(path, most_columns, max_bytes)
    text = read_table(path)
    names = _names(text.header or [], path)
    source = path.name
    if text.rows == 0:
        raise InputError(f"{path}: there are no records below the header line. Is the file empty?")
    label = _label(names, label, source)
    check_choice(names, source, label=[label], categorical=categorical, numeric=numeric, drop=drop)
    left_out, notes = {label, *drop}, ()
    if names[0] not in {label, *categorical, *numeric, *drop} and counts_rows(text):
        left_out.add(names[0])
        notes = (f"the first column, {names[0]!r}, counts the rows and is left out",)
    labels, class_names = _classes(_cells(text.columns[names.index(label)]), label, source, most_classes)
    columns, arrays = [], []
    for name, cells in zip(names, text.columns, strict=True):
        if name in left_out:
            continue
        found = _cells(cells)
        if name in numeric or (name not in categorical and _is_numeric(found, few, name, source)):
            columns.append(Column(name, None))
            arrays.append(_numbers(found, name, source))
        else:
            categories, codes = _categories(found, name, source, most_categories)
            columns.append(Column(name, categories))
            arrays.append(codes)
            if name not in categorical and len(categories) > max(few, text.rows / 2):
                notes += (
                    f"column {name!r} has {len(categories)} categories in {text.rows} records: is it an identifier "
                    "(--drop), or numbers with units or separators (correct them)?",
                )
    kind = np.float64 if any(column.categories is None for column in columns) else np.float32
    values = np.stack(arrays, axis=1).astype(kind, copy=False) if arrays else np.empty((len(labels), 0), kind)
    return Table(values, tuple(columns), labels, class_names, source, notes)


class _Cells(NamedTuple):
    """A column's cells, every different text once."""

    codes: np.ndarray  # [n], places in the others
    texts: pa.StringArray
    missing: np.ndarray
    numbers: np.ndarray  # NaN where the text is no number
    is_number: np.ndarray

    def row(self, chosen: np.ndarray) -> int:
        """The first row, from 1, whose text is one of the chosen."""
        return int(np.argmax(chosen[self.codes])) + 1

    def first(self, chosen: np.ndarray) -> str:
        """The first text in the file of the chosen, to be shown."""
        return self.texts[self.codes[self.row(chosen) - 1]].as_py()[:40]


def _cells(cells: pa.ChunkedArray) -> _Cells:
    trimmed = pc.call_function("utf8_trim_whitespace", [cells]).combine_chunks()
    encoded = trimmed.dictionary_encode()
    texts = encoded.dictionary
    missing = _array(
        pc.call_function(
            "is_in", [pc.call_function("utf8_lower", [texts])], pc.SetLookupOptions(pa.array(MISSING_TEXTS))
        )
    )
    numbers, is_number = np.full(len(texts), np.nan), np.zeros(len(texts), bool)
    there = texts.filter(pa.array(~missing))
    try:
        numbers[~missing] = _array(pc.cast(there, pa.float64()))
        is_number[~missing] = True
    except pa.ArrowInvalid:
        for place, text in zip(np.flatnonzero(~missing).tolist(), there.to_pylist(), strict=True):
            if "_" not in text:
                with suppress(ValueError):
                    numbers[place], is_number[place] = float(text), True
    return _Cells(_array(encoded.indices), texts, missing, numbers, is_number)


def _array(values: pa.Array) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False)


def _is_numeric(cells: _Cells, few: int, name: str, source: str) -> bool:
    there = ~cells.missing
    if not cells.is_number[there].all():
        return False
    _refuse_infinite(cells, name, source)
    return len(np.unique(cells.numbers[there])) > few


def _numbers(cells: _Cells, name: str, source: str) -> np.ndarray:
    text = ~cells.missing & ~cells.is_number
    if text.any():
        raise InputError(
            f"{source}: row {cells.row(text)}, column {name!r} holds the text {cells.first(text)!r}, not a number; "
            "correct it, or make the column categorical (--categorical) or leave it out (--drop)."
        )
    _refuse_infinite(cells, name, source)
    if cells.missing.any():
        rows = np.flatnonzero(cells.missing[cells.codes]) + 1
        more = ", ..." if len(rows) > 3 else ""
        many, these = ("is missing (row", "this row") if len(rows) == 1 else ("are missing (rows", "these rows")
        raise InputError(
            f"{source}: column {name!r} holds numbers, but {len(rows)} of {len(cells.codes)} values {many} "
            f"{', '.join(map(str, rows[:3]))}{more}); make it categorical (--categorical), leave it out (--drop) or "
            f"delete {these}."
        )
    return cells.numbers[cells.codes]


def _refuse_infinite(cells: _Cells, name: str, source: str) -> None:
    infinite = cells.is_number & ~np.isfinite(cells.numbers)
    if infinite.any():
        raise InputError(
            f"{source}: row {cells.row(infinite)}, column {name!r} holds {cells.first(infinite)!r}, which is no finite "
            "number; correct it, or make the column categorical (--categorical) or leave it out (--drop)."
        )


def _categories(cells: _Cells, name: str, source: str, most: int) -> tuple[tuple[str, ...], np.ndarray]:
    there = ~cells.missing
    if int(there.sum()) > most:
        text = there & ~cells.is_number
        if text.any() and text.sum() < 0.1 * there.sum():
            advice = (
                f"row {cells.row(text)} holds {cells.first(text)!r}, most others are numbers: correct it if the column "
                "is numeric"
            )
        else:
            advice = "is it an identifier? Leave it out (--drop)"
        raise InputError(
            f"{source}: column {name!r} holds {int(there.sum())} different categories, more than {most}; {advice}."
        )
    order = _order(cells)
    rank = np.full(len(there), len(order))
    rank[order] = np.arange(len(order))
    texts = [cells.texts[int(place)].as_py() for place in order]
    if MISSING in texts:
        rank[cells.missing] = texts.index(MISSING)
    elif cells.missing.any():
        texts.append(MISSING)
    return tuple(texts), rank[cells.codes]


def _order(cells: _Cells) -> np.ndarray:
    """The places of the texts that are there: in ascending order, of numbers where all are numbers."""
    places = np.flatnonzero(~cells.missing)
    texts = cells.texts.take(pa.array(places)).to_pylist()
    if cells.is_number[places].all():
        return places[np.array(sorted(range(len(places)), key=lambda i: (cells.numbers[places[i]], texts[i])), int)]
    return places[np.array(sorted(range(len(places)), key=texts.__getitem__), int)]


def _classes(cells: _Cells, name: str, source: str, most: int) -> tuple[np.ndarray, tuple[str, ...]]:
    if cells.missing.any():
        count = int(cells.missing[cells.codes].sum())
        raise InputError(
            f"{source}: {count} {'row has' if count == 1 else 'rows have'} no label (column {name!r}, first: row "
            f"{cells.row(cells.missing)}); delete {'it' if count == 1 else 'them'}."
        )
    classes = len(cells.texts)
    if classes == 1:
        raise InputError(
            f"{source}: every row has the label {cells.texts[0].as_py()[:40]!r} (column {name!r}); a classifier needs "
            "at least two classes. Is it the right column?"
        )
    if cells.is_number.all() and classes > 50:
        raise InputError(
            f"{source}: the label column {name!r} holds {classes} different numbers; a classifier needs a few classes. "
            "Replace the numbers by ranges (such as <=50K and >50K) or name another column."
        )
    if classes > most:
        raise InputError(
            f"{source}: the label column {name!r} holds {classes} different texts, more than {most} classes; is it an "
            "identifier? Name another column."
        )
    order = _order(cells)
    rank = np.empty(classes, np.int32)
    rank[order] = np.arange(classes)
    return rank[cells.codes], tuple(cells.texts[int(place)].as_py() for place in order)


def _check_size(path: Path, most_columns: int, max_bytes: int) -> None:
    """Refuses what is too large before it is read whole."""
    with open_bounded(path, None) as stream:
        size, first = path.stat().st_size, stream.readline(_HEADER_BYTES)
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise InputError(f"{path}: cannot be read as CSV, because it is packed by gzip; unpack it first.")
    if size > max_bytes:
        raise InputError(
            f"{path}: holds {size / 2**30:.2f} GiB, more than the {max_bytes / 2**30:.2f} GiB that are allowed; keep "
            "fewer rows or columns."
        )
    columns = first.count(b",") + 1
    if columns > most_columns or len(first) == _HEADER_BYTES:
        raise InputError(
            f"{path}: its header line has {columns} columns or more, but at most {most_columns} are allowed."
        )


def _names(header: list[str], path: Path) -> list[str]:
    names = [name or f"column {place}" for place, name in enumerate(header, 1)]
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise InputError(
            f"{path}: two columns are called {twice!r}; give every column its own name in the header line."
        )
    try:
        numbers = [float(name) for name in header if name]
    except ValueError:
        return names
    if numbers:
        raise InputError(
            f"{path}: the first line holds numbers, not column names; add a header line, with a name for every column."
        )
    return names


def _label(names: list[str], label: str | None, source: str) -> str:
    if label is not None:
        return label
    found = [name for name in names if name.lower() in LABEL_NAMES]
    if len(found) != 1:
        what = f"columns {', '.join(map(repr, found))} could all be" if found else "no column is called"
        raise InputError(f"{source}: {what} the label; name the label column (--label).")
    return found[0]

"""A table of text: the cells of a CSV or Parquet file before columns are interpreted.

No message contains the content of a cell.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jaxaudit.data.formats.row_numbers import INDEX_NAMES, counting
from jaxaudit.errors import InputError

LABEL_NAMES = ("label", "labels", "class", "target", "y")
NAMELESS = re.compile(r"|unnamed: \d+", re.IGNORECASE)
"""What a column without a name is called; pandas gives it a number."""
Cells = TypeVar("Cells", pa.ChunkedArray, pa.StringArray)
_LOOKED_AT, _LOOKED_AT_COLUMNS = 10_000, 100
NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")


@dataclass(frozen=True, eq=False)
class TextTable:
    """A table of text cells, as read from the file `source`.

    Attributes:
        header: the cells of the first line if it was read as a header, else empty.
        columns: the other cells, one array of text for each column.
        note: the format of the file, if unusual.
        floats: the types of columns that the file has as floating-point numbers, by name.
    """

    header: list[str]
    columns: list[pa.ChunkedArray]
    source: str
    decimal: str = "."
    note: str = ""
    floats: Mapping[str, np.dtype] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def title(self, column: int) -> str:
        return f"column {column + 1}" if not self.header else f"column {self.header[column]!r}"

    def with_header(self) -> "TextTable":
        """The table whose header is the first line of this one, which has none yet."""
        names = [column[0].as_py().strip() for column in self.columns]
        return replace(self, header=names, columns=[column[1:] for column in self.columns])

    def without(self, names: Sequence[str]) -> "TextTable":
        """The table without the columns of these names."""
        kept = [index for index, name in enumerate(self.header) if name not in names]
        return replace(self, header=[self.header[i] for i in kept], columns=[self.columns[i] for i in kept])

    def without_empty(self, needed_names: Collection[str]) -> tuple["TextTable", tuple[str, ...]]:
        """The table without columns that have neither a name nor any value, as a delimiter at the end of each line
        makes one, and a note on each; `needed_names` are names of columns to keep.

        Without a header only empty cells are no values: `nan` may be a number that failed.
        """
        names = self.header or [""] * len(self.columns)
        nothing = ("", "nan") if self.header else ("",)
        empty = [
            place
            for place, name in enumerate(names)
            if NAMELESS.fullmatch(name.strip())
            and name not in needed_names
            and _holds_only(nothing, self.columns[place])
        ]
        if not empty or len(empty) == len(self.columns):
            return self, ()
        kept = [place for place in range(len(self.columns)) if place not in empty]
        header = [self.header[place] for place in kept] if self.header else []
        table = replace(self, header=header, columns=[self.columns[place] for place in kept])
        notes = (f"column {place + 1} has neither a name nor a value and is left out" for place in empty)
        return table, tuple(notes)

    def numbers(self, column: int, advice: str = "leave it out (`drop`)") -> np.ndarray:
        """`float64[rows]`: the cells of a column as numbers, 1 and 0 for true and false; an InputError names the row
        (from 1 below the header) of a cell that is none, and gives the advice.
        """
        numbers = float_cells(self.columns[column], self.decimal)
        numbers = truth_cells(self.columns[column]) if numbers is None else numbers
        if numbers is not None:
            return numbers
        cells = decimal_points(trimmed(self.columns[column]), self.decimal).to_pylist()
        for row, cell in enumerate(cells, 1):
            try:
                float(cell)
            except ValueError as error:
                trouble = "is empty" if cell == "" else "holds text"
                raise InputError(
                    f"{self.source}: row {row}, {self.title(column)} {trouble}, not a number; clean or encode it, or "
                    f"{advice}."
                ) from error
        return np.array([float(cell) for cell in cells])


def _holds_only(texts: tuple[str, ...], cells: pa.ChunkedArray) -> bool:
    lower = pc.call_function("utf8_lower", [trimmed(cells)])
    are_texts_of = pc.call_function("is_in", [lower], pc.SetLookupOptions(pa.array(texts)))
    return bool(pc.call_function("all", [are_texts_of]).as_py()) and len(cells) > 0


def trimmed(cells: Cells) -> Cells:
    """The cells without the blanks around them."""
    return pc.call_function("utf8_trim_whitespace", [cells])


def decimal_points(cells: Cells, decimal: str) -> Cells:
    """The cells with a decimal point; if the decimal sign is a comma, a cell with a point is not a number."""
    if decimal == ".":
        return cells
    # With decimal commas, 1.234 may mean a thousand and some, so it is ambiguous.
    pointed = pc.call_function("match_substring", [cells], pc.MatchSubstringOptions("."))
    points = pc.call_function("replace_substring", [cells], pc.ReplaceSubstringOptions(",", "."))
    return pc.call_function("if_else", [pointed, pa.scalar("x"), points])


def float_cells(cells: pa.ChunkedArray, decimal: str) -> np.ndarray | None:
    """`float64[rows]`: the cells as numbers if pyarrow reads all of them as numbers, else None."""
    # Trimming takes as long as reading, and few files need it.
    for prepare in (lambda: cells, lambda: trimmed(cells)):
        try:
            return pc.cast(decimal_points(prepare(), decimal), pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            pass
    return None


def truth_cells(cells: pa.ChunkedArray) -> np.ndarray | None:
    """`float64[rows]`: 1 and 0 for true and false in any case, as pandas writes them, NaN for nan; None if a cell is
    another.
    """
    lower = pc.call_function("utf8_lower", [trimmed(cells)])
    places = pc.call_function("index_in", [lower], pc.SetLookupOptions(pa.array(["false", "true", "nan"])))
    return None if places.null_count else np.array([0, 1, np.nan])[places.to_numpy()]


def whole(cells: pa.ChunkedArray) -> bool:
    """Whether any cell is a whole number of 16 digits or more."""
    pattern = pc.MatchSubstringOptions(r"^\s*[+-]?\d{16,}\s*$")
    return bool(pc.call_function("any", [pc.call_function("match_substring_regex", [cells], pattern)]).as_py())


def looks_like_record(header: Sequence[str]) -> int | None:
    """The first cell that is a number and so not a column name, if any; numbers that count from 0 or 1 are names.

    >>> looks_like_record(["age", "39", "Rome"]), looks_like_record(["label", "0", "1", "2"])
    (1, None)
    """
    indices = [index for index, name in enumerate(header) if NUMBER.fullmatch(name.replace(",", "."))]
    names = [header[index] for index in indices]
    counted = any(names == [str(start + index) for index in range(len(names))] for start in (0, 1))
    return indices[0] if indices and not counted else None


def check_header(table: TextTable, path: Path) -> None:
    """Rejects a first line that looks like a record, since its cells would be shown as names of columns: one of them is
    a number (see `looks_like_record`), or half of them occur again below.
    """
    names = table.header
    index = looks_like_record(names)
    again = sum(
        name != "" and bool(pc.call_function("any", [pc.call_function("equal", [cells[:_LOOKED_AT], name])]).as_py())
        for name, cells in list(zip(names, table.columns, strict=True))[:_LOOKED_AT_COLUMNS]
    )
    if index is None and (again < 2 or 2 * again < min(len(names), _LOOKED_AT_COLUMNS)):
        return
    why = f"its cell {index + 1} is a number" if index is not None else "its cells occur again in the lines below"
    raise InputError(
        f"{path}: the first line looks like a record, not like column names, because {why}; add a header line, with a "
        "name for every column."
    )


def label_place(names: Sequence[str], source: str, label: str | None = None) -> int | None:
    """The index of the column `label`; without one, of the only column named like a label, in any case, if any.

    A `y` beside an `x` may be a coordinate: another column that is named like a label comes first, and where `y` is not
    the last column, none is taken.
    """
    if label is not None:
        if list(names).count(label) != 1:
            trouble = "has no column" if label not in names else "has several columns"
            raise InputError(f"{source}: {trouble} {label!r}, the label (`label`); is the name right?")
        return list(names).index(label)
    lower = [name.lower() for name in names]
    candidates = [index for index, name in enumerate(lower) if name in LABEL_NAMES]
    if "x" in lower and "y" in lower:
        better_candidates = [index for index in candidates if lower[index] != "y"]
        if not better_candidates and lower[-1] != "y":
            raise InputError(
                f"{source}: column 'y' may be the label, or a coordinate beside 'x' and another column the label, such "
                f"as the last, {names[-1]!r}; name the label (`label`)."
            )
        candidates = better_candidates or candidates
    if len(candidates) > 1:
        listed = ", ".join(repr(names[index]) for index in candidates)
        raise InputError(
            f"{source}: columns {listed} could all be the label; name it (`label`), and leave the others out (`drop`)."
        )
    return candidates[0] if candidates else None


def row_numbers(table: TextTable) -> list[int]:
    """The columns that number the rows: named index or id, or a first one without a name, and counting from 0 or 1."""
    names = [name.lower() for name in table.header]
    places: list[int] = []
    for place, name in enumerate(names if len(names) > 1 else ()):
        if name in INDEX_NAMES and (place == 0 or name):
            with suppress(InputError):
                places += [place] if counting(table.numbers(place)) else []
    return places

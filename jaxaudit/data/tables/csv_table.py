"""CSV files: a header row, numeric feature columns and one column of labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.arrays import MAX_BYTES
from jaxaudit.data.formats.csv_format import (
    FIRST_LINE,
    MOST_COLUMNS,
    USUAL,
    Asked,
    CsvFormat,
    find_format,
    looks_like_record,
)
from jaxaudit.data.formats.parsing import reason_of
from jaxaudit.data.labels import encode_labels
from jaxaudit.data.paths import open_data
from jaxaudit.errors import InputError

LABEL_NAMES = ("label", "labels", "class", "target", "y")
INDEX_NAMES = ("", "index", "id", "row", "unnamed: 0")
ASKED_NOTHING = Asked()
Cells = TypeVar("Cells", pa.ChunkedArray, pa.StringArray)
_BLOCK = 2 * FIRST_LINE
_LOOKED_AT, _LOOKED_AT_COLUMNS = 10_000, 100


@dataclass(frozen=True, eq=False)
class TextTable:
    """A text table as it stands in the file.

    Attributes:
        header: the first line's cells when it was read as a header, else None.
        columns: the others' cells, one array of text a column.
        source: the file's name, for messages.
        format: how the file is written.
    """

    header: list[str] | None
    columns: list[pa.ChunkedArray]
    source: str
    format: CsvFormat = USUAL

    @property
    def rows(self) -> int:
        """How many lines there are below the header."""
        return len(self.columns[0]) if self.columns else 0

    def title(self, column: int) -> str:
        """What to call a column in a message."""
        return f"column {column + 1}" if self.header is None else f"column {self.header[column]!r}"

    def with_header(self) -> "TextTable":
        """The table whose header is the first line of this one, which has none yet."""
        names = [column[0].as_py().strip() for column in self.columns]
        return replace(self, header=names, columns=[column[1:] for column in self.columns])

    def without(self, names: Sequence[str]) -> "TextTable":
        """The table without the columns of these names."""
        kept = [place for place, name in enumerate(self.header or ()) if name not in names]
        return replace(self, header=[(self.header or [])[i] for i in kept], columns=[self.columns[i] for i in kept])

    def numbers(self, column: int) -> np.ndarray:
        """`float64[rows]`: the cells of a column as numbers.

        Raises:
            InputError: when a cell is empty or text, with its row (counted from 1 below the header) and
                column, never what it holds.
        """
        found = float_cells(self.columns[column], self.format.decimal)
        if found is not None:
            return found
        cells = decimal_points(trimmed(self.columns[column]), self.format.decimal).to_pylist()
        for row, cell in enumerate(cells, 1):
            try:
                float(cell)
            except ValueError as error:
                what = "is empty" if cell == "" else "holds text"
                raise InputError(
                    f"{self.source}: row {row}, {self.title(column)} {what}, not a number; clean, encode or drop it."
                ) from error
        return np.array([float(cell) for cell in cells])


def read_csv(
    path: Path,
    header: bool = True,
    *,
    asked: Asked = ASKED_NOTHING,
    most_columns: int = MOST_COLUMNS,
    max_bytes: int = MAX_BYTES,
) -> TextTable:
    """The cells of a CSV file as text; how it is written is found where it is not `asked` for (`find_format`).

    Args:
        header: False reads the first line as data too.
        most_columns: refuse more columns than this, before room is made for any.
        max_bytes: refuse larger files.

    Raises:
        InputError: when the file is missing, no plain file, too large, empty, packed, no text, begins with a blank line
            or a very long one, or its lines differ in their number of cells. No message shows a cell.
    """
    _check_file(path, max_bytes)
    # Every cell as text first: pyarrow would guess types from the first block and fail on a later one.
    try:
        written, width = find_format(path, asked, most_columns)
        titles = [str(column) for column in range(width)]
        with open_data(path) as stream:
            table = arrow_csv.read_csv(
                stream,
                arrow_csv.ReadOptions(
                    column_names=titles, use_threads=False, encoding=written.encoding, block_size=_BLOCK
                ),
                arrow_csv.ParseOptions(delimiter=written.delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(column_types=dict.fromkeys(titles, pa.string())),
            )
    except UnicodeError as error:
        encoding = asked.encoding or "UTF-8, UTF-16 or Windows-1252"
        raise InputError(
            f"{path}: cannot be read as CSV: it is not text in {encoding}; give its --encoding, or save it as UTF-8."
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read as CSV ({error.strerror or 'damaged'}).") from error
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: cannot be read as CSV ({reason_of(error)}).") from error
    whole = TextTable(None, list(table.columns), path.name, written)
    return whole.with_header() if header else whole


def _check_file(path: Path, max_bytes: int) -> None:
    """Refuses what is no plain file, or too large, before anything is read."""
    try:
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            kind = "it is not a regular file" if path.exists() else "there is no such file; is the path right?"
            raise InputError(f"{path}: cannot be read as CSV: {kind}.")
        with open_data(path) as stream:
            packed = stream.read(2) == b"\x1f\x8b"
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as CSV ({getattr(error, 'strerror', None) or 'no path'}).") from error
    if packed:
        raise InputError(f"{path}: cannot be read as CSV, because it is compressed with gzip; decompress it first.")
    if size > max_bytes:
        raise InputError(
            f"{path}: has {size / 2**30:.2f} GiB, more than the allowed {max_bytes / 2**30:.2f} GiB; keep fewer rows "
            "or columns."
        )


def load_csv(
    path: Path,
    label_column: str | None = None,
    labels: tuple[np.ndarray, tuple[str, ...]] | None = None,
    drop: Sequence[str] = (),
) -> Examples:
    """The records of a CSV file with a header line, as `float32[n, features]`.

    The label column is `label_column`, else the one named label, labels, class, target or y (in any case),
    else the last. A first column without a name, or named index or id, that counts the rows is not a feature.

    Args:
        labels: encoded labels and class names from elsewhere; every column is then a feature.
        drop: columns that are read as if the file did not have them, unless they are named as a label is.

    Raises:
        InputError: when the file has no header line, no rows or no features, a cell is not a number, or the
            label column is unclear.
    """
    table = read_csv(path)
    check_header(table, path)
    return records_of(table, path, label_column, labels, drop)


def records_of(
    table: TextTable,
    path: Path,
    label_column: str | None = None,
    labels: tuple[np.ndarray, tuple[str, ...]] | None = None,
    drop: Sequence[str] = (),
) -> Examples:
    """The records of a table of text with a header, which was read from `path`; see `load_csv`."""
    if table.rows == 0:
        raise InputError(f"{path}: there are no rows below the header line. Is the file empty?")
    table = table.without([name for name in drop if name.lower() not in LABEL_NAMES])
    if not table.columns:
        raise InputError(f"{path}: there is no column other than those left out; add inputs and labels.")
    features = list(range(len(table.header or ())))
    if counts_rows(table):
        features.remove(0)
    if labels is None:
        column = _label_column(table, label_column)
        features = [feature for feature in features if feature != column]
        cells = trimmed(table.columns[column]).to_numpy().astype(str)
        empty = np.flatnonzero(cells == "")
        if len(empty):
            raise InputError(f"{path}: row {empty[0] + 1} has no label ({table.title(column)} is empty).")
        labels = encode_labels(cells, None, f"{path.name}, {table.title(column)}")
    if not features:
        raise InputError(f"{path}: there is no column other than the label; is it comma-separated?")
    if len(labels[0]) != table.rows:
        raise InputError(f"{path}: {table.rows} rows but {len(labels[0])} labels; give one label per row, in order.")
    inputs = np.empty((table.rows, len(features)), np.float32)
    for place, feature in enumerate(features):
        with np.errstate(over="ignore"):
            inputs[:, place] = table.numbers(feature)
    return Examples(inputs, labels[0], labels[1], path.name)


def read_label_column(path: Path) -> np.ndarray:
    """The labels, as text, in a CSV file of one column (a header such as `label` is optional) or of several.

    Raises:
        InputError: as `load_csv`.
    """
    table = read_csv(path, header=False)
    if len(table.columns) > 1:
        table = table.with_header()
        return table.columns[_label_column(table, None)].to_numpy().astype(str)
    cells = table.columns[0].to_numpy().astype(str)
    return cells[1:] if str(cells[0]).strip().lower() in LABEL_NAMES else cells


def trimmed(cells: Cells) -> Cells:
    """The cells without the blanks around them."""
    return pc.call_function("utf8_trim_whitespace", [cells])


def decimal_points(cells: Cells, decimal: str) -> Cells:
    """The cells with a point for the decimal sign; where that is the comma, one with a point becomes no number."""
    if decimal == ".":
        return cells
    # 1.234 is a thousand and some where people write decimal commas, or is it?
    pointed = pc.call_function("match_substring", [cells], pc.MatchSubstringOptions("."))
    points = pc.call_function("replace_substring", [cells], pc.ReplaceSubstringOptions(",", "."))
    return pc.call_function("if_else", [pointed, pa.scalar("x"), points])


def float_cells(cells: pa.ChunkedArray, decimal: str) -> np.ndarray | None:
    """`float64[rows]`: the cells as numbers where pyarrow reads all of them so, else None."""
    # Trimming takes as long as reading, and few files need it.
    for prepare in (lambda: cells, lambda: trimmed(cells)):
        try:
            return pc.cast(decimal_points(prepare(), decimal), pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            pass
    return None


def check_header(table: TextTable, path: Path) -> None:
    """Refuses a first line that looks like a record; its cells would be shown as names of columns.

    Raises:
        InputError: when a cell of it is a number (see `looks_like_record`), or half of them occur again below.
    """
    names = table.header or []
    place = looks_like_record(names)
    again = sum(
        name != "" and bool(pc.call_function("any", [pc.call_function("equal", [cells[:_LOOKED_AT], name])]).as_py())
        for name, cells in list(zip(names, table.columns, strict=True))[:_LOOKED_AT_COLUMNS]
    )
    if place is None and (again < 2 or 2 * again < min(len(names), _LOOKED_AT_COLUMNS)):
        return
    why = f"its cell {place + 1} is a number" if place is not None else "its cells occur again in the lines below"
    raise InputError(
        f"{path}: the first line looks like a record, not like column names, because {why}; add a header line, with a "
        "name for every column."
    )


def counts_rows(table: TextTable) -> bool:
    """True when the first column is a row number: nameless or named index or id, and counting from 0 or 1."""
    if table.header is None or table.header[0].lower() not in INDEX_NAMES or len(table.columns) < 2:
        return False
    try:
        numbers = table.numbers(0)
    except InputError:
        return False
    return len(numbers) > 0 and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())


def _label_column(table: TextTable, wanted: str | None) -> int:
    header = table.header or []
    if wanted is not None:
        if header.count(wanted) != 1:
            raise InputError(
                f"{table.source}: there {'is no column' if wanted not in header else 'are several columns'} "
                f"named {wanted!r}; the columns are {', '.join(header[:10])}."
            )
        return header.index(wanted)
    found = [column for column, name in enumerate(header) if name.lower() in LABEL_NAMES]
    if len(found) > 1:
        raise InputError(
            f"{table.source}: columns {', '.join(repr(header[column]) for column in found)} could all be the "
            "label; keep one of them."
        )
    return found[0] if found else len(header) - 1

"""CSV files: a header row, numeric feature columns and one column of labels."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from jaxaudit.data.examples import Examples
from jaxaudit.data.labels import encode_labels
from jaxaudit.errors import InputError

LABEL_NAMES = ("label", "labels", "class", "target", "y")
INDEX_NAMES = ("", "index", "id", "row", "unnamed: 0")


@dataclass(frozen=True, eq=False)
class Table:
    """A text table as it stands in the file.

    Attributes:
        header: the first line's cells when it was read as a header, else None.
        columns: the others' cells, one array of text a column.
        source: the file's name, for messages.
    """

    header: list[str] | None
    columns: list[pa.ChunkedArray]
    source: str

    @property
    def rows(self) -> int:
        """How many lines there are below the header."""
        return len(self.columns[0]) if self.columns else 0

    def title(self, column: int) -> str:
        """What to call a column in a message."""
        return f"column {column + 1}" if self.header is None else f"column {self.header[column]!r}"

    def with_header(self) -> "Table":
        """The table whose header is the first line of this one, which has none yet."""
        names = [column[0].as_py().strip() for column in self.columns]
        return Table(names, [column[1:] for column in self.columns], self.source)

    def numbers(self, column: int) -> np.ndarray:
        """`float64[rows]`: the cells of a column as numbers.

        Raises:
            InputError: when a cell is empty or text, with its row (counted from 1 below the header) and
                column.
        """
        cells = _trimmed(self.columns[column])
        try:
            return pc.cast(cells, pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            pass
        for row, cell in enumerate(cells.to_pylist(), 1):
            try:
                float(cell)
            except ValueError as error:
                what = "is empty" if cell == "" else f"holds the text {cell[:40]!r}"
                raise InputError(
                    f"{self.source}: row {row}, {self.title(column)} {what}, not a number; clean, encode or drop it."
                ) from error
        return np.array([float(cell) for cell in cells.to_pylist()])


def read_table(path: Path, header: bool = True) -> Table:
    """The cells of a CSV file (commas, UTF-8) as text.

    Args:
        header: False reads the first line as data too.

    Raises:
        InputError: when the file is missing, empty, not UTF-8, begins with a blank line, or its lines differ in their
            number of cells.
    """
    # Every cell as text first: pyarrow would guess types from the first block and fail on a later one.
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            first = next(csv.reader(stream), None)
        if first == []:
            raise InputError(f"{path}: its first line is blank; delete it.")
        width = len(first or ())
        titles = [str(column) for column in range(width)]
        table = arrow_csv.read_csv(
            path,
            arrow_csv.ReadOptions(column_names=titles, use_threads=False),
            arrow_csv.ParseOptions(newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(titles, pa.string())),
        )
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError, csv.Error) as error:
        reason = str(error).splitlines()[0][:160]
        raise InputError(f"{path}: cannot be read as CSV ({reason}); is it comma-separated UTF-8 text?") from error
    whole = Table(None, list(table.columns), path.name)
    return whole.with_header() if header else whole


def load_table(
    path: Path, label_column: str | None = None, labels: tuple[np.ndarray, tuple[str, ...]] | None = None
) -> Examples:
    """The records of a CSV file with a header line, as `float32[n, features]`.

    The label column is `label_column`, else the one named label, labels, class, target or y (in any case),
    else the last. A first column without a name, or named index or id, that counts the rows is not a feature.

    Args:
        labels: encoded labels and class names from elsewhere; every column is then a feature.

    Raises:
        InputError: when the file has no header line, no rows or no features, a cell is not a number, or the
            label column is unclear.
    """
    table = read_table(path)
    assert table.header is not None
    if table.rows == 0:
        raise InputError(f"{path}: there are no rows below the header line. Is the file empty?")
    if _is_data(table.header):
        raise InputError(
            f"{path}: the first line holds numbers, not column names; add a header line, with the label "
            "column named 'label'."
        )
    features = list(range(len(table.header)))
    if counts_rows(table):
        features.remove(0)
    if labels is None:
        column = _label_column(table, label_column)
        features = [feature for feature in features if feature != column]
        cells = _trimmed(table.columns[column]).to_numpy().astype(str)
        empty = np.flatnonzero(cells == "")
        if len(empty):
            raise InputError(f"{path}: row {empty[0] + 1} has no label (column {table.header[column]!r} is empty).")
        labels = encode_labels(cells, None, f"{path.name}, {table.title(column)}")
    if not features:
        raise InputError(f"{path}: there is no feature column besides the label; is it comma-separated?")
    if len(labels[0]) != table.rows:
        raise InputError(f"{path}: {table.rows} rows but {len(labels[0])} labels; give one label a row, in order.")
    inputs = np.empty((table.rows, len(features)), np.float32)
    for place, feature in enumerate(features):
        with np.errstate(over="ignore"):
            inputs[:, place] = table.numbers(feature)
    return Examples(inputs, labels[0], labels[1], path.name)


def read_label_column(path: Path) -> np.ndarray:
    """The labels, as text, in a CSV file of one column (a header such as `label` is optional) or of several.

    Raises:
        InputError: as `load_table`.
    """
    table = read_table(path, header=False)
    if len(table.columns) > 1:
        table = table.with_header()
        return table.columns[_label_column(table, None)].to_numpy().astype(str)
    cells = table.columns[0].to_numpy().astype(str)
    return cells[1:] if str(cells[0]).strip().lower() in LABEL_NAMES else cells


def _trimmed(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.call_function("utf8_trim_whitespace", [cells])


def counts_rows(table: Table) -> bool:
    """True when the first column is a row number: nameless or named index or id, and counting from 0 or 1."""
    if table.header is None or table.header[0].lower() not in INDEX_NAMES or len(table.columns) < 2:
        return False
    try:
        numbers = table.numbers(0)
    except InputError:
        return False
    return len(numbers) > 0 and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())


def _is_data(header: list[str]) -> bool:
    """True when the cells are numbers, other than the 0, 1, 2, ... that pandas writes for nameless columns."""
    names = header[1:] if header[0] == "" else header
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return numbers != list(range(len(numbers)))


def _label_column(table: Table, wanted: str | None) -> int:
    header = table.header or []
    if wanted is not None:
        if header.count(wanted) != 1:
            raise InputError(
                f"{table.source}: there {'is no column' if wanted not in header else 'are several columns'} "
                f"called {wanted!r}; the columns are {', '.join(header[:10])}."
            )
        return header.index(wanted)
    found = [column for column, name in enumerate(header) if name.lower() in LABEL_NAMES]
    if len(found) > 1:
        raise InputError(
            f"{table.source}: columns {', '.join(repr(header[column]) for column in found)} could all be the "
            "label; keep one of them."
        )
    return found[0] if found else len(header) - 1

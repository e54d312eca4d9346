"""Tables of text: the cells of a CSV or Parquet file before columns are interpreted, and how a CSV file is written.

A CSV file is UTF-8 with commas, semicolons or tabs, and decimal commas only beside these two. No message has a cell.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from jaxaudit.data.formats.parsing import reason_of
from jaxaudit.data.labels import as_number
from jaxaudit.data.memory import MAX_BYTES, MOST_COLUMNS, refuse_larger
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.errors import InputError, refuse_wrong

NAMELESS = re.compile(r"|unnamed: \d+", re.IGNORECASE)
"""What a column without a name is called; pandas gives it a number."""
Cells = TypeVar("Cells", pa.ChunkedArray, pa.StringArray)
FIRST_LINE = 2**20
"""Largest number of characters of the first line, which determines the number of columns."""
DELIMITERS = {"\t": "tabs", ";": "semicolons", ",": "commas"}
_SAMPLE, _LINES, _AT_ONCE = 2**18, 200, 4096
"""Characters and lines that are looked at; rows that are written at a time."""
_WITH_POINT, _WITH_COMMA = (re.compile(rf"\s*[+-]?\d*\{sign}\d+([eE][+-]?\d+)?\s*") for sign in ".,")


SAVE_AS = "save it as UTF-8: with pandas, `pandas.read_csv(FILE, encoding='cp1252').to_csv(FILE, index=False)`."


@dataclass(frozen=True, eq=False)
class TextTable:
    """A table of text cells of the file `source`: its header, empty without one, and an array of text for each column.

    `note` is the file's format, if unusual; `floats` are the types of its columns of floating-point numbers, by name.
    """

    header: list[str]
    columns: list[pa.ChunkedArray]
    source: str
    decimal: str = "."
    note: str = ""
    floats: Mapping[str, np.dtype] = field(default_factory=dict)
    delimiter: str = ","

    @property
    def rows(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def column(self, name: str) -> pa.ChunkedArray:
        """The cells of the first column of this name."""
        return self.columns[self.header.index(name)]

    def with_header(self) -> "TextTable":
        """The table whose header is the first line of this one, which has none yet."""
        names = [column[0].as_py().strip() for column in self.columns]
        return replace(self, header=names, columns=[column[1:] for column in self.columns])

    def without(self, names: Sequence[str]) -> "TextTable":
        """The table without the columns of these names."""
        kept = [index for index, name in enumerate(self.header) if name not in names]
        return replace(self, header=[self.header[i] for i in kept], columns=[self.columns[i] for i in kept])

    def numbers(self, column: int, advice: str = "leave it out (`drop`)") -> np.ndarray:
        """`float64[rows]`: the cells of a column as numbers, 1 and 0 for true and false; an InputError names the row
        (from 1 below the header) of a cell that is none, and gives the advice.
        """
        numbers = float_cells(self.columns[column], self.decimal)
        numbers = truth_cells(self.columns[column]) if numbers is None else numbers
        if numbers is not None:
            return numbers
        cells = decimal_points(trimmed(self.columns[column]), self.decimal).to_pylist()
        values: list[float] = []
        for row, cell in enumerate(cells, 1):
            try:
                values.append(as_number(cell))
            except ValueError as error:
                trouble = "is empty" if cell == "" else "holds text"
                title = repr(self.header[column]) if self.header else column + 1
                raise InputError(
                    f"{self.source}: row {row}, column {title} {trouble}, not a number; clean or encode it, or "
                    f"{advice}."
                ) from error
        return np.array(values)


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
    with suppress(pa.ArrowInvalid):
        return pc.cast(decimal_points(trimmed(cells), decimal), pa.float64()).to_numpy()
    return None


def truth_cells(cells: pa.ChunkedArray, gaps: bool = False) -> np.ndarray | None:
    """`float64[rows]`: 1 and 0 for true and false in any case, NaN for nan and, with `gaps`, for cells that are
    missing; None if a cell is another.
    """
    lower, missing = pc.call_function("utf8_lower", [trimmed(cells)]), ("nan", "", "na", "<na>") if gaps else ("nan",)
    places = pc.call_function("index_in", [lower], pc.SetLookupOptions(pa.array(["false", "true", *missing])))
    return None if places.null_count else np.array([0, 1, *[np.nan] * len(missing)])[places.to_numpy()]


def are_among(cells: Cells, texts: Sequence[str]) -> Any:
    """Which cells are one of these texts, in small letters."""
    lower = pc.call_function("utf8_lower", [cells])
    return pc.call_function("is_in", [lower], pc.SetLookupOptions(pa.array(texts)))


def whole(cells: pa.ChunkedArray) -> bool:
    """Whether any cell is a whole number of 16 digits or more."""
    pattern = pc.MatchSubstringOptions(r"^\s*[+-]?\d{16,}\s*$")
    return bool(pc.call_function("any", [pc.call_function("match_substring_regex", [cells], pattern)]).as_py())


def find_format(data: bytes, path: Path) -> tuple[str, str, int]:
    """What separates the cells of a file that holds these bytes (tabs if its first line has one, else semicolons, else
    commas), its decimal sign (beside commas no comma), and the number of cells in that line.
    """
    text = _text(data, path)
    first = text.partition("\n")[0].partition("\r")[0]
    sign = next((sign for sign in DELIMITERS if sign in first), ",")
    sample = text[: max(_SAMPLE, 4 * len(first))]
    if len(sample) < len(text) or len(text) > FIRST_LINE:
        sample = sample[: sample.rfind("\n") + 1] or first
    refuse_wrong(
        f"{path}: ",
        ("is empty; was it written completely?", not text),
        ("its first line is blank; delete it.", not first),
        (f"its first line has more than {FIRST_LINE:,} characters; is it a table?", len(first) > FIRST_LINE),
        (f"its first line has more than the allowed {MOST_COLUMNS:,} columns.", first.count(sign) >= MOST_COLUMNS),
    )
    lines = _cells(sample, sign)
    if not lines:
        raise InputError(f"{path}: its first line cannot be split into cells; is a quotation mark not closed?")
    cells = [cell for line in lines for cell in line]
    commas = any(map(_WITH_COMMA.fullmatch, cells)) and not any(map(_WITH_POINT.fullmatch, cells))
    return sign, "," if sign != "," and commas else ".", len(lines[0])


def _text(data: bytes, path: Path) -> str:
    """The beginning of a text, more than the longest first line; all of it must be UTF-8."""
    text = "\0"
    with suppress(UnicodeError):
        text = data.decode("utf-8-sig")
    if "\0" in text:
        raise InputError(f"{path}: is not text in UTF-8; {SAVE_AS}")
    return text[: FIRST_LINE + 1]


def _cells(text: str, delimiter: str) -> list[list[str]]:
    """The cells of the first non-blank lines, as far as they can be split."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines_read: list[list[str]] = []
    with suppress(csv.Error):
        lines_read.extend(islice((line for line in lines if line), _LINES))
    return lines_read


def write_table(table: pa.Table, file: IO[bytes], delimiter: str) -> None:
    """Writes cells delimited so, or, with none, a Parquet file; pyarrow would quote every text in CSV."""
    if not delimiter:
        parquet.write_table(table, file)
        return
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(table.column_names)
    for batch in table.to_batches(max_chunksize=_AT_ONCE):
        writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    # Flushed, and the file left open for its owner.
    text.detach()


def read_csv(path: Path, header: bool = True) -> TextTable:
    """The cells of a CSV file as text, by `find_format`; without `header` the first line is data, too."""
    with open_data(path) as stream:
        refuse_larger(path, file_size(stream), MAX_BYTES, "keep fewer rows or columns")
        data = stream.read()
    # First read every cell as text: pyarrow would guess types from the first block and fail on a later one.
    sign, decimal, columns = find_format(data, path)
    titles = [str(column) for column in range(columns)]
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(column_names=titles, use_threads=False, block_size=2 * FIRST_LINE),
            arrow_csv.ParseOptions(delimiter=sign, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(titles, pa.string())),
        )
    except (pa.ArrowInvalid, UnicodeError) as error:
        raise InputError(
            f"{path}: cannot be read as CSV ({reason_of(error)}); was it cut off, or does a cell with {sign!r} lack "
            "quotation marks? In pandas, table.to_csv(path, index=False) writes a whole one."
        ) from error
    note = "" if sign == "," else f"{DELIMITERS[sign]} between cells"
    note += "" if decimal == "." else ", decimal commas"
    whole = TextTable([], table.columns, path.name, decimal, note, delimiter=sign)
    return whole.with_header() if header else whole

"""CSV files: detects their format (encoding, delimiter and decimal sign) unless it is given, and reads their cells."""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow import csv as arrow_csv

from jaxaudit.data.formats.parsing import open_bounded, parsed, reason_of
from jaxaudit.data.formats.text_table import NUMBER, TextTable
from jaxaudit.data.memory import MAX_BYTES, MOST_COLUMNS, refuse_larger
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.errors import InputError

FIRST_LINE = 2**20
"""Largest number of characters of the first line, which determines the number of columns."""
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SAMPLE, _LINES = 2**18, 200
_WITH_POINT, _WITH_COMMA = (re.compile(rf"\s*[+-]?\d*\{sign}\d+([eE][+-]?\d+)?\s*") for sign in ".,")
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class CsvOptions(NamedTuple):
    """The requested format of a file; None means detected."""

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None


class CsvFormat(NamedTuple):
    """The format of a file.

    >>> str(CsvFormat("utf-8", ";", ","))
    'semicolons between cells, decimal commas'
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    decimal: str = "."

    def __str__(self) -> str:
        """Deviations from the default; empty for UTF-8, commas and decimal points."""
        delimiter = DELIMITERS.get(self.delimiter, repr(self.delimiter))
        deviations = {
            self.encoding: self.encoding != "utf-8",
            f"{delimiter} between cells": self.delimiter != ",",
            "decimal commas": self.decimal != ".",
        }
        return ", ".join(text for text, unusual in deviations.items() if unusual)


DETECTED = CsvOptions()


def find_format(data: bytes, path: Path, options: CsvOptions) -> tuple[CsvFormat, list[str], bool]:
    """The format of a file that holds these bytes, the cells of its first line, and whether this line alone ends with a
    delimiter, which then begins no column.

    The encoding is that of the byte-order mark (UTF-8 or UTF-16), else UTF-8 if the whole file is valid, else
    Windows-1252, which contains all letters of Latin-1. The delimiter is the one of `DELIMITERS` that splits (nearly)
    all lines into as many cells as the first, and the most of these into numbers; the comma if unclear. The decimal
    sign is a comma if cells are not separated by commas, some cell has one and none has a decimal point.

    Uses the first `2**18` characters. Nothing is allocated before the first line is known to be short enough.

    Raises:
        UnicodeError: when it is no text in that encoding.
    """
    _check_options(options)
    encoding = _encoding(data, path) if options.encoding is None else options.encoding
    marked = "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding
    text = io.TextIOWrapper(io.BytesIO(data), marked, newline="").read(FIRST_LINE + 1)
    first = text.partition("\n")[0].partition("\r")[0]
    if not text:
        raise InputError(f"{path}: is empty; was it written completely?")
    if not first:
        raise InputError(f"{path}: its first line is blank; delete it.")
    if len(first) > FIRST_LINE:
        raise InputError(f"{path}: its first line has more than {FIRST_LINE:,} characters; is it a table?")
    sample = text[: max(_SAMPLE, 4 * len(first))]
    if len(sample) < len(text) or len(text) > FIRST_LINE:
        sample = sample[: sample.rfind("\n") + 1] or first
    candidates = [delimiter for delimiter in DELIMITERS if delimiter in first] or [","]
    if options.delimiter is not None:
        candidates = [options.delimiter]
    for candidate in candidates:
        if first.count(candidate) >= MOST_COLUMNS:
            raise InputError(f"{path}: its first line has more than the allowed {MOST_COLUMNS:,} columns.")
    lines = {candidate: _cells(sample, candidate) for candidate in candidates}
    delimiter = max(candidates, key=lambda candidate: _fit(lines[candidate]))
    cells = [cell for line in lines[delimiter] for cell in line]
    commas = any(map(_WITH_COMMA.fullmatch, cells)) and not any(map(_WITH_POINT.fullmatch, cells))
    decimal = options.decimal or ("," if delimiter != "," and commas else ".")
    if not lines[delimiter]:
        raise InputError(f"{path}: its first line cannot be split into cells; is a quotation mark not closed?")
    first_cells, *below = lines[delimiter]
    longer = first_cells[-1].strip() == "" and {len(line) for line in below} == {len(first_cells) - 1}
    longer = longer and not any("\n" in cell or "\r" in cell for cell in first_cells)
    return CsvFormat(encoding, delimiter, decimal), first_cells[:-1] if longer else first_cells, longer


def read_csv(path: Path, header: bool = True, *, options: CsvOptions = DETECTED) -> TextTable:
    """The cells of a CSV file as text; what `options` leaves open is detected (`find_format`).

    Without `header` the first line is data, too. No message shows a cell. A file that is packed, has more than
    `MOST_COLUMNS`, begins with a blank line or a very long one, or whose lines differ in their number of cells is
    refused.
    """
    with open_data(path) as stream:
        if stream.peek(2)[:2] == b"\x1f\x8b":
            raise InputError(f"{path}: cannot be read as CSV, because it is compressed with gzip; decompress it first.")
        refuse_larger(path, file_size(stream), MAX_BYTES, "keep fewer rows or columns")
        return parse_csv(stream.read(), path, header, options=options)


def parse_csv(data: bytes, path: Path, header: bool, *, options: CsvOptions = DETECTED) -> TextTable:
    """The cells of the CSV file `path` that holds these bytes, as `read_csv` gives them."""
    # First read every cell as text: pyarrow would guess types from the first block and fail on a later one.
    try:
        written, first, longer = find_format(data, path, options)
        titles = [str(column) for column in range(len(first))]
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(
                column_names=titles,
                skip_rows=int(longer),
                use_threads=False,
                encoding=written.encoding,
                block_size=2 * FIRST_LINE,
            ),
            arrow_csv.ParseOptions(delimiter=written.delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(titles, pa.string())),
        )
    except UnicodeError as error:
        encoding = options.encoding or "UTF-8, UTF-16 or Windows-1252"
        raise InputError(
            f"{path}: cannot be read as CSV: it is not text in {encoding}; save it as UTF-8 or give `encoding`."
        ) from error
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: cannot be read as CSV ({reason_of(error)}).") from error
    columns = list(table.columns)
    if longer:
        columns = [pa.chunked_array([pa.array([name]), *c.chunks]) for name, c in zip(first, columns, strict=True)]
    whole = TextTable([], columns, path.name, written.decimal, str(written))
    return whole.with_header() if header else whole


def csv_batches(
    path: Path,
    columns: Mapping[str, pa.DataType],
    subject: str,
    advice: str,
    *,
    max_bytes: int | None = None,
    null_values: Sequence[str] | None = None,
    block_bytes: int = 2**24,
) -> Iterator[pa.RecordBatch]:
    """These columns, by name and type, of a large CSV file with a header line, gzipped or not, some lines at a time.

    `subject` and `advice` are as for `parsing`; `null_values` are cells that mean a missing value, by default those
    that Arrow recognises; the file may unpack to `max_bytes`, if given, and `block_bytes` are read at a time.
    """
    convert = arrow_csv.ConvertOptions(
        column_types=dict(columns), include_columns=list(columns), null_values=null_values
    )
    read = arrow_csv.ReadOptions(use_threads=False, block_size=block_bytes)
    header_line(path)
    with open_bounded(path, max_bytes) as stream:
        yield from parsed(lambda: arrow_csv.open_csv(stream, read, convert_options=convert), subject, advice)


def header_line(path: Path) -> bytes:
    """The first line of a table, as raw bytes with its line end; a gzipped file is decompressed.

    Call this function before a parser reads the table. A parser can take seconds, or crash, on too many columns.

    Raises:
        InputError: the line has more than `MOST_COLUMNS` columns or 1 MiB, or the file cannot be read.
    """
    with open_bounded(path, None) as stream:
        line = stream.readline(FIRST_LINE)
    if len(line) == FIRST_LINE or line.count(b",") >= MOST_COLUMNS:
        raise InputError(f"{path}: its first line has more than {MOST_COLUMNS:,} columns or 1 MiB; is it a table?")
    return line


def _check_options(options: CsvOptions) -> None:
    delimiter, encoding, decimal = options
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0'):
        raise InputError(f"the delimiter (`delimiter`) must be one character, such as ';', not {delimiter!r}.")
    if decimal not in (None, ".", ","):
        raise InputError(f"the decimal sign (`decimal`) must be '.' or ',', not {decimal!r}.")
    try:
        " ".encode(encoding or "utf-8")
    except (LookupError, UnicodeError, ValueError) as error:
        raise InputError(
            f"{encoding!r} is not a text encoding (`encoding`); try utf-8, utf-16, latin-1 or cp1252."
        ) from error


def _encoding(data: bytes, path: Path) -> str:
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if marked:
        return marked
    if b"\0" in data:
        raise InputError(
            f"{path}: cannot be read as CSV: it contains zero bytes, so it is not UTF-8 text; save it as UTF-8, "
            "or give `encoding` utf-16-le, where there is such an option."
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "windows-1252"
    return "utf-8"


def _cells(text: str, delimiter: str) -> list[list[str]]:
    """The cells of the first non-blank lines, as far as they can be split."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines_read: list[list[str]] = []
    with suppress(csv.Error):
        lines_read.extend(islice((line for line in lines if line), _LINES))
    return lines_read


def _fit(lines: list[list[str]]) -> tuple[float, float]:
    """How well a delimiter fits: the share of lines as wide as the first one, and of cells that are numbers."""
    width = len(lines[0]) if lines else 0
    share = sum(len(line) == width for line in lines) / max(len(lines), 1)
    if width < 2 or share <= 0.5:
        return 0.0, 0.0
    cells = [cell for line in lines for cell in line]
    plain = (cell.strip().removesuffix("%").replace(",", ".") for cell in cells)
    return share, sum(NUMBER.fullmatch(cell) is not None for cell in plain) / len(cells)

"""The rows of a CSV or Parquet file, written again as they stand, with the names of their columns.

A reader that takes a table apart into numbers loses the names that a pipeline reads by, and how a number was written.
So cells of a CSV file are kept with their quotation marks and blanks, in the file's own encoding, and columns of a
Parquet file with their types. Columns that are neither inputs nor the label are left out: nobody reads them, and a
number of the row would tell its place.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int, Shaped
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.csv_file import DETECTED, FIRST_LINE, CsvFormat, find_format
from jaxaudit.data.formats.parquet_file import parquet_names, typed_columns
from jaxaudit.data.group_values import COLUMN
from jaxaudit.data.paths import open_data
from jaxaudit.data.tables.people import load_columns, roles_of_columns
from jaxaudit.data.tables.reading import is_parquet
from jaxaudit.errors import InputError

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_AT_ONCE = 4096
"""Lines whose cells are apart at a time."""
_LINE_END = re.compile(r"\r\n|\n|\r")
_UNLIKE = (
    "{name}: the rows cannot be written as they stand so that they are read again as in the source; save the records "
    "as .npz, or as a plain .csv with a header, points and commas."
)


class CsvText(NamedTuple):
    """What a CSV file has around its cells: its byte-order mark, encoding, delimiter and line end."""

    mark: bytes
    encoding: str
    delimiter: str
    ending: str


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The rows of a file, of which some can be written.

    Attributes:
        cells: the columns of inputs and label, in the order of the file. Of a CSV file, cells and names are as they are
            written there, with quotation marks.
        inputs, label: the names of these columns.
        label_place: the place of the label among them.
        group_place: where a column of groups is added: in the place of the one that the file has, else first.
        text: what a CSV file has around its cells; None: the file is Parquet.
        names: of all columns of the file, but for those of `drop` and `groups`.
    """

    cells: pa.Table
    inputs: tuple[str, ...]
    label: str
    label_place: int
    group_place: int
    text: CsvText | None
    names: frozenset[str]

    @property
    def suffix(self) -> str:
        """The ending of the names of files with such rows."""
        return ".parquet" if self.text is None else ".csv"

    def part(self, rows: Int[np.ndarray, " some"], groups: Int[np.ndarray, " some"] | None) -> pa.Table:
        """These rows, with a column `group` where there are groups."""
        part = self.cells.take(pa.array(rows))
        return part if groups is None else part.add_column(self.group_place, COLUMN, self._column(groups))

    def challenge(self, rows: Int[np.ndarray, " some"], title: str, names: Shaped[np.ndarray, " some"]) -> pa.Table:
        """The inputs in these rows, and in front of them a column of this title with a name for each row.

        Raises:
            InputError: an input has this title, too.
        """
        if title in self.inputs:
            raise InputError(
                f"the table has a column {title!r}, which a challenge has for the names of its rows: rename it."
            )
        inputs = self.cells.remove_column(self.label_place).take(pa.array(rows))
        return inputs.add_column(0, title, self._column(names))

    def write(self, table: pa.Table, file: IO[bytes]) -> None:
        """Writes a table that `part` or `challenge` gave, in the form of the source."""
        if self.text is None:
            parquet.write_table(table, file)
            return
        mark, encoding, delimiter, ending = self.text
        file.write(mark + (delimiter.join(table.column_names) + ending).encode(encoding))
        for batch in table.to_batches(max_chunksize=_AT_ONCE):
            lines = pc.call_function("binary_join_element_wise", [*batch.columns, pa.scalar(delimiter)])
            file.writelines((line + ending).encode(encoding) for line in lines.to_pylist())

    def _column(self, values: np.ndarray) -> pa.Array:
        return pa.array(values if self.text is None else values.astype(str))


def source_rows(
    path: Path, examples: Examples, *, label: str | None, drop: Sequence[str], groups: Sequence[str]
) -> SourceRows:
    """The rows of a CSV or Parquet file that was read as these examples, with the same options (`load_columns`)."""
    columns = roles_of_columns(path, label=label, drop=drop, groups=groups)
    names = [columns.table.header[place] for place in (*columns.inputs, columns.label)]
    text = None
    if is_parquet(path):
        header = parquet_names(path)
        cells = typed_columns(path, [name for name in header if name in names])
        kept = [place for place, name in enumerate(header) if name in names]
    else:
        with open_data(path) as stream:
            header, whole, text = _csv_cells(stream.read(), path)
        kept = [place for place, name in enumerate(header) if name in names]
        cells = whole.select(kept)
    label_places = [place for place, column in enumerate(kept) if header[column] == names[-1]]
    if len(cells) != len(examples) or len(label_places) != 1:
        raise InputError(_UNLIKE.format(name=path.name))
    group_column = next((header.index(name) for name in groups if name in header), 0)
    return SourceRows(
        cells,
        inputs=tuple(names[:-1]),
        label=names[-1],
        label_place=label_places[0],
        group_place=sum(place < group_column for place in kept),
        text=text,
        names=frozenset({*header} - {*drop, *groups}),
    )


def refuse_read_otherwise(path: Path, examples: Examples, label: str | None) -> None:
    """Refuses a file of rows that a reader does not read as these examples, which are the same rows of the source."""
    part = load_columns(path, label=label)
    if (
        part.titles != examples.titles
        or part.class_names != examples.class_names
        or not np.array_equal(part.labels, examples.labels)
        or not np.array_equal(part.record_hashes, examples.record_hashes)
    ):
        raise InputError(_UNLIKE.format(name=path.name))


def _csv_cells(data: bytes, path: Path) -> tuple[list[str], pa.Table, CsvText]:
    """The names of the columns, all cells as they are written, and what is around them."""
    form, names = find_format(data, path, DETECTED)[:2]
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    encoding = _MARKS.get(mark, form.encoding)
    text = data[len(mark) :].decode(encoding)
    line_end = _LINE_END.search(text)
    written = CsvText(mark, encoding, form.delimiter, "\n" if line_end is None else line_end[0])
    cells = _with_quotes(text, path, form.delimiter, len(names)) if '"' in text else _plain(text, form, len(names))
    header = [column[0].as_py() for column in cells.columns]
    return [name.strip() for name in names], cells.slice(1).rename_columns(header), written


def _plain(text: str, form: CsvFormat, width: int) -> pa.Table:
    """The cells of a text without quotation marks, the header among them."""
    titles = [str(column) for column in range(width)]
    first = _LINE_END.split(text, 1)[0]
    # A delimiter that ends the first line alone begins no column.
    text = first.removesuffix(form.delimiter) + text[len(first) :] if first.count(form.delimiter) >= width else text
    return arrow_csv.read_csv(
        pa.BufferReader(text.encode()),
        arrow_csv.ReadOptions(column_names=titles, use_threads=False, block_size=2 * FIRST_LINE),
        arrow_csv.ParseOptions(delimiter=form.delimiter, quote_char=False),
        arrow_csv.ConvertOptions(column_types=dict.fromkeys(titles, pa.string())),
    )


def _with_quotes(text: str, path: Path, delimiter: str, width: int) -> pa.Table:
    """As `_plain`, of a text with quotation marks, in which a cell may have delimiters and ends of lines."""
    titles = [str(column) for column in range(width)]
    lines = _lines(text, path, delimiter, width)
    batches: list[pa.RecordBatch] = []
    while block := list(islice(lines, _AT_ONCE)):
        columns = [pa.array(column, pa.string()) for column in zip(*block, strict=True)]
        batches.append(pa.record_batch(columns, titles))
    return pa.Table.from_batches(batches)


def _lines(text: str, path: Path, delimiter: str, width: int) -> Iterator[list[str]]:
    sign = re.escape(delimiter)
    cell = re.compile(rf'((?:"(?:[^"]|"")*+")?+[^{sign}\r\n]*+)({sign}|\r\n|\r|\n|\Z)')
    line, first = list[str](), True
    for match in cell.finditer(text):
        line.append(match[1])
        if match[2] == delimiter:
            continue
        if first and len(line) == width + 1 and not line[-1].strip():
            # A delimiter that ends the first line alone begins no column.
            line.pop()
        if len(line) == width:
            yield line
        elif line != [""]:
            raise InputError(_UNLIKE.format(name=path.name))
        line, first = [], False

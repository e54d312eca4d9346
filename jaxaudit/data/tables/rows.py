"""The rows of a CSV or Parquet file, written again with the names of their columns and the text of every cell.

A reader that takes a table apart into numbers loses the names that a pipeline reads by, and how a number was written.
So cells of a CSV file are kept as text, and columns of a Parquet file with their types. Columns that are neither inputs
nor the label are left out: nobody reads them, and a number of the row would tell its place.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
from jaxtyping import Int, Shaped
from pyarrow import parquet

from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.parquet_file import is_parquet, typed_columns
from jaxaudit.data.labels import COLUMN
from jaxaudit.data.tables.own_table import read_own_table
from jaxaudit.errors import InputError

_AT_ONCE = 4096
"""Rows that are apart at a time."""


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The rows of a file, of which some can be written.

    Attributes:
        cells: the columns of inputs and label, in the order of the file; of a CSV file as text.
        inputs, label: the names of these columns.
        delimiter: what stands between the cells of a CSV file; None: the file is Parquet.
        names: of all columns of the file, but for those of `drop` and `groups`.
    """

    cells: pa.Table
    inputs: tuple[str, ...]
    label: str
    delimiter: str | None
    names: frozenset[str]

    @property
    def suffix(self) -> str:
        """The ending of the names of files with such rows."""
        return ".parquet" if self.delimiter is None else ".csv"

    def part(self, rows: Int[np.ndarray, " some"], groups: Int[np.ndarray, " some"] | None) -> pa.Table:
        """These rows, with a first column `group` where there are groups."""
        part = self.cells.take(pa.array(rows))
        return part if groups is None else part.add_column(0, COLUMN, pa.array(groups))

    def challenge(self, rows: Int[np.ndarray, " some"], title: str, names: Shaped[np.ndarray, " some"]) -> pa.Table:
        """The inputs in these rows, and in front of them a column of this title with a name for each row.

        Raises:
            InputError: an input has this title, too.
        """
        if title in self.inputs:
            raise InputError(
                f"the table has a column {title!r}, which a challenge has for the names of its rows: rename it."
            )
        return self.cells.select(self.inputs).take(pa.array(rows)).add_column(0, title, pa.array(names))

    def write(self, table: pa.Table, file: IO[bytes]) -> None:
        """Writes a table that `part` or `challenge` gave, in the form of the source."""
        if self.delimiter is None:
            parquet.write_table(table, file)
            return
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        writer = csv.writer(text, delimiter=self.delimiter, lineterminator="\n")
        writer.writerow(table.column_names)
        for batch in table.to_batches(max_chunksize=_AT_ONCE):
            writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        text.detach()


def source_rows(path: Path, *, label: str | None, drop: Sequence[str], groups: Sequence[str]) -> SourceRows:
    """The rows of a CSV or Parquet file, with the options with which it was read (`read_own_table`)."""
    table = read_own_table(path, label=label, drop=drop, groups=groups)
    columns = dict(zip(table.text.header, table.text.columns, strict=True))
    cells = typed_columns(path, table.text.header) if is_parquet(path) else pa.table(columns)
    return SourceRows(cells, table.inputs, table.label, None if is_parquet(path) else table.text.delimiter, table.names)


def refuse_read_otherwise(path: Path, examples: Examples, label: str | None) -> None:
    """Refuses a file of rows that a reader does not read as these examples, which are the same rows of the source."""
    part = read_own_table(path, label=label).examples()
    if (
        part.titles != examples.titles
        or part.class_names != examples.class_names
        or not np.array_equal(part.labels, examples.labels)
        or not np.array_equal(part.record_hashes, examples.record_hashes)
    ):
        raise InputError(
            f"{path.name}: the rows would not be read again as in the source; save the records as .npz, or as a .csv "
            "with points and commas."
        )

"""The cells of a CSV or Parquet file, whichever it is, and the column of groups that a deal adds to a table."""

from collections.abc import Callable, Collection
from pathlib import Path

from jaxaudit.data.formats import text_table
from jaxaudit.data.formats.parquet_file import read_parquet
from jaxaudit.data.formats.parquet_footer import MAGIC
from jaxaudit.data.formats.text_table import read_csv
from jaxaudit.data.labels import COLUMN, are_dealt
from jaxaudit.data.paths import open_data


def read_text_table(
    path: Path,
    *,
    keep: Collection[str] = (),
    drop: Collection[str] | None = (),
    index: bool = False,
    only: Callable[[str], bool] = lambda _: True,
) -> tuple[text_table.TextTable, tuple[str, ...]]:
    """The cells of a CSV file with a header line, or of a Parquet file; and notes on its format.

    Args:
        path: the file; its first bytes show which format it has, and what ends in .parquet is no CSV file.
        keep, drop, index, only: as for `read_parquet`.
    """
    if is_parquet(path):
        return read_parquet(path, keep=keep, drop=drop, index=index, only=only)
    table = read_csv(path)
    text_table.check_header(table, path)
    return table, (f"it is read as {table.note}",) if table.note else ()


def is_parquet(path: Path) -> bool:
    """Whether a table is Parquet: its first bytes say so, or its name."""
    with open_data(path) as stream:
        return stream.read(len(MAGIC)) == MAGIC or path.suffix.lower() == ".parquet"


def has_dealt_groups(table: text_table.TextTable) -> bool:
    """Whether a column `group` has the random numbers of a deal, see `are_dealt`."""
    if table.header.count(COLUMN) != 1:
        return False
    numbers = text_table.float_cells(table.columns[table.header.index(COLUMN)], table.decimal)
    return numbers is not None and are_dealt(numbers)


def without_dealt_groups(
    table: text_table.TextTable, needed_names: Collection[str]
) -> tuple[text_table.TextTable, tuple[str, ...]]:
    """The table without the groups that `deal` wrote, unless they are needed, and a note: they are no input."""
    if COLUMN in needed_names or not has_dealt_groups(table):
        return table, ()
    return table.without([COLUMN]), (f"column {COLUMN!r} has the groups that `jaxaudit deal` wrote and is left out",)

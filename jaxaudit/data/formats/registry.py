"""The formats of files of records, a row each: a new one is its reader, in this room, and a row of `FORMATS`.

What reads a set by its name, what seeks the sets in a folder, and the help take endings from here. Imports nothing
heavy: the command line names the formats before anything is read.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Reading(NamedTuple):
    """How the records of a file or folder are read: the arguments of `load`, and a split, empty for the usual one."""

    image_size: tuple[int, int] | None
    gray: bool
    label: str | None
    drop: Sequence[str]
    groups: Sequence[str]
    exact: bool
    gaps: bool
    split: str = ""


class Format(NamedTuple):
    """A format of files of records.

    Attributes:
        ending: of the names of its files. `is_table`: whether its columns have names.
        reader: the function of a path and a `Reading` that gives `Examples`, as `MODULE:NAME` within `jaxaudit.data`;
            none of texts, which have no labels.
    """

    ending: str
    holds: str
    reader: str = ""
    is_table: bool = False


FORMATS = (
    Format(
        ".npz",
        "inputs and labels under usual names (`selection`), optionally `class_names`",
        "files:read_npz",
    ),
    Format(".csv", "see `own_table.read_own_table`", "own_table:read_labelled", is_table=True),
    Format(".parquet", "as a `.csv`, with types", "own_table:read_labelled", is_table=True),
    Format(".jsonl", "texts, which have no labels: see `read_texts`"),
)
LABELLED = {entry.ending: entry for entry in FORMATS if entry.reader}
"""The formats that `load` reads, by their endings."""
TABLES = tuple(entry.ending for entry in FORMATS if entry.is_table)
OF_SETS = tuple(entry.ending for entry in FORMATS)
"""Endings of the files of sets in a folder."""

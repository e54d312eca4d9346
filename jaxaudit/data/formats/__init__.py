"""Readers of kinds of files, a module each; and the formats of files of records, a row each (`FORMATS`).

All input is untrusted (`SECURITY.md`). What another party gives (outputs, banks, runs, weights) is bounded before
anything is allocated: by the file's length, by what the shape at hand can need, and by a part of the machine's (or the
container's) memory. The user's own sets are read by the library of their format, within a bound on what they state or
unpack to. A format has one door, such as `arrays.py` of NumPy's. Only regular files are opened, and never waited for
(`data/paths.py`). A third party's parser runs within `parsing.py`. No pickle is ever loaded. `tests/fuzz` holds all
readers to this.

A new format is its reader, in this room, and a row. What reads a set by its name, what seeks the sets in a folder, and
the help take endings from here, so this module imports nothing heavy.
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

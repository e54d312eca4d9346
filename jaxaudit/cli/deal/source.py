"""What `jaxaudit deal` deals: records as every command reads them, with the arrays or the rows that are written."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from jaxaudit.cli.deal.command import DealData
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import load_told
from jaxaudit.data import Examples, load
from jaxaudit.data.files import TABLES, comparable
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.selection import CLASS_NAMES, find_pairs, named_in, role_of
from jaxaudit.data.tables.rows import SourceRows, source_rows
from jaxaudit.data.tfds.tfds import file_and_split
from jaxaudit.errors import InputError, without_folders

INPUTS, LABELS = "x", "y"
"""The arrays of what a deal writes, whatever they were called; class names have the first of their usual names."""


class DealSource(NamedTuple):
    """The records to deal, as their provider gave them.

    Attributes:
        examples: the records, as every other command reads them.
        arrays: the arrays to write, by name. Of a `.npz` these are all its arrays, except the groups.
        split: the names of `arrays` that have one row for each record, so that a side gets its own rows only.
        path: the file of the records; None if they are not a file.
        name: the name of the records, without folders.
        table: the rows of a CSV or Parquet file, to be written as they stand; None: arrays are written.
    """

    examples: Examples
    arrays: Mapping[str, np.ndarray]
    split: frozenset[str]
    path: Path | None
    name: str
    table: SourceRows | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of a table, which are written with it; empty of anything else."""
        return () if self.table is None else (*self.table.inputs, self.table.label)


def read_source(options: DealData, groups: str | None) -> DealSource:
    """The records, and the arrays that hold them; of anything but a `.npz` without splits, inputs and labels.

    Inputs are as they are stored, or of 64 bits where they are text.
    """
    if groups is not None and role_of(groups) is not None:
        raise InputError(
            f"{options.flag_of_groups} {groups} is the name of inputs or labels, which are shared with the records; "
            "copy the groups to an array or column of another name, or to a file."
        )
    data, data_dir = options.data, options.data_dir
    columns = [] if groups is None else [groups]
    stored = load_told(data, options, groups=columns, exact=True)
    examples = replace(stored, inputs=comparable(stored.inputs, stored.name))
    path, split = file_and_split(data, data_dir)
    name = without_folders(data) if path is None else path.name + (f"@{split}" if split else "")
    file = path if path is not None and not split and path.is_file() else None
    archive = NpzArrays(file) if file is not None and file.suffix.lower() == ".npz" else None
    pairs = {} if archive is None else find_pairs(archive.names, name)
    how: dict[str, Any] = {"data_dir": data_dir, "label": options.label, "drop": options.drop, "groups": columns}
    if not split and (file is None or len(pairs) > 1):
        _refuse_others(name, len(examples), len(load(f"{data}@all", **how)), pairs)
    if archive is not None and list(pairs) == [""]:
        inputs, labels = pairs[""]
        standard_names = {inputs: INPUTS, str(labels): LABELS}
        # The reader of groups also takes names that differ in case or hyphens.
        kept = [name for name in archive.names if groups is None or named_in([name], groups, "") is None]
        arrays = {standard_names.get(name, name): archive.read(name) for name in kept if name != groups}
        rows = {name for name, array in arrays.items() if array.shape[:1] == (len(examples),)}
        return DealSource(examples, arrays, frozenset(rows - set(CLASS_NAMES)), file, name)
    arrays = {INPUTS: stored.inputs, LABELS: examples.labels, CLASS_NAMES[0]: np.array(examples.class_names)}
    table = None
    if file is not None and file.suffix.lower() in TABLES:
        table = source_rows(file, examples, label=options.label, drop=options.drop, groups=columns)
    return DealSource(examples, arrays, frozenset({INPUTS, LABELS}), file, name, table)


def _refuse_others(name: str, taken: int, whole: int, splits: Iterable[str]) -> None:
    """Refuses a set of several splits: what is not dealt now could only be dealt apart."""
    if taken == whole:
        return
    split_names = ", ".join(filter(None, splits))
    raise InputError(
        f"{name} has several splits{f' ({split_names})' if split_names else ''}, and {taken:,} of its {whole:,} "
        "records in the one "
        f"that is read where none is named: say which records to deal. {name}@all deals all of them, {name}@train one "
        f"split, {name}@train+test two."
    )


def has_all_classes(source: DealSource, sides: Iterable[Bool[np.ndarray, " n"]]) -> bool:
    """Whether each side has records of all classes, which a reader of its table numbers by those that it has."""
    labels, classes = source.examples.labels, len(source.examples.class_names)
    lacking = source.table is not None and any(len(np.unique(labels[side])) < classes for side in sides)
    if lacking:
        say(
            f"{source.name}: not every set that was dealt has records of all {classes} classes, which a table of it "
            "would number otherwise; so all sets are written as .npz, without names of columns"
        )
    return not lacking

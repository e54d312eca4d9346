"""What `jaxaudit deal` deals: records as every command reads them, with the arrays or the rows that are written.

They are dealt one by one, in whole groups, or within each group, and some groups can be named by the later test.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped

from jaxaudit.audits.ks.by_group import MOST_PERMUTATIONS, MOST_TESTS, holdout_groups_needed, records_a_set_needed
from jaxaudit.cli.deal import DealData, DealFlags
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import load_told
from jaxaudit.data import Examples, load
from jaxaudit.data.files import TABLES, comparable
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.labels import number_groups
from jaxaudit.data.own_table import SourceRows, source_rows
from jaxaudit.data.selection import CLASS_NAMES, find_pairs, named_in, role_of
from jaxaudit.data.tfds import file_and_split
from jaxaudit.errors import InputError, without_folders
from jaxaudit.metrics.deal import deal_holdout, deal_members, deal_within, merge_groups
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.group_tests import counted_deals
from jaxaudit.randomness import generator_of, stream

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

    @property
    def words(self) -> dict[str, np.ndarray]:
        """The columns of inputs that are words, as text, by their names."""
        if self.table is None:
            return {}
        names = [name for name in self.table.inputs if name not in self.examples.titles]
        return {name: np.array(self.table.cells[name].to_pylist()).astype(str) for name in names}


def read_source(options: DealData, groups: str | None) -> DealSource:
    """The records, and the arrays that hold them; of anything but a `.npz` without splits, inputs and labels.

    Inputs are as they are stored, or of 64 bits where they are text.
    """
    if groups is not None and role_of(groups) is not None:
        raise InputError(
            f"{options.flag_of_groups} {groups} is the name of inputs or labels, which are shared with the records; "
            "copy the groups to an array or column of another name, or to a file."
        )
    data = options.data
    columns = [] if groups is None else [groups]
    stored = load_told(data, options, groups=columns, exact=True)
    examples = replace(stored, inputs=comparable(stored.inputs, stored.name))
    path, split = file_and_split(data)
    name = without_folders(data) if path is None else path.name + (f"@{split}" if split else "")
    file = path if path is not None and not split and path.is_file() else None
    archive = NpzArrays(file) if file is not None and file.suffix.lower() == ".npz" else None
    pairs = {} if archive is None else find_pairs(archive.names, name)
    how: dict[str, Any] = {"label": options.label, "drop": options.drop, "groups": columns}
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
        table = source_rows(file, label=options.label, drop=options.drop, groups=columns)
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


NUMBERS = 2**53
"""Groups get random numbers below this: groups of two deals get different ones, and a float has each exactly."""
ONE_EACH = (
    "WARNING: every group has one record. Is that the key of what records have in common, such as their author, and",
    "not a number of each record? Deal again by that key; if records have nothing in common, leave the groups out.",
)
ASK = "`ks --scores --by group`"


class DealtUnits(NamedTuple):
    """The groups of the records, and how they are dealt.

    Attributes:
        of_record: the group of each record, from 0 in the order in which they first occur.
        copied: the number of records that are copies of others.
        written: whether the sides say which records belong together.
        within: whether the records of each group are dealt over all sides.
    """

    of_record: Int[np.ndarray, " records"]
    copied: int
    written: bool
    within: bool

    @property
    def whole(self) -> bool:
        """Whether groups are dealt whole."""
        return self.written and not self.within

    @property
    def count(self) -> int:
        """The number of groups."""
        return int(self.of_record.max()) + 1

    def on(self, rows: Int[np.ndarray, " some"]) -> int:
        """The number of groups that these records are of."""
        return len(np.unique(self.of_record[rows]))

    def random_numbers(self, key: Key[Array, ""]) -> Int[np.ndarray, " records"]:
        """A random number for the group of each record, which tells neither the group's value nor its place."""
        return generator_of(stream(key, "numbers")).choice(NUMBERS, self.count, replace=False)[self.of_record]


def dealt_units(
    values: Shaped[np.ndarray, " records"] | None, hashes: Shaped[np.ndarray, " records"], *, within: bool
) -> DealtUnits:
    """The units of a deal, by the group of each record, if it has one, and a hash that equal records share.

    Raises:
        InputError: records are to be dealt within groups, and some are copies of others.
    """
    copied = len(hashes) - len(np.unique(hashes))
    if within and copied:
        raise InputError(
            f"{copied:,} records are copies of others, and --by could put one text on two sides: a copy hides use. "
            "Leave out all but one of each, or deal whole groups (--groups)."
        )
    # Records that belong to nobody need no groups, and the test of records finds more.
    written = values is not None or copied > 0
    groups = np.arange(len(hashes)) if values is None else values
    return DealtUnits(number_groups(groups if within else merge_groups(groups, hashes)), copied, written, within)


def draw_deal(key: Key[Array, ""], how: DealFlags, units: DealtUnits) -> dict[str, Bool[np.ndarray, " records"]]:
    """Deals records at random: True for the records of each side (`query`, `members`, `holdout`), by its name."""
    count, groups = len(units.of_record), units.of_record if units.whole else None
    if units.within:
        drawn, members = deal_within(stream(key, "deal"), units.of_record, how.held, how.members_share or 0.0)
        stay = {} if how.members_share is None else {"members": members}
        return {"query": ~(drawn | members), **stay, "holdout": drawn}
    drawn = deal_holdout(stream(key, "deal"), count, how.held if how.withdraw is None else how.withdraw, groups)
    if how.withdraw is not None:
        return {"query": drawn, "members": ~drawn}
    if how.members_share is None:
        return {"query": ~drawn, "holdout": drawn}
    members = deal_members(stream(key, "deal"), drawn, how.members_share, groups)
    return {"query": ~(drawn | members), "members": members, "holdout": drawn}


def single_groups(units: DealtUnits, rows: Mapping[str, np.ndarray]) -> tuple[tuple[str, ...], bool]:
    """What to say of single groups of the query set, and whether scores would name any of them, each on its own.

    At 5%, adjusted for all groups, of one target. Nothing is said without groups or a holdout. `rows` has the records
    of each side.
    """
    if not units.written or "holdout" not in rows:
        return (), False
    query, holdout = (np.bincount(units.of_record[rows[side]], minlength=units.count) for side in ("query", "holdout"))
    groups, held = int((query > 0).sum()), int((holdout > 0).sum())
    counted = f"{groups:,} group{'' if groups == 1 else 's'}"
    adjusted = f"(5%, adjusted for {counted} of one model)"
    if units.within:
        sizes = zip(query.tolist(), holdout.tolist(), strict=True)
        can_be_named = sum(counted_deals(q, h, MOST_PERMUTATIONS) * ALPHA >= groups for q, h in sizes)
        needed = records_a_set_needed(groups)
        rest = f"{needed:,} records of a group in query set and in holdout are enough."
        if can_be_named < groups:
            rest = f"Enough are {needed:,} records of a group in query set and in holdout each."
        if groups > MOST_TESTS:
            rest = f"P-values can be adjusted for at most {MOST_TESTS:,} groups: deal fewer of them."
        able = "each" if can_be_named == groups else f"{can_be_named:,}"
        return (f"Single groups: {ASK} can name {able} of {counted} {adjusted}.", rest), can_be_named > 0
    needed = holdout_groups_needed(groups)
    enough = held >= needed
    lines = (
        f"Single groups: to name one of {counted} {adjusted}, {ASK}",
        f"needs {needed:,} groups in the holdout, and there are {held:,}: "
        f"{'enough' if enough else 'none can be named'}.",
        *(() if enough else ("Is it single ones you ask about? --by in place of --groups deals for that.",)),
    )
    if units.count < len(units.of_record):
        return lines, enough
    # A deal of records within groups would name none of them either.
    return (*ONE_EACH, *(lines if enough else ())), enough

"""What `jaxaudit deal` deals: records as every command reads them, what is written of them, and what stays at home.

Records are dealt one by one, in whole groups, or within each group. The files tell of no record whose it is: they have
records alone, inputs and labels or texts, and groups have random numbers. No message has a value of a group. `deal`
takes its seed from the system's entropy: whoever has the records could repeat a deal by a default seed; and the key of
`--blind` stays at home. Nothing that can be lost is lost on the way: arrays keep their type, numbers in text have 64
bits, images the levels of their file, and what a reader would reduce (`load_image_folders`) is refused. What sets are
compared by (`files.comparable`) is made when they are judged.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped

from jaxaudit.audits.ks.by_group import MOST_PERMUTATIONS, MOST_TESTS, holdout_groups_needed, records_a_set_needed
from jaxaudit.cli.deal import DealData, DealFlags
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import load_told
from jaxaudit.data import Examples, load
from jaxaudit.data.deals import RECORD, file_hash, key_as_json, record_names, record_order
from jaxaudit.data.deals import Key as DealKey
from jaxaudit.data.examples import Role
from jaxaudit.data.files import TABLES, comparable
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.labels import number_groups
from jaxaudit.data.own_table import SourceRows, source_rows
from jaxaudit.data.selection import CLASS_NAMES, find_pairs, named_in, role_of
from jaxaudit.data.texts import Texts
from jaxaudit.data.tfds import file_and_split
from jaxaudit.errors import InputError, without_folders
from jaxaudit.metrics.deal import deal_holdout, deal_members, deal_within, merge_groups
from jaxaudit.metrics.score_tests import counted_deals
from jaxaudit.metrics.usage import ALPHA
from jaxaudit.randomness import generator_of, stream
from jaxaudit.runs.directory import Writer

INPUTS, LABELS = "x", "y"
"""The arrays of what a deal writes, whatever they were called; class names have the first of their usual names."""


class DealSide(NamedTuple):
    """One side of a deal: its file, the indices of its records in the source, and how many groups they are."""

    file: str
    rows: np.ndarray
    groups: int


class DealSource(NamedTuple):
    """The records to deal: `examples` as every other command reads them, and the `arrays` to write, inputs, labels and
    class names; further ones are `left_out`. `table`: the rows of a CSV or Parquet file, to be written as they stand in
    place of arrays.
    """

    examples: Examples
    arrays: Mapping[str, np.ndarray]
    path: Path | None
    name: str
    left_out: tuple[str, ...] = ()
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
    """The records, and the arrays that hold them: as they are stored, or of 64 bits where they are text."""
    if groups is not None and role_of(groups) is not None:
        raise InputError(
            f"{options.flag_of_groups} {groups} is the name of inputs or labels, which are shared with the records; "
            "copy the groups to an array or column of another name, or to a file."
        )
    data = options.data
    columns = [] if groups is None else [groups]
    stored = load_told(data, options, groups=columns, exact=True, gaps=True)
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
        arrays = {to: archive.read(array) for to, array in zip((INPUTS, LABELS), pairs[""], strict=True)}
        arrays |= {array: archive.read(array) for array in [*filter(archive.names.__contains__, CLASS_NAMES)][:1]}
        # The reader of groups also takes names that differ in case or hyphens.
        further = [array for array in archive.names if groups is None or named_in([array], groups, "") is None]
        left_out = tuple(array for array in further if array not in (*pairs[""], *arrays, groups))
        return DealSource(examples, arrays, file, name, left_out)
    arrays = {INPUTS: stored.inputs, LABELS: examples.labels, CLASS_NAMES[0]: np.array(examples.class_names)}
    table = None
    if file is not None and file.suffix.lower() in TABLES:
        table = source_rows(file, label=options.label, drop=options.drop, groups=columns)
    return DealSource(examples, arrays, file, name, table=table)


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
    """The group of each record, from 0 in the order in which they first occur; the number of records that are copies;
    whether the sides say which records belong together, and whether the records of each group are dealt over all sides.
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
    """The units of a deal, by the group of each record, if it has one, and a hash that equal records share."""
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


ROWS = 4096
ADVICE = "which are shared with the records, so they would tell whose each record is"


def texts_with_values(groups: Sequence[str | int], texts: Texts) -> list[str]:
    """The keys of texts that have the groups' values line by line, or one that is no number in any line; or that are
    other names of groups with several records: one text for each group.
    """
    words = [str(value).strip().lower() for value in groups]
    names = {word for word in words if _numbers(np.array([word])) is None}
    lines = [{key: _as_text(bytes(line[key])) for key in texts.keys if key in line} for line in texts.objects()]

    def tells(key: str) -> bool:
        pairs = [(word, line[key]) for word, line in zip(words, lines, strict=True) if key in line]
        distinct = set(pairs)
        return bool(pairs) and (
            all(_within(word, text) for word, text in pairs)
            or any(text in names for _, text in pairs)
            # Where each record is a group of its own, any texts that differ would be names of the groups.
            or len(words) == len(pairs) > len(set(words)) == len(distinct) == len({text for _, text in distinct})
        )

    return [key for key in texts.keys if tells(key)]


def _as_text(value: bytes) -> str:
    """A JSON value as a text: a string without its escapes, anything else as it is written."""
    with suppress(msgspec.MsgspecError, RecursionError):
        decoded = msgspec.json.decode(value)
        return (decoded if isinstance(decoded, str) else json.dumps(decoded, ensure_ascii=False)).strip().lower()
    return value.decode(errors="replace").strip().lower()


def refuse_in_records(
    groups: Shaped[np.ndarray, " n"],
    examples: Examples,
    columns: Sequence[str],
    words: Mapping[str, Shaped[np.ndarray, " n"]],
) -> None:
    """Refuses inputs, labels, class names and names of columns that have values of the groups: nobody can leave these
    out. `words` are the inputs that are words, by the names of their columns.
    """
    classes = np.array(examples.class_names)
    # Where each record is a group of its own, any column with another value in each would be a name of them.
    shared = len(np.unique(groups)) < len(groups)

    def places_in(array: np.ndarray, records: slice | np.ndarray = slice(None)) -> list[int]:
        return _columns_with(groups[records], array) or (_other_names(groups[records], array) if shared else [])

    places = places_in(examples.inputs) if examples.inputs.ndim == 2 else []
    for place in np.flatnonzero(np.isnan(examples.inputs).any(axis=0)) if examples.gaps else ():
        full = ~np.isnan(examples.inputs[:, place])
        # Of few cells each may have another value by chance.
        places += [place] if 2 * full.sum() > len(full) and places_in(examples.inputs[full, place], full) else []
    names = [name for name, column in words.items() if places_in(column)]
    names += [examples.titles[place] if examples.titles else "" for place in places]
    if names:
        column_name = repr(names[0][:40]) if names[0] else f"{places[0] + 1} of the inputs"
        raise InputError(
            f"{examples.name}: column {column_name} has the values of the groups row by row, or one "
            "value for each group, and would be shared. Leave it out (--drop, of a table), or give other groups."
        )
    if (
        _columns_with(groups, examples.labels)
        or np.array_equal(_words(classes[examples.labels]), _words(groups))
        or (shared and _other_names(groups, examples.labels))
    ):
        raise InputError(
            f"{examples.name}: its labels are the values of the groups, or other names of them, {ADVICE}. Are these "
            "the right groups?"
        )
    if _names_in(groups, np.array(columns, str)):
        raise InputError(
            f"{examples.name}: names of its columns are values of the groups, {ADVICE}. Name the columns otherwise."
        )
    if _names_in(groups, classes):
        raise InputError(
            f"{examples.name}: its class names have values of the groups, {ADVICE}. Name the classes or the groups "
            "otherwise."
        )


def _columns_with(groups: np.ndarray, array: np.ndarray) -> list[int]:
    """The columns of an array that have the groups' values row by row."""
    if array.shape[:1] != groups.shape or not len(array):
        return []
    columns = array.reshape(len(array), -1)
    if columns.dtype.kind in "SU":
        return [place for place, column in enumerate(columns.T) if all(map(_within, _words(groups), _words(column)))]
    numbers = _numbers(groups)
    if numbers is None:
        return []
    # As coarse as what they are compared with: inputs are of 32 bits.
    numbers = numbers.astype(columns.dtype) if columns.dtype.kind == "f" else numbers
    return [int(place) for place in np.flatnonzero(columns[0] == numbers[0]) if (columns[:, place] == numbers).all()]


def _other_names(groups: np.ndarray, array: np.ndarray) -> list[int]:
    """The columns of whole numbers or texts that have one value for each group, and another one for each other."""
    if array.shape[:1] != groups.shape or not len(array) or array.dtype.kind not in "biufSU":
        return []
    columns = array.reshape(len(array), -1)
    first, numbers = np.unique(groups, return_index=True, return_inverse=True)[1:]
    candidates = np.arange(columns.shape[1])
    for start in range(0, len(columns), ROWS):
        rows = slice(start, start + ROWS)
        candidates = candidates[
            (columns[rows, candidates] == columns[first[numbers[rows], None], candidates]).all(axis=0)
        ]
        if not len(candidates):
            return []
    values = columns[first][:, candidates]
    whole = (values == np.rint(values)).all(axis=0) if values.dtype.kind == "f" else np.ones(len(candidates), bool)
    return [
        int(place)
        for place, one, column in zip(candidates, whole, values.T, strict=True)
        if one and len(np.unique(column)) == len(column)
    ]


def _names_in(groups: np.ndarray, array: np.ndarray) -> bool:
    """Whether a text of the array is a value of the groups that is no number: numbers are the same by chance."""
    if array.dtype.kind not in "SU" or groups.dtype.kind not in "SU":
        return False
    names = [value for value in np.unique(_words(groups)) if _numbers(np.array([value])) is None]
    return bool(np.isin(_words(array), names).any())


def _within(value: str, text: str) -> bool:
    """Whether a value stands in a text, but no number within a longer one."""
    start = text.find(value)
    while start >= 0:
        before, after = text[:start][-1:], text[start + len(value) :][:1]
        longer = (before.isdigit() and value[:1].isdigit()) or (after.isdigit() and value[-1:].isdigit())
        if not longer:
            return True
        start = text.find(value, start + 1)
    return False


def _words(array: np.ndarray) -> np.ndarray:
    """The values as text, in small letters."""
    text = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array.astype(str)
    return np.char.strip(np.char.lower(text))


def _numbers(values: np.ndarray) -> np.ndarray | None:
    """The values as numbers; None where one is none."""
    try:
        return values if values.dtype.kind in "iu" else values.astype(np.float64)
    except ValueError:
        return None


def challenge_arrays(
    sides: Mapping[str, DealSide], arrays: Mapping[str, np.ndarray], salt: str
) -> tuple[dict[str, np.ndarray], dict[Role, list[int]]]:
    """The arrays of a challenge, and the rows in it of the records of each side.

    It has the inputs of all records in a random order, random names, and class names. It has no labels, which outputs
    do not need, no groups, and no further array: each could tell which set a record is of.
    """
    records = arrays[INPUTS]
    order = record_order(salt, len(records))
    class_names = {name: arrays[name] for name in CLASS_NAMES if name in arrays}
    challenge_file = {RECORD: np.array(record_names(salt, len(order))), INPUTS: records[order], **class_names}
    return challenge_file, {Role(name): np.argsort(order)[side.rows].tolist() for name, side in sides.items()}


def home_writer(numbers: Sequence[int]) -> Writer:
    """Writes which records of the source, from 1, each random number stands for. Two people who share a copy are one
    group: all of its records are there, so that nobody is taken for another one.
    """
    records = dict[int, list[int]]()
    for record, number in enumerate(numbers, 1):
        records.setdefault(number, []).append(record)

    def save(file: IO[bytes]) -> None:
        rows = (f"{number},{' '.join(map(str, places))}\n" for number, places in records.items())
        file.write("".join(("group,records\n", *rows)).encode())

    return save


def key_writer(
    out: Path, names: list[str], salt: str, seed: int, whole: bool, rows: dict[Role, list[int]], label: str | None
) -> Writer:
    """Writes the key of a blind deal, which says which record is in which role. The files `names` in `out` are written
    before: the key has their hashes.
    """

    def save(file: IO[bytes]) -> None:
        files = {name: file_hash(out / name) for name in names}
        file.write(key_as_json(DealKey(salt=salt, seed=seed, groups=whole, label=label, files=files, rows=rows)))

    return save

"""What `jaxaudit deal` deals: records as every command reads them, what is written of them, and what stays at home.

The files tell of no record whose it is, and groups have random numbers. No message has a value of a group. `deal` takes
its seed from the system's entropy: whoever has the records could repeat a deal by a default seed. Arrays keep their
type, numbers in text have 64 bits, images the levels of their file, and what a reader would reduce
(`load_image_folders`) is refused.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped

from jaxaudit.audits.ks.by_group import MOST_PERMUTATIONS, MOST_TESTS, holdout_groups_needed, records_a_set_needed
from jaxaudit.cli.deal import DealData, DealFlags
from jaxaudit.cli.deal.telling import refuse_in_records, texts_with_values
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import group_columns, load_told, read_told, tell_of_groups
from jaxaudit.data import Examples, is_image, load, prepare_images
from jaxaudit.data.deals import RECORD, file_hash, key_as_json, record_names, record_order
from jaxaudit.data.deals import Key as DealKey
from jaxaudit.data.examples import Role
from jaxaudit.data.files import comparable
from jaxaudit.data.formats import TABLES
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.groups import groups_file, load_groups
from jaxaudit.data.labels import COLUMN, number_groups
from jaxaudit.data.own_table import SourceRows, refuse_read_otherwise, source_rows
from jaxaudit.data.paths import expanded
from jaxaudit.data.selection import CLASS_NAMES, find_pairs, named_in, role_of
from jaxaudit.data.texts import Texts
from jaxaudit.data.tfds import file_and_split
from jaxaudit.errors import InputError, few, without_folders
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


class RecordSource(NamedTuple):
    """The records to deal: `examples` as every other command reads them, and the `arrays` to write, inputs, labels and
    class names; further ones are `left_out`. `table`: the rows of a CSV or Parquet file, to be written as they stand in
    place of arrays, with the column of the `label` that was named. `groups`: a value a record, where there are groups.
    """

    examples: Examples
    arrays: Mapping[str, np.ndarray]
    path: Path | None
    name: str
    left_out: tuple[str, ...] = ()
    table: SourceRows | None = None
    label: str | None = None
    groups: Shaped[np.ndarray, " n"] | None = None

    @property
    def hashes(self) -> Shaped[np.ndarray, " n"]:
        """16 bytes of each record."""
        return self.examples.record_hashes

    @property
    def copies(self) -> Shaped[np.ndarray, " n"]:
        """16 bytes of each record as other commands compare it where no option says otherwise: images in gray."""
        examples = self.examples
        if is_image(examples) and examples.inputs.ndim == 4:
            with suppress(InputError):  # numbers that no image has
                examples = prepare_images(examples, examples.inputs.shape[1:3])
        return examples.record_hashes.view("S16")

    @property
    def facts(self) -> dict[str, Any]:
        """What the record of the deal says of the source."""
        columns = self.table and {"inputs": self.table.inputs, "label": self.table.label}
        return {
            "name": self.name,
            "content_hash": self.examples.content_hash,
            "sha256": self.path and file_hash(self.path),
            "columns": columns,
        }

    @property
    def suffix(self) -> str:
        """The ending of the names of files of sets."""
        return self.table.suffix if self.table else ".npz"

    def refuse_telling(self, units: "DealtUnits") -> None:
        """Refuses records that tell their groups, and names that a deal gives."""
        table = self.table
        if self.groups is not None:
            columns = (*table.inputs, table.label) if table else ()
            inputs = [name for name in table.inputs if name not in self.examples.titles] if table else []
            words = {name: np.array(table.cells[name].to_pylist()).astype(str) for name in inputs} if table else {}
            refuse_in_records(self.groups, self.examples, columns, words)
        if COLUMN in (*self.left_out, *(table.names if table else ())):
            raise InputError(f"{self.name} has an array or column {COLUMN!r}, {TAKEN}.")

    def as_written(self, sides: Iterable[Bool[np.ndarray, " n"]]) -> "RecordSource":
        """The source as arrays where a side lacks a class: a reader of its table numbers those that it has."""
        labels, classes, gaps = self.examples.labels, len(self.examples.class_names), self.examples.gaps
        if self.table and all(len(np.unique(labels[side])) == classes for side in sides):
            return self
        if gaps:
            raise InputError(
                f"{self.name}: columns {few(map(repr, gaps))} have empty cells, which no .npz has: leave them out "
                "(--drop), or deal a whole table of which every set gets all classes."
            )
        if not self.table:
            return self
        say(
            f"{self.name}: not every set that was dealt has records of all {classes} classes, which a table of it "
            "would number otherwise; so all sets are written as .npz, without names of columns"
        )
        return self._replace(table=None, label=None)

    def writer(self, rows: Int[np.ndarray, " some"], numbers: Int[np.ndarray, " n"] | None) -> Writer:
        """Writes these records, with the numbers of their groups, if there are any."""
        if self.table:
            return partial(self.table.write, self.table.part(rows, None if numbers is None else numbers[rows]))
        arrays = {**self.arrays, **({} if numbers is None else {COLUMN: numbers})}
        return _npz({name: array if name in CLASS_NAMES else array[rows] for name, array in arrays.items()})

    def refuse_changed(self, path: Path, rows: Int[np.ndarray, " some"]) -> None:
        """Refuses a written table that is not read as these records of the source."""
        if self.table:
            refuse_read_otherwise(path, self.examples.take(rows), self.label)

    def challenge(self, salt: str) -> Writer:
        """Writes a challenge: the inputs of all records in a random order, random names, and class names. It has no
        labels, which outputs do not need, no groups, and no further array: each could tell which set a record is of.
        """
        order = record_order(salt, len(self.examples))
        names = np.array(record_names(salt, len(order)))
        if self.table:
            return partial(self.table.write, self.table.challenge(order, RECORD, names))
        class_names = {name: self.arrays[name] for name in CLASS_NAMES if name in self.arrays}
        return _npz({RECORD: names, INPUTS: self.arrays[INPUTS][order], **class_names})


TAKEN = f"the name of the groups of a deal: deal by it (--groups {COLUMN}), or rename it"


def read_source(options: DealData) -> RecordSource:
    """The records, and the arrays that hold them: as they are stored, or of 64 bits where they are text."""
    data, groups = options.data, next(iter(group_columns(options.names_of_groups)), None)
    if groups is not None and role_of(groups) is not None:
        raise InputError(
            f"{options.flag_of_groups} {groups} is the name of inputs or labels, which are shared with the records; "
            "copy the groups to an array or column of another name, or to a file."
        )
    # A column with groups is no input, and its values are not written: the files are shared.
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
        source = RecordSource(examples, arrays, file, name, left_out)
    else:
        arrays = {INPUTS: stored.inputs, LABELS: examples.labels, CLASS_NAMES[0]: np.array(examples.class_names)}
        source = RecordSource(examples, arrays, file, name)
        if file is not None and file.suffix.lower() in TABLES:
            source = source._replace(label=options.label, table=source_rows(file, **how))
    if options.names_of_groups is None:
        return source
    return source._replace(groups=load_groups(options.names_of_groups, data, len(examples), "data"))


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


def _npz(arrays: Mapping[str, np.ndarray]) -> Writer:
    """Writes arrays as a .npz: the same arrays, the same bytes."""

    def save(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                # Without a date of its own a member is of 1980.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    return save


class TextSource(NamedTuple):
    """The texts to deal, as lines with the keys of their texts alone, as `RecordSource` has other records."""

    texts: Texts
    path: Path
    hashes: Shaped[np.ndarray, " n"]
    left_out: tuple[str, ...]
    groups: Int[np.ndarray, " n"] | None = None
    label: None = None
    suffix: str = ".jsonl"

    @property
    def name(self) -> str:
        return self.texts.source

    @property
    def copies(self) -> Shaped[np.ndarray, " n"]:
        """`hashes`: equal texts are copies."""
        return self.hashes

    @property
    def facts(self) -> dict[str, Any]:
        content = hashlib.blake2b(self.hashes.tobytes(), digest_size=16).hexdigest()
        return {"name": self.name, "content_hash": f"blake2b:{content}", "sha256": file_hash(self.path)}

    def refuse_telling(self, units: "DealtUnits") -> None:
        if units.written and COLUMN in self.left_out:
            raise InputError(f"{self.name} has a key {COLUMN!r}, {TAKEN}.")

    def as_written(self, sides: Iterable[Bool[np.ndarray, " n"]]) -> "TextSource":
        return self

    def writer(self, rows: Int[np.ndarray, " some"], numbers: Int[np.ndarray, " n"] | None) -> Writer:
        def save(file: IO[bytes]) -> None:
            for row in rows.tolist():
                line = {name: value for name, value in self.texts.object(row).items() if name in self.texts.keys}
                if numbers is not None:
                    line[COLUMN] = int(numbers[row])
                file.write(msgspec.json.encode(line) + b"\n")

        return save

    def refuse_changed(self, path: Path, rows: Int[np.ndarray, " some"]) -> None:
        """Lines are written as they were read."""


def read_text_source(options: DealData) -> TextSource:
    """The texts; says on stderr if they, which nobody can leave out, have the groups' values or other names of them."""
    groups, path = options.names_of_groups, expanded(options.data)
    texts = read_told(path)
    pairs = zip(texts.prompts, texts.answers, strict=True)
    digests = [hashlib.blake2b(json.dumps(pair).encode(), digest_size=16).digest() for pair in pairs]
    left_out = {key for line in texts.objects() for key in line}.difference((groups, *texts.keys))
    source = TextSource(texts, path, np.array(digests, "S16"), tuple(sorted(left_out)))
    if groups is None:
        tell_of_groups([texts])
        return source
    if groups_file(groups) is not None:
        values = load_groups(groups, str(path), len(texts.lines), "data").tolist()
    else:
        values = None if groups in texts.keys else texts.column(groups)
    if values is None:
        trouble = "is a text of the records" if groups in texts.keys else "is neither a file nor a key of the lines"
        raise InputError(
            f"{options.flag_of_groups} {groups} {trouble}; name the key of what records have in common, such as author."
        )
    telling = sorted(texts_with_values(values, texts))
    if telling:
        say(
            f"{texts.source}: the texts themselves ({', '.join(telling)}) tell whose they are: they have the "
            "values of the groups, or one text for each group, and are shared"
        )
    numbers: dict[str | int, int] = {}
    return source._replace(groups=np.array([numbers.setdefault(value, len(numbers)) for value in values]))


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

    At 5%, adjusted for all groups, of one target. Nothing is said without groups or a holdout. `rows` is of each side.
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
    out: Path,
    names: list[str],
    salt: str,
    seed: int,
    units: DealtUnits,
    sides: Mapping[str, DealSide],
    label: str | None,
) -> Writer:
    """Writes the key of a blind deal. The files `names` in `out` are written before: the key has their hashes."""
    places = np.argsort(record_order(salt, len(units.of_record)))
    rows = {Role(name): places[side.rows].tolist() for name, side in sides.items()}

    def save(file: IO[bytes]) -> None:
        files = {name: file_hash(out / name) for name in names}
        file.write(key_as_json(DealKey(salt=salt, seed=seed, groups=units.whole, label=label, files=files, rows=rows)))

    return save

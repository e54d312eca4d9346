"""What `jaxaudit deal` deals: records as every command reads them, what is written of them, and what stays at home.

The files tell of no record whose it is: groups have random numbers, and records that have the values of groups, or
other names of them, are refused. No message has a value of a group. `deal` takes its seed from the system's entropy:
whoever has the records could repeat a deal by a default seed. Arrays keep their type, numbers in text have 64 bits,
images the levels of their file, and what a reader would reduce (`load_image_folders`) is refused.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Int, Shaped

from jaxaudit.cli.deal import DealOptions
from jaxaudit.cli.progress import say
from jaxaudit.cli.read_sets import group_columns, load_told, read_told, tell_of_groups
from jaxaudit.data import Examples, is_image, load, prepare_images
from jaxaudit.data.deals import RECORD, file_hash, record_names, record_order
from jaxaudit.data.files import comparable
from jaxaudit.data.formats import TABLES
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.groups import groups_file, load_groups
from jaxaudit.data.labels import COLUMN
from jaxaudit.data.own_table import MISSING_TEXTS, SourceRows, refuse_read_otherwise, source_rows
from jaxaudit.data.paths import expanded
from jaxaudit.data.selection import CLASS_NAMES, find_pairs, named_in, role_of
from jaxaudit.data.texts import Texts
from jaxaudit.data.tfds import file_and_split
from jaxaudit.errors import InputError, few, refuse_wrong, without_folders
from jaxaudit.json_types import hash_of
from jaxaudit.runs.directory import Writer

OfRecords = Shaped[np.ndarray, " n"]
"""A value a record."""
Rows = Int[np.ndarray, " some"]
"""The places of some records."""

INPUTS, LABELS = "x", "y"
"""The arrays of what a deal writes, whatever they were called; class names have the first of their usual names."""


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
    groups: OfRecords | None = None

    @property
    def hashes(self) -> OfRecords:
        """16 bytes of each record."""
        return self.examples.record_hashes

    @property
    def copies(self) -> OfRecords:
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

    def refuse_telling(self, written: bool) -> None:
        """Refuses records that tell their groups, and names that a deal gives (of groups, if they are `written`)."""
        table = self.table
        if self.groups is not None:
            inputs = table.inputs if table else ()
            words = {
                name: np.array(["" if cell is None else cell for cell in table.cells[name].to_pylist()], str)
                for name in inputs
                if table and name not in self.examples.titles
            }
            columns = (*inputs, table.label) if table else ()
            refuse_in_records(self.groups, self.examples, columns, words)
        if COLUMN in (*self.left_out, *(table.names if table else ())):
            raise InputError(f"{self.name} has an array or column {COLUMN!r}, {TAKEN}.")

    def as_written(self, sides: Iterable[Rows]) -> "RecordSource":
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

    def writer(self, rows: Rows, numbers: Int[np.ndarray, " n"] | None) -> Writer:
        """Writes these records, with the numbers of their groups, if there are any."""
        if self.table:
            return partial(self.table.write, self.table.part(rows, None if numbers is None else numbers[rows]))
        arrays = {**self.arrays, **({} if numbers is None else {COLUMN: numbers})}
        return _npz({name: array if name in CLASS_NAMES else array[rows] for name, array in arrays.items()})

    def refuse_changed(self, path: Path, rows: Rows) -> None:
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


def read_source(options: DealOptions) -> RecordSource:
    """The records, and the arrays that hold them: as they are stored, or of 64 bits where they are text."""
    # A column with groups is no input, and its values are not written: the files are shared.
    data, columns = options.data, group_columns(options.names_of_groups)
    if any(map(role_of, columns)):
        raise InputError(
            f"{options.flag_of_groups} {options.names_of_groups} is the name of inputs or labels, which are shared "
            "with the records; copy the groups to an array or column of another name, or to a file."
        )
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
    arrays = {INPUTS: stored.inputs, LABELS: examples.labels, CLASS_NAMES[0]: np.array(examples.class_names)}
    source = RecordSource(examples, arrays, file, name)
    if archive is not None and list(pairs) == [""]:
        arrays = {to: archive.read(array) for to, array in zip((INPUTS, LABELS), pairs[""], strict=True)}
        arrays |= {array: archive.read(array) for array in [*filter(archive.names.__contains__, CLASS_NAMES)][:1]}
        # The reader of groups also takes names that differ in case or hyphens.
        of_groups = [named_in([array], column, "") for array in archive.names for column in columns]
        named_arrays = {*pairs[""], *arrays, *columns, *of_groups}
        left_out = tuple(array for array in archive.names if array not in named_arrays)
        source = source._replace(arrays=arrays, left_out=left_out)
    elif file is not None and file.suffix.lower() in TABLES:
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
    return lambda file: np.savez(file, allow_pickle=False, **arrays)


class TextSource(NamedTuple):
    """The texts to deal, as lines with the keys of their texts alone, as `RecordSource` has other records."""

    texts: Texts
    path: Path
    hashes: OfRecords
    left_out: tuple[str, ...]
    groups: Int[np.ndarray, " n"] | None = None
    label: None = None
    suffix: str = ".jsonl"

    @property
    def name(self) -> str:
        return self.texts.source

    @property
    def copies(self) -> OfRecords:
        """`hashes`: equal texts are copies."""
        return self.hashes

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "content_hash": hash_of([self.hashes.tobytes()]),
            "sha256": file_hash(self.path),
        }

    def refuse_telling(self, written: bool) -> None:
        if written and COLUMN in self.left_out:
            raise InputError(f"{self.name} has a key {COLUMN!r}, {TAKEN}.")

    def as_written(self, sides: Iterable[Rows]) -> "TextSource":
        return self

    def writer(self, rows: Rows, numbers: Int[np.ndarray, " n"] | None) -> Writer:
        def save(file: IO[bytes]) -> None:
            for row in rows.tolist():
                line = {name: value for name, value in self.texts.object(row).items() if name in self.texts.keys}
                if numbers is not None:
                    line[COLUMN] = int(numbers[row])
                file.write(msgspec.json.encode(line) + b"\n")

        return save

    def refuse_changed(self, path: Path, rows: Rows) -> None:
        """Lines are written as they were read."""


def read_text_source(options: DealOptions) -> TextSource:
    """The texts; says on stderr if they, which nobody can leave out, have the groups' values or other names of them."""
    groups, path = options.names_of_groups, expanded(options.data)
    texts = read_told(path)
    digests = [
        hashlib.blake2b(json.dumps(pair).encode(), digest_size=16).digest()
        for pair in zip(texts.prompts, texts.answers, strict=True)
    ]
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


ROWS_AT_ONCE = 4096
SHARED = "which are shared with the records, so they would tell whose each record is"


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
    groups: OfRecords,
    examples: Examples,
    columns: Sequence[str],
    words: Mapping[str, OfRecords],
) -> None:
    """Refuses inputs (`words` by column), labels and names that have values of the groups, which nobody can omit."""
    classes = np.array(examples.class_names)

    def places_in(array: np.ndarray, records: slice | np.ndarray = slice(None), most: bool = True) -> list[int]:
        some = groups[records]
        # Where each record is a group of its own, any column with another value in each would be a name of them.
        shared = most and len(np.unique(some)) < len(some)
        return _columns_with(some, array) or (_other_names(some, array) if shared else [])

    def tells(column: np.ndarray, full: np.ndarray) -> bool:
        # Of few cells each may have another value by chance.
        return full.sum() > 1 and bool(places_in(column[full], full, bool(2 * full.sum() >= len(full))))

    places = places_in(examples.inputs) if examples.inputs.ndim == 2 else []
    gaps = np.isnan(examples.inputs) if examples.gaps else np.zeros((1, 0), bool)
    places += [place for place in np.flatnonzero(gaps.any(axis=0)) if tells(examples.inputs[:, place], ~gaps[:, place])]
    # No word may be the name of a group, too.
    full_cells = {name: ~np.isin(_words(column), MISSING_TEXTS) for name, column in words.items()}
    names = [name for name, column in words.items() if places_in(column) or tells(column, full_cells[name])]
    names += [examples.titles[place] if examples.titles else "" for place in places]
    first = "".join(names[:1])[:40]
    of_labels = np.array_equal(_words(classes[examples.labels]), _words(groups))
    refuse_wrong(
        f"{examples.name}: ",
        (
            f"column {repr(first) if first else f'{min(places, default=0) + 1} of the inputs'} has the values of the "
            "groups row by row, or one value for each group, and would be shared. Leave it out (--drop, of a table), "
            "or give other groups.",
            names,
        ),
        (
            f"its labels are the values of the groups, or other names of them, {SHARED}. Give the right groups.",
            places_in(examples.labels) or of_labels,
        ),
        (
            f"names of its columns are values of the groups, {SHARED}. Name the columns otherwise.",
            _names_in(groups, np.array(columns, str)),
        ),
        (
            f"its class names have values of the groups, {SHARED}. Name the classes or the groups otherwise.",
            _names_in(groups, classes),
        ),
    )


def _columns_with(groups: np.ndarray, array: np.ndarray) -> list[int]:
    """The columns of an array that have the groups' values row by row."""
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
    if array.dtype.kind not in "biufSU":
        return []
    columns = array.reshape(len(array), -1)
    first, numbers = np.unique(groups, return_index=True, return_inverse=True)[1:]
    candidates = np.arange(columns.shape[1])
    for start in range(0, len(columns), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
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

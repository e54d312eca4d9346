"""What a deal left: the sets of a folder by role, a blind challenge with its key, and a model's outputs on these sets.

A model is one thing: a folder with query.*, holdout.*, ...; a .npz with arrays of these names; a table with a column
`set`; or one file of outputs on the query set, or on a blind challenge.

A challenge goes to whoever holds the model. The key stays at home: the row of every record, the hash of every file of
the deal, and a commitment, which can be published before the outputs arrive. A salt from the system's entropy keeps
anybody from trying seeds against the commitment; the order, the names and the numbers of groups are hashes of the salt.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Int
from msgspec import Meta

from jaxaudit.data.examples import Role, Sets
from jaxaudit.data.formats import OF_SETS, TABLES
from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.formats.parsing import decoded_once, parsing
from jaxaudit.data.outputs.form import RECORD as RECORD
from jaxaudit.data.outputs.form import SET, OutputsPlace, titles_of
from jaxaudit.data.outputs.kinds import Kind
from jaxaudit.data.outputs.outputs import Outputs, load_outputs
from jaxaudit.data.paths import exists, open_data, read_small
from jaxaudit.errors import InputError, refuse_wrong
from jaxaudit.json_types import StrictStruct

KEY, CHALLENGE = "key.json", "challenge"
"""The file of the key; the name of the challenge without its ending."""
ENDINGS = (".npz", *TABLES)
"""Of the names of sets and challenge; a table is dealt as tables."""
LARGEST = 64 << 20
"""Bytes of a key: the rows of some eight million records."""
MOST_RECORDS = 10**9
ABOUT = (
    "The commitment is the SHA-256 of this object without the member `commitment`, as JSON in UTF-8 with sorted names "
    "and no blanks. Publish it before the outputs arrive. Keep this file at home until the challenge must be shown."
)

Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
Row = Annotated[int, Meta(ge=0, lt=MOST_RECORDS)]
Rows = Annotated[list[Row], Meta(min_length=1)]


class Key(StrictStruct, frozen=True, kw_only=True):
    """What `key.json` holds: see `ABOUT` for the commitment.

    Attributes:
        salt: 256 random bits. `seed`: of the deal, which tells nothing of what follows from the salt.
        groups: whether the sets have `group`, by which they were dealt. `label`: their column, if it was named.
        files: SHA-256 of every other file of the deal, by its name.
        rows: of each set, the row in the challenge of each of its records, in the order of the set's own file.
    """

    schema: Literal["jaxaudit.challenge/1"] = "jaxaudit.challenge/1"
    about: Annotated[str, Meta(max_length=1000)] = ABOUT
    commitment: Hash | None = None
    salt: Hash
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    groups: bool
    label: Annotated[str, Meta(max_length=1000)] | None = None
    files: Annotated[dict[Annotated[str, Meta(max_length=40)], Hash], Meta(max_length=8)]
    rows: dict[Role, Rows]

    def __post_init__(self) -> None:
        # Decoding turns a ValueError into one that names the field.
        if not {"query", "holdout"} <= self.rows.keys():
            raise ValueError("rows must be of query and holdout")
        rows = [row for rows_of_role in self.rows.values() for row in rows_of_role]
        if not np.array_equal(np.sort(rows), np.arange(len(rows))):
            raise ValueError("rows must have each row of the challenge once")

    def set_file(self, role: Role) -> str:
        names = [f"{role}{ending}" for ending in ENDINGS]
        return next((name for name in names if name in self.files), names[0])

    @property
    def committed(self) -> str:
        """The commitment, computed from everything else."""
        fields = {name: value for name, value in msgspec.to_builtins(self).items() if name != "commitment"}
        return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()

    @property
    def names(self) -> list[str]:
        """The name of the record in each row of the challenge; without the salt nobody can compute it."""
        return record_names(self.salt, sum(map(len, self.rows.values())))


def record_names(salt: str, records: int) -> list[str]:
    """A random name for each row of a challenge, which tells nothing of its set.

    >>> record_names("0" * 64, 2)
    ['r308d0b5be3c1890a', 'r021f8672d5f3519c']
    """
    return [f"r{hashlib.sha256(f'{salt} {row}'.encode()).hexdigest()[:16]}" for row in range(records)]


def record_order(salt: str, records: int) -> Int[np.ndarray, " records"]:
    """Which record stands in each row of a challenge: nobody can compute it without the salt, even with the seed.

    >>> record_order("0" * 64, 5)
    array([0, 1, 4, 3, 2])
    """
    keys = [hashlib.sha256(f"{salt} order {record}".encode()).digest() for record in range(records)]
    return np.array(sorted(range(records), key=keys.__getitem__), int)


def group_numbers(salt: str, groups: int, below: int) -> Int[np.ndarray, " groups"]:
    """Different numbers for groups, which tell as little as `record_order` of which group they are.

    >>> group_numbers("0" * 64, 2, 2**53).tolist()
    [2193160980349017, 4323218929696194]
    """
    numbers = dict[int, None]()
    trial = 0
    while len(numbers) < groups:
        numbers[int.from_bytes(hashlib.sha256(f"{salt} group {trial}".encode()).digest()) % below] = None
        trial += 1
    return np.array([*numbers], int)


def key_as_json(key: Key) -> bytes:
    """The key as JSON, with its commitment."""
    return msgspec.json.encode(msgspec.structs.replace(key, commitment=key.committed)) + b"\n"


def read_key(path: Path) -> Key:
    """The key of a challenge, which must match its commitment."""
    with parsing(f"{path}: is not the key of a challenge", f"give the {KEY} of a blind deal."):
        key = decoded_once(read_small(path, LARGEST), Key)
    if key.commitment != key.committed:
        raise InputError(
            f"{path}: does not match its commitment, so it was changed after the deal; give the {KEY} of a blind deal, "
            "unchanged."
        )
    return key


def check_files(key: Key, folder: Path) -> None:
    """Refuses files beside the key that are not those of its deal; its record and the challenge may be missing."""
    needed = [key.set_file(role) for role in key.rows]
    for name in dict.fromkeys((*needed, *key.files, *(f"{CHALLENGE}{ending}" for ending in ENDINGS))):
        path, exists = folder / name, os.path.lexists(folder / name)
        refuse_wrong(
            f"{path}: ",
            (f"is missing; keep the files of a deal in one folder, beside {KEY}.", name in needed and not exists),
            (
                f"is not the file that {KEY} was written with (its SHA-256 differs): another deal, or changed since "
                "then. Give the key of this deal, or the file as `jaxaudit deal` wrote it.",
                exists and file_hash(path) != key.files.get(name),
            ),
        )


def load_answers(path: Path, key: Key, classes: int | Sequence[str], kind: Kind = "auto") -> Outputs:
    """The outputs on a challenge that a trainer gave back, in the order of the challenge's records. A column of text or
    an array `record` (in a `.npz`) must have the names of these records, each once; it orders the rows.
    """
    names = key.names
    return load_outputs(path, classes, len(names), kind, of=CHALLENGE, records=names)


def answers_of(answers: Outputs, key: Key, role: Role) -> Outputs:
    """The outputs on one set, in the order of its own file."""
    return answers.take(np.array(key.rows[role]))


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with open_data(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


DEAL_RECORD, HOME = "deal.json", "groups.csv"
"""What documents a deal, and what says which records of its source each group has; both stay at home."""
LARGEST_RECORD = 1 << 20


class _Side(msgspec.Struct):
    sha256: str
    file: str = ""


class _Columns(msgspec.Struct, frozen=True):
    label: str | None = None


class _Source(msgspec.Struct, frozen=True):
    columns: _Columns | None = None


class _Facts(msgspec.Struct):
    source: _Source = _Source()
    by_groups: bool = False
    within_groups: bool = False
    query: _Side | None = None
    members: _Side | None = None
    holdout: _Side | None = None


class DealtSide(NamedTuple):
    """A file that is a side (`name`) of a random deal, as the record beside it says, whose SHA-256 is `deal`.
    `has_groups`: its groups are random numbers, and nobody's names.
    """

    name: str
    deal: str
    has_groups: bool


def dealt_side(path: Path) -> DealtSide | None:
    """The side of a deal that a file is; None without a readable record beside it. Another hash is refused."""
    facts, record = _facts(path.parent), path.parent / DEAL_RECORD
    if facts is None or not path.is_file():
        return None
    sides = {name: side for name in ("query", "members", "holdout") if (side := getattr(facts, name))}
    sha256 = file_hash(path)
    for name, side in sides.items():
        if side.sha256 == sha256:
            return DealtSide(name, file_hash(record), facts.by_groups or facts.within_groups)
    if any(side.file == path.name for side in sides.values()):
        raise InputError(
            f"{path}: {DEAL_RECORD} beside it has another SHA-256: it was changed since the deal, or is of another. "
            "Give it as `jaxaudit deal` wrote it, or keep it in a folder of its own."
        )
    return None


def dealt_label(folder: Path, sets: Mapping[Role, Path]) -> str | None:
    """The column with the label of the tables that were dealt into this folder; None if its files need no word. Refuses
    a record of the deal that cannot be read, and a set's file that was changed since, or dealt as another set.
    """
    facts = _facts(folder)
    if (facts is None or facts.query is None) and os.path.lexists(folder / DEAL_RECORD):
        raise InputError(
            f"{folder / DEAL_RECORD}: is not the record of a deal, so the sets cannot be held against it. Give the "
            f"folder as `jaxaudit deal` wrote it; sets of your own have no {DEAL_RECORD} beside them."
        )
    for role, path in sets.items():
        side = dealt_side(path)
        if side is not None and side.name != role:
            raise InputError(
                f"{path}: was dealt as {side.name}, as {DEAL_RECORD} says; name every set as `jaxaudit deal` did."
            )
    return None if facts is None or facts.source.columns is None else facts.source.columns.label


def _facts(folder: Path) -> _Facts | None:
    """What the record of a deal says; None without a readable one."""
    # An `InputError`, msgspec's, and that of bytes that are no UTF-8 are all of this kind.
    with suppress(ValueError, RecursionError):
        if exists(folder / DEAL_RECORD):
            return msgspec.json.decode(read_small(folder / DEAL_RECORD, LARGEST_RECORD), type=_Facts)
    return None


OF_OUTPUTS = (".npz", ".npy", *TABLES)
"""Endings of the files of outputs."""
NAMES = ", ".join(Role)


class NamedSets(NamedTuple):
    """The names or paths of the sets of a folder or of a command line; the column with the label, where the files need
    the word; and the key of a blind challenge.
    """

    names: Sets[str]
    label: str | None = None
    key: Key | None = None


class ModelPlaces(NamedTuple):
    """Where the outputs of one model are, by set; of one file without roles, as of the query set alone."""

    name: str
    places: Sets[OutputsPlace]
    has_roles: bool = True


def open_folder(folder: Path) -> NamedSets:
    """The sets in a folder: query.*, and holdout.*, members.*, calibration.* where there are any. Beside the record or
    the key of a deal they must be its files.
    """
    files = _files_by_role(folder, OF_SETS, "the records in question")
    names = files.map(lambda _, path: str(path))
    if not os.path.lexists(folder / KEY):
        return NamedSets(names, dealt_label(folder, files))
    key = read_key(folder / KEY)
    check_files(key, folder)
    return NamedSets(names, key.label, key)


def model_places(path: Path) -> ModelPlaces:
    """Where a model's outputs are, by the sets that they are on; nothing else may be there."""
    name = path.resolve().name
    if path.is_dir():
        files = _files_by_role(path, OF_OUTPUTS, "a model's outputs on the query set")
        return ModelPlaces(name, files.map(lambda _, file: OutputsPlace(file, model=name)))
    suffix, rows = path.suffix.lower() if path.is_file() else "", 0
    parts: list[str] = []
    if suffix == ".npz":
        parts = NpzArrays(path).names
        parts = parts if {*parts} & {*Role} else []
    elif suffix in TABLES and SET in [title.lower() for title in titles_of(path)]:
        counts = _rows_by_set(path)
        parts, rows = [*counts], counts.total()
    if not parts:
        return ModelPlaces(name, Sets(query=OutputsPlace(path)), has_roles=False)
    further = [part[:40] for part in parts if part not in [*Role]]
    if further or Role.QUERY not in parts:
        trouble = f"has outputs on {further[0]!r}" if further else "has no outputs on the query set (query)"
        raise InputError(f"{name}: {trouble}; a model's outputs by set are called {NAMES}, and nothing else is there.")
    return ModelPlaces(name, Sets(**{part: OutputsPlace(path, part, rows) for part in parts}))


def _files_by_role(folder: Path, endings: tuple[str, ...], of_query: str) -> Sets[Path]:
    """The one file of each role in a folder."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the folder with query.*: {of_query}.")
    files: dict[str, Path] = {}
    for role in Role:
        of_role = [path for path in (folder / f"{role}{ending}" for ending in endings) if os.path.lexists(path)]
        if len(of_role) > 1:
            raise InputError(f"{folder}: has {' and '.join(path.name for path in of_role)}; keep one file of a set.")
        files |= {str(role): path for path in of_role}
    if Role.QUERY not in files:
        names = ", ".join(f"query{ending}" for ending in endings)
        raise InputError(f"{folder}: has none of {names}; name the file of {of_query} so.")
    return Sets(**files)


def _rows_by_set(path: Path) -> Counter[str]:
    """The number of rows of each set in a table with a column `set`."""
    # Imported here because pyarrow takes a tenth of a second.
    from jaxaudit.data.formats.parquet_file import read_text_table

    table = read_text_table(path, lambda title: title.strip().lower() == SET)
    place = [title.strip().lower() for title in table.header].index(SET)
    return Counter(cell.strip().lower() for cell in table.columns[place].to_pylist())

"""What a deal keeps at home: the files tell of no record whose it is, and the key of `--blind` stays.

No message has a value of a group.

What leaves the house is dealt so. `deal` takes its seed from the system's entropy: whoever has the records could repeat
a deal by a default seed. The column that names groups is in no file, nor is any array or key that is another name for
each group, and groups have random numbers. Nothing that can be lost is lost on the way: arrays keep their type, numbers
in text have 64 bits, images the levels of their file, and what a reader would reduce (`load_image_folders`) is refused.
What sets are compared by (`files.comparable`) is made of that when records are judged.
"""

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from jaxtyping import Shaped

from jaxaudit.cli.deal.show import DealSide
from jaxaudit.cli.deal.source import INPUTS
from jaxaudit.data import Examples
from jaxaudit.data.deals import (
    RECORD,
    Key,
    file_hash,
    key_as_json,
    record_names,
    record_order,
    rows_in_order,
)
from jaxaudit.data.examples import Role
from jaxaudit.data.selection import CLASS_NAMES
from jaxaudit.errors import InputError
from jaxaudit.runs.directory import Writer

ROWS = 4096
ADVICE = "which are shared with the records, so they would tell whose each record is"


def arrays_with_values(groups: Shaped[np.ndarray, " n"], arrays: Mapping[str, np.ndarray]) -> list[str]:
    """The names of the arrays that have values of the groups, or tell the groups.

    An array has them if one of its columns has them row by row, as numbers or anywhere in a text (`P-0_slice3.png`); an
    array of texts also if a value that is no number stands in any row. Capitals and blanks around a text do not count.
    It tells the groups if a column of whole numbers or texts is another name of them: one value for each group.
    """
    return [
        name
        for name, array in arrays.items()
        if _columns_with(groups, array) or _names_in(groups, array) or _other_names(groups, array)
    ]


def keys_with_values(
    groups: Sequence[str | int], lines: Iterable[Mapping[str, Any]], *, other_names: bool = True
) -> list[str]:
    """As `arrays_with_values`, of the keys of lines of JSON, whose values are JSON; `other_names` count if asked."""
    words = [str(value).strip().lower() for value in groups]
    names = {word for word in words if _numbers(np.array([word])) is None}
    columns = dict[str, list[str | None]]()
    for row, line in enumerate(lines):
        for key, value in line.items():
            column = columns.setdefault(key, [])
            column += [None] * (row - len(column))
            column.append(_as_text(bytes(value)))

    def tells(column: list[str | None]) -> bool:
        pairs_there = [(word, text) for word, text in zip(words, column, strict=False) if text is not None]
        if all(_within(word, text) for word, text in pairs_there) or any(text in names for _, text in pairs_there):
            return True
        pairs = set(pairs_there)
        return (
            other_names
            and len(pairs_there) == len(words)
            and len(pairs) == len(set(words)) == len({text for _, text in pairs})
        )

    return [key for key, column in columns.items() if tells(column)]


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

    def places_in(array: np.ndarray) -> list[int]:
        return _columns_with(groups, array) or (_other_names(groups, array) if shared else [])

    places = places_in(examples.inputs) if examples.inputs.ndim == 2 else []
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
        int(place) for place, one, column in zip(candidates, whole, values.T, strict=True) if one and _differ(column)
    ]


def _differ(values: np.ndarray) -> bool:
    return len(np.unique(values)) == len(values)


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
    return challenge_file, rows_in_order(order, {Role(name): side.rows for name, side in sides.items()})


def home_writer(numbers: Sequence[int]) -> Writer:
    """A function that writes the way from a group's random number, one a record, back to its records in the source.

    Records are counted from 1, in the order of the source. Two people who share a copy are one group: all of its
    records are there, so that nobody is taken for another one.
    """
    records = dict[int, list[int]]()
    for record, number in enumerate(numbers, 1):
        records.setdefault(number, []).append(record)

    def save(file: IO[bytes]) -> None:
        rows = (f"{number},{' '.join(map(str, places))}\n" for number, places in records.items())
        file.write("".join(("group,records\n", *rows)).encode())

    return save


def new_salt() -> str:
    """256 bits of the system's entropy, whatever the seed: from a commitment nobody can find a seed by trying."""
    return secrets.token_hex(32)


def key_writer(
    out: Path, names: list[str], salt: str, seed: int, whole: bool, rows: dict[Role, list[int]], label: str | None
) -> Writer:
    """A function that writes the key of a blind deal, the private file that says which record is in which role.

    The files `names` in `out` must be written before: the key has their hashes. `whole` says whether groups were dealt
    whole, and `label` is the column with the label, if it had to be named.
    """

    def save(file: IO[bytes]) -> None:
        files = {name: file_hash(out / name) for name in names}
        file.write(key_as_json(Key(salt=salt, seed=seed, groups=whole, label=label, files=files, rows=rows)))

    return save

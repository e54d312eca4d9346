"""Labels in any stored form as `int32` indices and class names; and the values of groups, an integer or text a record.

Of the values of groups none is lost, and no two become one. No message contains a group's value.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence, Sized
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from jaxaudit.errors import InputError, few, refuse_wrong

INDEX_NAMES = ("", "index", "id", "row", "unnamed: 0")
"""What a column that numbers the rows is called, in small letters."""


def counting(numbers: np.ndarray) -> bool:
    """Whether these are 0, 1, 2, ... or 1, 2, 3, ..., but for NaN in some places."""
    away = (numbers - np.arange(len(numbers)))[~np.isnan(numbers)]
    return len(away) > 0 and away[0] in (0, 1) and bool((away == away[0]).all())


def as_number(cell: str) -> float:
    """The number that a cell writes, as `float` reads it; `1_0` is none, which Python takes for 10."""
    if "_" in cell:
        raise ValueError("no number")
    return float(cell)


MOST_CLASSES = 100_000
LONGEST_NAME = 1_000


def flat(values: np.ndarray) -> np.ndarray:
    """An array of one column as an array of one axis; any other one as it is."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def split_as(values: np.ndarray, parts: Iterable[Sized]) -> list[np.ndarray]:
    """The values of several parts, one after another, part by part."""
    return np.split(values, np.cumsum([len(part) for part in parts])[:-1])


def longer_than(values: np.ndarray, characters: int) -> bool:
    """Whether an array has cells for texts of more characters."""
    return values.dtype.kind == "U" and values.dtype.itemsize > 4 * characters


def encode_labels(
    labels: np.ndarray, class_names: Sequence[str] | None, source: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """`int32[n]` class indices and the class names.

    | labels | class names |
    |---|---|
    | `class_names` given | these; number k is the k-th of them from 0 |
    | whole numbers, smallest 0 | "0".."largest", classes without a record included |
    | other whole numbers (1..30, -1/+1) | the distinct numbers in ascending order |
    | text | the distinct texts in sorted order |

    Whole numbers may be stored as floats, as booleans or as text; `[n, 1]` is `[n]`.

    >>> encode_labels(np.array([2, 1, 3]), None, "y")
    (array([1, 0, 2], dtype=int32), ('1', '2', '3'))
    """
    values = flat(np.asarray(labels))
    numbers = _numbers_in_text(values) if values.dtype.kind == "U" and values.ndim == 1 else None
    is_text = values.dtype.kind == "U" and numbers is None
    refuse_wrong(
        f"{source}: ",
        ("there are no labels; is the file empty.", not values.size),
        (
            f"labels are texts of more than {LONGEST_NAME} characters, no class names.",
            longer_than(values, LONGEST_NAME),
        ),
        (f"labels have shape {np.shape(labels)}; give one for each record, labels.argmax(axis=1).", values.ndim != 1),
        ("labels are texts, which name their classes; leave the class names out.", is_text and class_names is not None),
        (f"labels are of type {values.dtype}; give whole numbers or text.", values.dtype.kind not in "Ubuif"),
    )
    if is_text:
        names, codes = np.unique(values, return_inverse=True)
        return codes.astype(np.int32), tuple(names.tolist())
    values = values if numbers is None else numbers
    # From here on no type overflows.
    sizes = values.astype(np.float64)
    least, most = (1 - MOST_CLASSES, MOST_CLASSES - 1) if class_names is None else (0, len(class_names) - 1)
    for trouble, rows in (
        ("is no whole number; is this column a measurement rather than a class?", sizes != np.rint(sizes)),
        (f"is not from {least:,} to {most:,}; is it an identifier?", ~((sizes >= least) & (sizes <= most))),
    ):
        if rows.any():
            raise InputError(
                f"{source}: labels are whole numbers, from 0 where classes are named, or text, but that of record "
                f"{np.flatnonzero(rows)[0]} {trouble}"
            )
    codes = values.astype(np.int32)
    if class_names is not None:
        return codes, tuple(map(str, class_names))
    if codes.min() == 0:
        return codes, tuple(map(str, range(int(codes.max()) + 1)))
    names, codes = np.unique(codes, return_inverse=True)
    return codes.astype(np.int32), tuple(map(str, names.tolist()))


def _numbers_in_text(values: np.ndarray) -> np.ndarray | None:
    if (np.char.find(values, "_") >= 0).any():  # Python takes 1_0 for 10
        return None
    try:
        numbers = values.astype(np.float64)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


COLUMN = "group"
"""The column of a table that holds the groups, and the key of the files that `jaxaudit deal` writes."""
LONGEST = 200
MISSING = (
    *("", "?", "-", "--", ".", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nan", "nat", "nil", "none", "null"),
    *("(null)", "\\n", "missing", "(missing)", "undefined", "unknown"),
)
"""Texts, in small letters, that tables have in place of a value."""
EXACT = 2**53
"""From here on, a float stands for several whole numbers."""
SMALLEST_DEALT = 2.0**40
"""The largest number of a deal's groups is smaller once in 8,000 files with one group, and never with several."""
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?")


def are_dealt(values: Shaped[np.ndarray, " n"]) -> bool:
    """Whether these may be the random numbers of a deal's groups: whole, below 2^53, the largest of them large.

    Other values of the same name, such as classes or years, hardly ever are like that.

    >>> are_dealt(np.array([1995, 2001])), are_dealt(np.array([7, 2**52 + 1]))
    (False, True)
    """
    with suppress(ValueError):
        values = values.astype(float) if values.dtype.kind == "U" else values
    if values.dtype.kind not in "iuf" or not len(values) or not (values == np.rint(values)).all():
        return False
    return bool(values.min() >= 0 and SMALLEST_DEALT <= values.max() < EXACT)


def number_groups(values: Shaped[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Equal values as equal numbers, from 0 in the order in which they first occur.

    >>> number_groups(np.array([7, 3, 7, 5]))
    array([0, 1, 0, 2])
    """
    _, first, indices = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[indices]


def join_groups(values: Sequence[Shaped[np.ndarray, " _"]]) -> Int[np.ndarray, " n"]:
    """The groups of several sets, set after set, as `number_groups`; integers are as texts beside texts."""
    if len({values_of_set.dtype.kind for values_of_set in values}) > 1:
        values = [values_of_set.astype(str) for values_of_set in values]
    return number_groups(np.concatenate(values))


_BELOW = re.compile(r"-(\d{2,}|[2-9])")


def checked_groups(values: np.ndarray, of: str, rows: Int[np.ndarray, " n"] | None = None) -> np.ndarray:
    """The group of each record of the set `of`, checked; messages count from 1, or by their `rows` in a file."""
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "iuU" or longer_than(values, LONGEST):
        raise InputError(
            f"the groups of the {of} are {values.dtype} of shape {values.shape}; give one integer, or text of up to "
            f"{LONGEST} characters, per record."
        )
    if values.dtype.kind == "U":
        words = np.char.lower(np.char.strip(values))
        without = (np.arange(len(words)) if rows is None else rows)[np.isin(words, MISSING)]
        if len(without):
            raise InputError(
                f"{len(without)} records of the {of} have no group (empty, null, NaN, unknown, a dash or the like; "
                f"rows {few(without + 1)}); give each a group of its own, or leave them out. If it is a group, give it "
                "another name."
            )
        _refuse_alike(words, of)
    _refuse_without_code(values, of)
    return values


def _refuse_without_code(values: np.ndarray, of: str) -> None:
    """Refuses -1 as pandas has it for no group: beside numbers from 0, but not -2, nor as one of -1 and 1."""
    distinct, counts = np.unique(values, return_counts=True)
    plain = list(map(_plain, distinct.astype(str).tolist()))
    coded = sum(count for word, count in zip(plain, counts.tolist(), strict=True) if word == "-1")
    if coded < 2 or {*plain} <= {"-1", "1"} or any(map(_BELOW.fullmatch, plain)):
        return
    raise InputError(
        f"the groups of the {of} have {coded} records of group -1, as pandas and clusterings number records "
        "without a group; give each a group of its own, or leave them out. If it is a group, give it another number."
    )


def group_values(values: Any, rows: Int[np.ndarray, " some"], of: str) -> Shaped[np.ndarray, " some"]:
    """The groups of these rows, integers or short texts, from a column of any origin, such as JSON or a data frame."""
    array = values if isinstance(values, np.ndarray) else getattr(values, "values", values)
    if isinstance(array, np.ndarray) and array.dtype.kind in "iuU":
        return checked_groups(array[rows], of, rows)
    whole = list(array)
    cells = [whole[row] for row in rows.tolist()]
    numbers = [cell for cell in cells if isinstance(cell, float | np.floating) and np.isfinite(cell)]
    # Whatever stands for no value, such as None or pandas' NA, is a text that counts as missing.
    texts = [str(cell)[: LONGEST + 1] for cell in cells]
    pairs = {(text, isinstance(cell, str)) for text, cell in zip(texts, cells, strict=True)}
    if any(number != np.floor(number) for number in numbers) or len(pairs) > len({*texts}):
        raise InputError(
            f"the groups of the {of} are fractions, or numbers and texts that look alike, as 1 and '1'; give one "
            "integer, or one text, for each record."
        )
    return checked_groups(np.array(texts, str), of, rows)


def _refuse_alike(words: Shaped[np.ndarray, " n"], of: str) -> None:
    """Refuses numbers that were floats, and groups that are one to a reader and two to a computer, as 7 and 007."""
    distinct = np.unique(words).tolist()
    numbers = distinct if all(map(_FLOAT.fullmatch, distinct)) else []
    alike = len(distinct) - len(set(map(_plain, distinct)))
    refuse_wrong(
        f"the groups of the {of} ",
        (
            "are floating-point numbers of 2**53 or more, or with an exponent, such as 1.23E+11, so several groups may "
            "have been rounded to one; write them as integers, or with a letter.",
            any("e" in word or ("." in word and abs(float(word)) >= EXACT) for word in numbers),
        ),
        (
            f"have {alike} pairs that look alike, such as 7 and 007, 7 and 7.0, or texts that differ in blanks or in "
            "how a computer writes their accents; write each group in one way. If they are different groups, put a "
            "letter before their numbers.",
            alike,
        ),
    )


def _plain(word: str) -> str:
    """A text in the one form of its characters and blanks, a whole number without zeros around it."""
    text = " ".join(unicodedata.normalize("NFC", word).split())
    number = re.fullmatch(r"\+?(-?)0*(\d+?)(?:\.0*)?", text)
    return number[1] + number[2] if number else text

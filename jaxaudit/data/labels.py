"""Labels in any stored form as `int32` indices and class names; and the values of groups, an integer or text a record.

Of the values of groups none is lost, and no two become one. No message contains a group's value.
Besides, cells that are numbers, and columns that number the rows.
"""

import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from jaxaudit.errors import InputError

INDEX_NAMES = ("", "index", "id", "row", "unnamed: 0")
"""What a column that numbers the rows is called, in small letters."""


def counting(numbers: np.ndarray) -> bool:
    """Whether these are 0, 1, 2, ... or 1, 2, 3, ..."""
    return len(numbers) > 0 and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())


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


def as_text(values: np.ndarray) -> np.ndarray:
    """An array of bytes as text; any other one as it is."""
    return np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values


def longer_than(values: np.ndarray, characters: int) -> bool:
    """Whether an array has cells for texts of more characters."""
    return values.dtype.kind in "SU" and values.dtype.itemsize > characters * (4 if values.dtype.kind == "U" else 1)


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
    if values.size == 0:
        raise InputError(f"{source}: there are no labels. Is the file empty?")
    if longer_than(values, LONGEST_NAME):
        raise InputError(f"{source}: labels are texts of more than {LONGEST_NAME} characters: no class names.")
    if values.ndim != 1:
        raise InputError(
            f"{source}: labels have shape {np.shape(labels)}; give one label for each record, of one-hot rows "
            "labels.argmax(axis=1)."
        )
    values = as_text(values)
    if values.dtype.kind == "U":
        numbers = _numbers_in_text(values)
        if numbers is None and class_names is not None:
            raise InputError(f"{source}: labels are texts, which name their classes; leave the class names out.")
        if numbers is None:
            names, codes = np.unique(values, return_inverse=True)
            return codes.astype(np.int32), tuple(names.tolist())
        values = numbers
    numbers = _whole(values, source)
    if class_names is not None:
        outside = np.flatnonzero((numbers < 0) | (numbers >= len(class_names)))
        if len(outside):
            raise InputError(
                f"{source}: {len(outside)} labels are outside the {len(class_names)} named classes (first: record "
                f"{outside[0]}); labels start at 0."
            )
        return numbers.astype(np.int32), tuple(map(str, class_names))
    if numbers.max() >= MOST_CLASSES or numbers.min() <= -MOST_CLASSES:
        raise InputError(
            f"{source}: labels are {MOST_CLASSES:,} or more away from 0; they look like identifiers, not classes."
        )
    if numbers.min() == 0:
        return numbers.astype(np.int32), tuple(map(str, range(int(numbers.max()) + 1)))
    names, codes = np.unique(numbers, return_inverse=True)
    return codes.astype(np.int32), tuple(map(str, names.tolist()))


def _numbers_in_text(values: np.ndarray) -> np.ndarray | None:
    if (np.char.find(values, "_") >= 0).any():  # Python takes 1_0 for 10
        return None
    try:
        numbers = values.astype(np.float64)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _whole(values: np.ndarray, source: str) -> np.ndarray:
    if values.dtype.kind not in "buif":
        raise InputError(f"{source}: labels are of type {values.dtype}; give whole numbers or text.")
    if values.dtype.kind == "f":
        broken = np.flatnonzero(~np.isfinite(values) | (values != np.rint(values)))
        if len(broken):
            raise InputError(
                f"{source}: labels must be whole numbers or text, but that of record {broken[0]} is not; is this "
                "column a measurement rather than a class?"
            )
        # Beyond this a float no longer tells neighbouring whole numbers apart; it is no class either.
        values = values.astype(np.float64).clip(-(2.0**53), 2.0**53)
    elif values.dtype.kind == "u":
        values = values.clip(max=np.iinfo(np.int64).max)
    return values.astype(np.int64)


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
_BELOW = re.compile(r"-(\d{2,}|[2-9])")
_SCIENTIFIC = re.compile(r"[+-]?\d(?:\.(\d+))?e\+?(\d+)")


def are_dealt(values: Shaped[np.ndarray, " n"]) -> bool:
    """Whether these may be the random numbers of a deal's groups: whole, below 2^53, the largest of them large.

    Other values of the same name, such as classes or years, hardly ever are like that.

    >>> are_dealt(np.array([1995, 2001])), are_dealt(np.array([7, 2**52 + 1]))
    (False, True)
    """
    with suppress(ValueError):
        values = values.astype(float) if values.dtype.kind in "SU" else values
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


def checked_groups(values: np.ndarray, of: str, rows: Int[np.ndarray, " n"] | None = None) -> np.ndarray:
    """The group of each record of the set `of`: one integer or short text per record.

    Messages count records from 1, or by their `rows` in a file, which count from 0.
    """
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "iuSU":
        raise InputError(
            f"the groups of the {of} are {values.dtype} of shape {values.shape}; give one integer or text per record."
        )
    if longer_than(values, LONGEST):
        raise InputError(f"the groups of the {of} are texts of more than {LONGEST} characters; give short names.")
    if values.dtype.kind == "S":
        # Other bytes stay other texts.
        values = np.char.decode(values, "utf-8", "backslashreplace")
    if values.dtype.kind == "U":
        words = np.char.lower(np.char.strip(values))
        _refuse_without((np.arange(len(words)) if rows is None else rows)[np.isin(words, MISSING)], of)
        _refuse_rounded(words, of)
        _refuse_alike(words, of)
    _refuse_without_code(values, of)
    return values


def group_values(values: Any, rows: Int[np.ndarray, " some"], of: str) -> Shaped[np.ndarray, " some"]:
    """The groups of these rows, integers or short texts, from a column of any origin, such as JSON or a data frame.

    Whole numbers keep all digits: floats that may have lost some are refused, as are records without a group.
    """
    array = values if isinstance(values, np.ndarray) else getattr(values, "values", values)
    if not isinstance(array, np.ndarray) or array.dtype.kind == "O":
        cells = list(array)
        longest = max((len(cell) for cell in cells if isinstance(cell, str)), default=0)
        if longest > LONGEST:
            raise InputError(f"the groups of the {of} are texts of more than {LONGEST} characters; give short names.")
        chosen = [cells[row] for row in rows]
        _refuse_without(rows[np.array(list(map(_is_missing, chosen)), bool)], of)
        array = _as_array(chosen, of)
    else:
        array = array[rows]
    if array.dtype.kind == "f":
        _refuse_without(rows[np.isnan(array)], of)
        if not (np.isfinite(array).all() and (array == np.floor(array)).all()):
            raise InputError(f"the groups of the {of} are fractions; give one integer or text per record.")
        if (np.abs(array) >= EXACT).any():
            raise _rounded(of)
        array = array.astype(np.int64)
    return checked_groups(array, of, rows)


def _as_array(cells: list[Any], of: str) -> np.ndarray:
    """Integers as integers, however large, floats as floats, and else the cells as texts."""
    kinds = {type(cell) for cell in cells}
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        small = all(-(2**63) <= cell < 2**63 for cell in cells)
        return np.array(cells, np.int64) if small else np.array(list(map(str, cells)))
    if all(issubclass(kind, int | float | np.number) and kind is not bool for kind in kinds):
        if any(isinstance(cell, int | np.integer) and abs(int(cell)) >= EXACT for cell in cells):
            raise _rounded(of)
        return np.array(cells, np.float64)
    texts = list(map(str, cells))
    if len(set(texts)) < len(set(cells)):
        raise InputError(f"the groups of the {of} are numbers and texts that look alike, as 1 and '1'; give one kind.")
    return np.array(texts)


def _is_missing(cell: Any) -> bool:
    # pandas' own values for it are not equal to anything, and are no truth values either.
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or bool(cell != cell)


def _refuse_without(rows: Int[np.ndarray, " some"], of: str) -> None:
    """Refuses records without a group: together they would be one."""
    if len(rows):
        listed = ", ".join(map(str, rows[:5] + 1)) + (", ..." if len(rows) > 5 else "")
        raise InputError(
            f"{len(rows)} records of the {of} have no group (empty, null, NaN, unknown, a dash or the like; rows "
            f"{listed}); give each a group of its own, or leave them out. If it is a group, give it another name."
        )


def _refuse_without_code(values: np.ndarray, of: str) -> None:
    """Refuses -1 beside numbers from 0: pandas' codes and clusterings have it for records without a group.

    Beside -2, or as one of the two groups -1 and 1, it is a number like any other.
    """
    distinct = set(np.unique(values).astype(str).tolist())
    coded = values == "-1" if values.dtype.kind == "U" else values == -1
    if coded.sum() < 2 or distinct <= {"-1", "1", "+1"} or any(_BELOW.fullmatch(value) for value in distinct):
        return
    raise InputError(
        f"the groups of the {of} have {int(coded.sum())} records of group -1, as pandas and clusterings number records "
        "without a group; give each a group of its own, or leave them out. If it is a group, give it another number."
    )


def _refuse_rounded(words: np.ndarray, of: str) -> None:
    """Refuses numbers that were floats: from 2**53 on, different numbers may have become the same."""
    matches = list(map(_SCIENTIFIC.fullmatch, words.tolist()))
    if matches and all(matches) and any(match and int(match[2]) > len(match[1] or "") > 0 for match in matches):
        raise _rounded(of)
    floats = [word for word in words.tolist() if "." in word or "e" in word]
    if floats and all(map(_FLOAT.fullmatch, words.tolist())) and any(abs(float(word)) >= EXACT for word in floats):
        raise _rounded(of)


def _refuse_alike(words: Shaped[np.ndarray, " n"], of: str) -> None:
    """Refuses groups that are one to a reader and two to a computer: 7, 007 and 7.0, or texts apart in their blanks."""
    distinct = np.unique(words).tolist()
    plain = {_plain(word) for word in distinct}
    if len(plain) < len(distinct):
        raise InputError(
            f"the groups of the {of} have {len(distinct) - len(plain)} pairs that look alike, such as 7 and 007, 7 and "
            "7.0, or texts that differ in blanks or in how a computer writes their accents; write each group in one "
            "way. If they are different groups, put a letter before their numbers."
        )


def _plain(word: str) -> str:
    """A text in the one form of its characters and blanks, a whole number without zeros around it."""
    text = " ".join(unicodedata.normalize("NFC", word).split())
    number = re.fullmatch(r"\+?(-?)0*(\d+?)(?:\.0*)?", text)
    return number[1] + number[2] if number else text


def _rounded(of: str) -> InputError:
    return InputError(
        f"the groups of the {of} are floating-point numbers of 2**53 or more, or large numbers with few digits, such "
        "as 1.23E+11, so several groups may have been rounded to one; write them as integers or texts."
    )

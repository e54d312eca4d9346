"""What of records would tell whose they are, if they were shared: values of groups, or other names of them."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
import numpy as np
from jaxtyping import Shaped

from jaxaudit.data import Examples
from jaxaudit.data.texts import Texts
from jaxaudit.errors import InputError

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
    """Refuses inputs (`words` by column), labels and names that have values of the groups, which nobody can omit."""
    classes = np.array(examples.class_names)

    def places_in(array: np.ndarray, records: slice | np.ndarray = slice(None), most: bool = True) -> list[int]:
        some = groups[records]
        # Where each record is a group of its own, any column with another value in each would be a name of them.
        shared = most and len(np.unique(some)) < len(some)
        return _columns_with(some, array) or (_other_names(some, array) if shared else [])

    places = places_in(examples.inputs) if examples.inputs.ndim == 2 else []
    for place in np.flatnonzero(np.isnan(examples.inputs).any(axis=0)) if examples.gaps else ():
        full = ~np.isnan(examples.inputs[:, place])
        # Of few cells each may have another value by chance.
        cells, most = examples.inputs[full, place], bool(2 * full.sum() >= len(full))
        places += [place] if full.sum() > 1 and places_in(cells, full, most) else []
    names = [name for name, column in words.items() if places_in(column)]
    names += [examples.titles[place] if examples.titles else "" for place in places]
    first = "".join(names[:1])[:40]
    of_labels = np.array_equal(_words(classes[examples.labels]), _words(groups))
    for trouble, wrong in (
        (
            f"column {repr(first) if first else f'{min(places, default=0) + 1} of the inputs'} has the values of the "
            "groups row by row, or one value for each group, and would be shared. Leave it out (--drop, of a table), "
            "or give other groups",
            names,
        ),
        (
            f"its labels are the values of the groups, or other names of them, {ADVICE}. Give the right groups",
            places_in(examples.labels) or of_labels,
        ),
        (
            f"names of its columns are values of the groups, {ADVICE}. Name the columns otherwise",
            _names_in(groups, np.array(columns, str)),
        ),
        (
            f"its class names have values of the groups, {ADVICE}. Name the classes or the groups otherwise",
            _names_in(groups, classes),
        ),
    ):
        if wrong:
            raise InputError(f"{examples.name}: {trouble}.")


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

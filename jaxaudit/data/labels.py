"""Converts labels in any stored form to `int32` indices and class names."""

from collections.abc import Sequence

import numpy as np

from jaxaudit.errors import InputError

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
    | `class_names` given | these; number k is the k-th of them from 0, text is looked up |
    | whole numbers, smallest 0 | "0".."largest", classes without a record included |
    | other whole numbers (1..30, -1/+1) | the distinct numbers in ascending order |
    | text | the distinct texts in sorted order |
    | one-hot `[n, k]` | "0".."k-1" |

    Whole numbers may be stored as floats, as booleans or as text; `[n, 1]` is `[n]`.

    >>> encode_labels(np.array([2, 1, 3]), None, "y")
    (array([1, 0, 2], dtype=int32), ('1', '2', '3'))
    """
    values = flat(np.asarray(labels))
    if values.size == 0:
        raise InputError(f"{source}: there are no labels. Is the file empty?")
    if longer_than(values, LONGEST_NAME):
        raise InputError(f"{source}: labels are texts of more than {LONGEST_NAME} characters: no class names.")
    if values.ndim == 2 and values.dtype.kind in "buif":
        columns, values = values.shape[1], _from_one_hot(values, source)
        class_names = class_names or [str(k) for k in range(columns)]
    if values.ndim != 1:
        raise InputError(f"{source}: labels have shape {np.shape(labels)}; give one label for each record.")
    values = as_text(values)
    if values.dtype.kind == "U":
        if class_names is not None:
            return _look_up(values, class_names, source)
        numbers = _numbers_in_text(values)
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


def _from_one_hot(values: np.ndarray, source: str) -> np.ndarray:
    if values.shape[1] > MOST_CLASSES:
        raise InputError(f"{source}: labels have shape {values.shape}; there are at most {MOST_CLASSES:,} classes.")
    wrong = np.flatnonzero(~(((values == 0) | (values == 1)).all(axis=1) & ((values == 1).sum(axis=1) == 1)))
    if len(wrong):
        raise InputError(
            f"{source}: labels have shape {values.shape} but are not one-hot (first: record {wrong[0]}); give one "
            "class for each record, as a number or as one 1 among zeros."
        )
    return values.argmax(axis=1)


def _look_up(values: np.ndarray, class_names: Sequence[str], source: str) -> tuple[np.ndarray, tuple[str, ...]]:
    index = {name: i for i, name in enumerate(class_names)}
    distinct, codes = np.unique(values, return_inverse=True)
    unknown = [name for name in distinct.tolist() if name not in index]
    if unknown:
        first = int(np.argmax(values == unknown[0]))
        raise InputError(
            f"{source}: {len(unknown)} of the different labels (first: record {first}) are not among the class names; "
            "add or correct them."
        )
    table = np.array([index[name] for name in distinct.tolist()], np.int32)
    return table[codes], tuple(class_names)


def _numbers_in_text(values: np.ndarray) -> np.ndarray | None:
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

"""Finds the inputs and labels of each split among the arrays of a .npz file or of a folder of .npy files."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from jaxaudit.data.selection import SPLITS
from jaxaudit.errors import InputError

INPUT_NAMES = {"x", "images", "image", "inputs", "input", "data", "features"}
LABEL_NAMES = {"y", "labels", "label", "targets", "target"}
CLASS_NAMES = ("class_names", "classes", "label_names")


class Pair(NamedTuple):
    """The names of two arrays that belong together."""

    inputs: str
    labels: str


def role_of(name: str) -> tuple[str | None, str] | None:
    """(split, "inputs" or "labels") for a usual array name, None for any other.

    >>> role_of("X_train"), role_of("test_labels"), role_of("y"), role_of("index_in_train")
    (('train', 'inputs'), ('test', 'labels'), (None, 'labels'), None)
    """
    splits, others = _words(name)
    if len(splits) > 1 or len(others) != 1 or others[0] not in INPUT_NAMES | LABEL_NAMES:
        return None
    return (splits[0] if splits else None), ("inputs" if others[0] in INPUT_NAMES else "labels")


def named_in(names: Iterable[str], key: str, split: str | None) -> str | None:
    """The array in `names` called `key` in this split, matched as inputs and labels are; None if there is none.

    >>> named_in(["x_train", "patient_test", "train_patient"], "patient", "train")
    'train_patient'
    """
    splits, others = _words(key)
    wanted = [] if split is None else [split]
    return next((name for name in names if splits in ([], wanted) and _words(name) == (wanted, others)), None)


def _words(name: str) -> tuple[list[str], list[str]]:
    words = re.split(r"[_\-. ]", name.lower())
    return [SPLITS[word] for word in words if word in SPLITS], [word for word in words if word not in SPLITS]


def find_pairs(names: Iterable[str], source: str) -> dict[str | None, Pair]:
    """The pair of array names of each split; split None for arrays whose names mention no split.

    Raises:
        InputError: when there is no pair, half a pair, or two arrays for one role.
    """
    names = list(names)
    names_of: dict[tuple[str | None, str], str] = {}
    for name in names:
        found = role_of(name)
        if found is not None and names_of.setdefault(found, name) != name:
            raise InputError(f"{source}: {names_of[found]!r} and {name!r} could both be the {found[1]}; keep one.")
    pairs: dict[str | None, Pair] = {}
    for split, name in ((split, name) for (split, role), name in names_of.items() if role == "inputs"):
        if (split, "labels") not in names_of:
            raise InputError(
                f"{source}: {name!r} has no labels beside it; add them under the matching name (y, train_labels, ...)."
            )
        pairs[split] = Pair(name, names_of[split, "labels"])
    if not pairs:
        raise InputError(
            f"{source}: found no inputs and labels among {', '.join(map(repr, names[:10])) or 'no arrays'}; name them "
            "x and y, images and labels or inputs and labels, with train or test in front if there are splits."
        )
    return pairs

"""Brings the classes of two data sets into one order."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _with_records(examples: Examples) -> set[str]:
    return {examples.class_names[k] for k in np.unique(examples.labels)}


def align_classes(query: Examples, other: Examples) -> Examples:
    """`other` with its labels in the class order of `query`, matched by class name.

    Guarantees: same records in the same order, the `class_names` of `query`, and every class with a record in one set
    has a record in the other. Names without a record on either side are ignored.

    Raises:
        InputError: a class has records in only one of the sets, or is named in only one of them.

    >>> query = Examples(np.zeros((2, 1)), np.array([0, 1]), ("cat", "dog"), "query")
    >>> other = Examples(np.zeros((3, 1)), np.array([0, 1, 1]), ("dog", "cat"), "other")
    >>> align_classes(query, other).labels
    array([1, 0, 0], dtype=int32)
    """
    own_names, other_names = _with_records(query), _with_records(other)
    missing = [name for name in query.class_names if name in own_names - other_names]
    unshared = [name for name in other.class_names if name in other_names - own_names]
    if any(name not in other.class_names for name in missing):
        also = f" and only {other.name} has {_some(unshared)}" if unshared else ""
        raise InputError(
            f"the classes of {query.name} and {other.name} differ: only {query.name} has {_some(missing)}{also}; use "
            "the same class names in both (folder names, text labels, or an array class_names in the .npz)."
        )
    if missing:
        raise InputError(
            f"{other.name} has no record of class {_some(missing)}, which {query.name} has: its confidence cannot be "
            "calibrated; add records of that class, or leave it out of the query set."
        )
    if unshared:
        raise InputError(
            f"{other.name} has records of class {_some(unshared)}, but {query.name} has none; use `drop_unshared` to "
            "leave them out of the calibration set."
        )
    return _reordered(query, other)


def _reordered(query: Examples, other: Examples) -> Examples:
    """`other` with the classes of `query`, which lacks only names without a record."""
    index = {name: k for k, name in enumerate(query.class_names)}
    table = np.array([index.get(name, -1) for name in other.class_names], np.int32)
    return replace(other, labels=table[other.labels], class_names=query.class_names)


def drop_unshared(query: Examples, calibration: Examples) -> Examples:
    """`calibration` without the records of classes that `query` has no record of, in the class order of `query`.

    Raises:
        InputError: when a class of `query` has no calibration record, or no class is shared at all.
    """
    shared = _with_records(query)
    keep = np.array([name in shared for name in calibration.class_names])[calibration.labels]
    if not keep.any():
        raise InputError(
            f"{calibration.name} and {query.name} share no class: {query.name} has "
            f"{_some(query.class_names)}, {calibration.name} has {_some(calibration.class_names)}; use the "
            "same class names in both."
        )
    return align_classes(query, calibration.take(np.flatnonzero(keep)))


def align_target_data(query: Examples, other: Examples) -> Examples:
    """`other` with the class names of `query`, to simulate a target's training set.

    Classes are matched by name if the query set knows every name. If it knows none, class k is matched with class k:
    the data are from another domain (CIFAR-10 for digits, as in Table 1 of Liu & Tsaftaris 2020), and only the number
    of outputs must suffice.

    Raises:
        InputError: the query set knows only some of the names, or none and `other` has more classes.

    >>> query = Examples(np.zeros((2, 1)), np.array([0, 1]), ("cat", "dog"), "query")
    >>> named = Examples(np.zeros((1, 1)), np.array([0]), ("dog", "cat"), "named")
    >>> foreign = Examples(np.zeros((1, 1)), np.array([0]), ("ship", "plane"), "foreign")
    >>> align_target_data(query, named).labels, align_target_data(query, foreign).labels
    (array([1], dtype=int32), array([0], dtype=int32))
    """
    class_names = set(query.class_names)
    strange = [name for name in other.class_names if name not in class_names]
    if not strange:
        return _reordered(query, other)
    if len(strange) < len(other.class_names):
        raise InputError(
            f"{other.name} shares some classes with {query.name} but not {_some(strange)}: their outputs "
            "are unknown; rename or leave out these classes."
        )
    if len(other.class_names) > len(query.class_names):
        raise InputError(
            f"{other.name} has {len(other.class_names)} classes, but {query.name} only {len(query.class_names)}: a "
            "model with the query set's outputs cannot learn it; choose data with at most as many classes."
        )
    return replace(other, class_names=query.class_names)

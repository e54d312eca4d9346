"""One class order for two data sets."""

from jaxaudit.data.examples import Examples


def align_classes(query: Examples, other: Examples) -> Examples:
    """`other` with its labels in the class order of `query`, matched by class name."""
    raise NotImplementedError


def drop_unshared(query: Examples, calibration: Examples) -> Examples:
    """`calibration` without the records of classes that have no record in `query`, in `query`'s class order."""
    raise NotImplementedError


def align_by_index(query: Examples, other: Examples) -> Examples:
    """`other` with `query`'s class names, class k standing for class k: for out-of-domain target data."""
    raise NotImplementedError

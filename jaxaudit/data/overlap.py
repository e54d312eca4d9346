"""Records that occur both in the query set and in the calibration set: the method needs that there be none."""

from typing import NamedTuple

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError


class Overlap(NamedTuple):
    """Which calibration records equal a query record.

    Attributes:
        count: how many calibration records do; a record that occurs twice counts twice.
        query_indices: `int64[count]`, for each of them the first query record that equals it.
        calibration_indices: `int64[count]`, ascending.
    """

    count: int
    query_indices: np.ndarray
    calibration_indices: np.ndarray


def find_overlap(query: Examples, calibration: Examples) -> Overlap:
    """Which calibration records equal a query record, whatever their labels.

    Two records are equal when their shape, number type and values are, so bring both sets through the same
    preprocessing first. O((q + c) log q) after hashing.

    Raises:
        InputError: when the two sets differ in record shape or number type; then nothing could be equal.

    Reference: Liu & Tsaftaris (2020), section 2: the calibration set holds no element of the query set.

    >>> query = Examples(np.array([[1.0], [2.0]]), np.array([0, 1]), ("a", "b"), "query")
    >>> calibration = Examples(np.array([[3.0], [2.0]]), np.array([0, 0]), ("a", "b"), "calibration")
    >>> find_overlap(query, calibration)
    Overlap(count=1, query_indices=array([1]), calibration_indices=array([1]))
    """
    mine, other = query.inputs, calibration.inputs
    if (mine.shape[1:], mine.dtype) != (other.shape[1:], other.dtype):
        raise InputError(
            f"{query.name} has {mine.dtype} records of shape {mine.shape[1:]} but {calibration.name} has "
            f"{other.dtype} records of shape {other.shape[1:]}; bring both to one shape and type first "
            "(--image-size for images)."
        )
    # As byte strings, not as void: NumPy compares those with memcmp instead of one by one through Python.
    wanted, found = query.record_hashes.view("S16"), calibration.record_hashes.view("S16")
    order = np.argsort(wanted, kind="stable")
    ordered = wanted[order]
    place = np.searchsorted(ordered, found).clip(max=len(ordered) - 1)
    calibration_indices = np.flatnonzero(ordered[place] == found)
    return Overlap(len(calibration_indices), order[place[calibration_indices]], calibration_indices)


def refuse_overlap(query: Examples, calibration: Examples) -> None:
    """Nothing when no record is shared.

    Raises:
        InputError: when records are shared, with their number and the first of them.
    """
    overlap = find_overlap(query, calibration)
    if overlap.count:
        pairs = zip(overlap.query_indices[:3].tolist(), overlap.calibration_indices[:3].tolist(), strict=True)
        first = ", ".join(f"{mine} = {other}" for mine, other in pairs)
        raise InputError(
            f"{overlap.count} of the {len(calibration)} records of {calibration.name} also occur in "
            f"{query.name} (first, query record = calibration record: {first}); the method needs disjoint "
            "sets: use --drop-overlap to remove them from the calibration set."
        )


def drop_overlap(query: Examples, calibration: Examples) -> Examples:
    """`calibration` without the records that also occur in `query`, the others in their order.

    Raises:
        InputError: when no calibration record would remain.
    """
    overlap = find_overlap(query, calibration)
    if overlap.count == 0:
        return calibration
    if overlap.count == len(calibration):
        raise InputError(
            f"all {overlap.count} records of {calibration.name} also occur in {query.name}: nothing remains "
            "to calibrate with; is it the same data set? Choose another calibration set."
        )
    return calibration.take(np.delete(np.arange(len(calibration)), overlap.calibration_indices))

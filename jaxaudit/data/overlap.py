"""Records that occur in the query set and in the calibration set: there must be none."""

from typing import NamedTuple

import numpy as np

from jaxaudit.data.examples import Examples


class Overlap(NamedTuple):
    """`count` calibration records also occur in the query set.

    Attributes:
        count: how many calibration records, duplicates counted each.
        query_indices: `int64[count]`, for each of them the first query record that equals it.
        calibration_indices: `int64[count]`, ascending.
    """

    count: int
    query_indices: np.ndarray
    calibration_indices: np.ndarray


def find_overlap(query: Examples, calibration: Examples) -> Overlap:
    """Which calibration records equal a query record."""
    raise NotImplementedError


def refuse_overlap(query: Examples, calibration: Examples) -> None:
    """Nothing when no record is shared; `InputError` with the count and the first indices otherwise."""
    raise NotImplementedError


def drop_overlap(query: Examples, calibration: Examples) -> Examples:
    """`calibration` without the records that also occur in `query`."""
    raise NotImplementedError

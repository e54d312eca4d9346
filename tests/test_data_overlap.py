"""Shared records are found, refused or dropped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxaudit.data.examples import Examples
from jaxaudit.data.overlap import drop_overlap, find_overlap, refuse_overlap
from jaxaudit.errors import InputError


def make(values, name):
    inputs = np.asarray(values, np.float32).reshape(len(values), -1)
    return Examples(inputs, np.zeros(len(inputs), int), ("a",), name)


values = st.lists(st.integers(0, 12), min_size=1, max_size=30)


@given(values, values)
def test_equals_the_double_loop(mine, others):
    query, calibration = make(mine, "query"), make(others, "calibration")
    slow = [(mine.index(value), j) for j, value in enumerate(others) if value in mine]
    overlap = find_overlap(query, calibration)
    assert overlap.count == len(slow)
    assert list(zip(overlap.query_indices.tolist(), overlap.calibration_indices.tolist(), strict=True)) == slow
    remaining = [value for value in others if value not in mine]
    if remaining:
        assert drop_overlap(query, calibration).inputs[:, 0].tolist() == remaining


def test_labels_do_not_hide_an_overlap():
    query = make([1, 2], "query")
    relabelled = Examples(query.inputs, np.array([1, 1]), ("a", "b"), "calibration")
    assert find_overlap(query, relabelled).count == 2


def test_refused_with_counts_and_first_indices():
    query, calibration = make([1, 2, 3, 4, 5], "query"), make([9, 5, 4, 3, 2, 8], "calibration")
    message = (
        r"4 of the 6 records of calibration also occur in query \(first, .*: 4 = 1, 3 = 2, 2 = 3\).*--drop-overlap"
    )
    with pytest.raises(InputError, match=message):
        refuse_overlap(query, calibration)
    refuse_overlap(query, drop_overlap(query, calibration))


def test_nothing_shared_nothing_changed():
    query, calibration = make([1], "query"), make([2], "calibration")
    refuse_overlap(query, calibration)
    assert drop_overlap(query, calibration) is calibration


def test_nothing_remains():
    query = make([1, 2], "query")
    with pytest.raises(InputError, match="all 3 records of calibration also occur in query"):
        drop_overlap(query, make([2, 2, 1], "calibration"))


@pytest.mark.parametrize("other", [np.zeros((2, 2), np.float32), np.zeros((2, 1))])
def test_unlike_records_cannot_be_compared(other):
    other = Examples(other, np.zeros(2, int), ("a",), "calibration")
    with pytest.raises(InputError, match="bring both to one shape and type first"):
        find_overlap(make([1], "query"), other)

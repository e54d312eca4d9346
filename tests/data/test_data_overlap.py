"""Shared records are found, refused or dropped."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxaudit.data.examples import Examples
from jaxaudit.data.overlap import drop_overlap, find_overlap, refuse_held, refuse_overlap, without_copies
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
    with pytest.raises(InputError, match="shape and type first"):
        find_overlap(make([1], "query"), other)


def test_a_holdout_is_refused_with_the_first_pairs():
    query, holdout = make([1, 2, 3, 4, 5], "query"), make([9, 5, 4, 3, 2, 8], "holdout")
    with pytest.raises(InputError, match="4 of the 6 records of the holdout"):
        refuse_held(query, holdout, "query set")
    refuse_held(query, make([9], "holdout"), "query set")


@given(values, values)
def test_what_is_kept_occurs_once_and_nothing_leaves_where_nothing_is_shared(mine, others):
    query, holdout = make(mine, "query"), make(others, "holdout")
    shared = set(mine) & set(others)
    once = {value for value in (*mine, *others) if (mine + others).count(value) == 1}
    if shared and not (once & set(mine) and once & set(others)):
        with pytest.raises(InputError, match="no record remains"):
            without_copies(query, holdout)
        return
    of_query, of_holdout = without_copies(query, holdout)
    assert query.inputs[of_query, 0].tolist() == [value for value in mine if not shared or value in once]
    assert holdout.inputs[of_holdout, 0].tolist() == [value for value in others if not shared or value in once]


@given(st.tuples(values, values, values))
def test_of_three_sets_too_what_is_kept_occurs_once(three):
    sets = [make(each, name) for each, name in zip(three, ("query", "holdout", "members"), strict=True)]
    every = [value for each in three for value in each]
    once = {value for value in every if every.count(value) == 1}
    shared = any(set(first) & set(second) for first, second in combinations(three, 2))
    wanted = [[value for value in each if not shared or value in once] for each in three]
    if not all(wanted):
        with pytest.raises(InputError):
            without_copies(*sets)
        return
    kept = without_copies(*sets)
    assert [each.inputs[own, 0].tolist() for each, own in zip(sets, kept, strict=True)] == wanted


def test_what_is_kept_was_dealt_from_one_pile():
    """Over all deals of a pile with copies: of those that leave the same records, each sends every record to the query
    set equally often, so that the permutation test is exact. Dropping the holdout's copies alone would not do."""
    pile = [0, 0, 1, 1, 2, 2, 3, 4, 5, 6]
    seen: dict[tuple[frozenset[int], int], Counter[int]] = {}
    one_sided: Counter[int] = Counter()
    for places in combinations(range(len(pile)), 5):
        mine = [pile[place] for place in places]
        others = [pile[place] for place in range(len(pile)) if place not in places]
        one_sided.update(mine)
        one_sided.subtract([value for value in others if value not in mine])
        if not set(mine) & set(others):
            continue
        try:
            of_query, of_holdout = without_copies(make(mine, "query"), make(others, "holdout"))
        except InputError:
            continue
        query = [mine[place] for place in of_query]
        left = frozenset(query) | {others[place] for place in of_holdout}
        seen.setdefault((left, len(query)), Counter()).update(query)
    assert seen
    for (left, _), counts in seen.items():
        assert len({counts[value] for value in left}) == 1
    assert one_sided[0] > 0 == one_sided[6]

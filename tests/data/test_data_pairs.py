"""Sets held against one another: classes are matched by name, records that both have are found, refused or dropped."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxaudit.data.classes import align_classes, align_target_data, drop_unshared
from jaxaudit.data.examples import Examples
from jaxaudit.data.overlap import drop_overlap, find_overlap, refuse_held, refuse_overlap, without_copies
from jaxaudit.errors import InputError


def make(records, class_names, name):
    """`records` is a text with one letter, the class, a record; a record's input is its place."""
    labels = np.array([class_names.index(letter) for letter in records])
    return Examples(np.arange(len(records), dtype=np.float32)[:, None], labels, tuple(class_names), name)


def valued(values, name):
    """Records of these values, all of one class."""
    return Examples(np.asarray(values, np.float32).reshape(len(values), -1), np.zeros(len(values), int), ("a",), name)


def letters(examples):
    return "".join(examples.class_names[label] for label in examples.labels)


def test_aligned_by_name():
    other = align_classes(make("abc", "abc", "query"), make("ccab", "cab", "other"))
    assert (other.class_names, letters(other)) == (("a", "b", "c"), "ccab")
    assert other.inputs.ravel().tolist() == [0, 1, 2, 3]
    # Names without records do not matter.
    other = align_classes(make("ab", "abx", "query"), make("ba", "yba", "other"))
    assert (other.class_names, letters(other)) == (("a", "b", "x"), "ba")


@pytest.mark.parametrize(
    ("query", "other", "message"),
    [
        (("ab", "ab"), ("cd", "cd"), "differ: only query has 'a', 'b' and only other has 'c', 'd'"),
        (("abc", "abc"), ("ab", "ab"), "differ: only query has 'c'"),
        (("abc", "abc"), ("ab", "abc"), "other has no record of class 'c', which query has"),
        (("ab", "abc"), ("abc", "abc"), "query has none; use --drop-unshared"),
        (("ab", "ab"), ("abc", "abc"), "other has records of class 'c'"),
        (("abcdefg", "abcdefg"), ("h", "h"), "'a', 'b', 'c', 'd', 'e' and 2 more"),
    ],
)
def test_refused(query, other, message):
    query, other = make(query[0], query[1], "query"), make(other[0], other[1], "other")
    with pytest.raises(InputError, match=message):
        align_classes(query, other)


def test_drop_unshared():
    calibration = drop_unshared(make("ab", "abc", "query"), make("cxabxa", "xcba", "calibration"))
    assert letters(calibration) == "aba"
    assert calibration.inputs.ravel().tolist() == [2, 3, 5]
    assert calibration.class_names == ("a", "b", "c")
    with pytest.raises(InputError, match="calibration has no record of class 'b'"):
        drop_unshared(make("ab", "ab", "query"), make("aac", "abc", "calibration"))
    with pytest.raises(InputError, match="calibration and query share no class: query has 'a', 'b'"):
        drop_unshared(make("ab", "ab", "query"), make("c", "c", "calibration"))


def test_align_target_data():
    other = align_target_data(make("ab", "abc", "query"), make("yx", "xy", "other"))
    assert other.class_names == ("a", "b", "c")
    assert letters(other) == "ba"
    with pytest.raises(InputError, match="other has 3 classes"):
        align_target_data(make("ab", "ab", "query"), make("x", "xyz", "other"))


values = st.lists(st.integers(0, 12), min_size=1, max_size=30)


@given(values, values)
def test_equals_the_double_loop(mine, others):
    query, calibration = valued(mine, "query"), valued(others, "calibration")
    slow = [(mine.index(value), j) for j, value in enumerate(others) if value in mine]
    overlap = find_overlap(query, calibration)
    assert overlap.count == len(slow)
    assert list(zip(overlap.query_indices.tolist(), overlap.calibration_indices.tolist(), strict=True)) == slow
    remaining = [value for value in others if value not in mine]
    if remaining:
        assert drop_overlap(query, calibration).inputs[:, 0].tolist() == remaining


def test_labels_do_not_hide_an_overlap():
    query = valued([1, 2], "query")
    relabelled = Examples(query.inputs, np.array([1, 1]), ("a", "b"), "calibration")
    assert find_overlap(query, relabelled).count == 2


def test_refused_with_counts_and_first_indices():
    query, calibration = valued([1, 2, 3, 4, 5], "query"), valued([9, 5, 4, 3, 2, 8], "calibration")
    first = r"\(first, .*: 4 = 1, 3 = 2, 2 = 3\).*--drop-overlap"
    with pytest.raises(InputError, match=f"4 of the 6 records of calibration also occur in query {first}"):
        refuse_overlap(query, calibration)
    with pytest.raises(InputError, match="4 of the 6 records of the holdout"):
        refuse_held(query, calibration, "query set")
    rest = drop_overlap(query, calibration)
    refuse_overlap(query, rest)
    refuse_held(query, rest, "query set")
    assert drop_overlap(query, rest) is rest
    with pytest.raises(InputError, match="all 3 records of calibration also occur in query"):
        drop_overlap(query, valued([2, 2, 1], "calibration"))


@pytest.mark.parametrize("other", [np.zeros((2, 2), np.float32), np.zeros((2, 1))])
def test_unlike_records_cannot_be_compared(other):
    other = Examples(other, np.zeros(2, int), ("a",), "calibration")
    with pytest.raises(InputError, match="shape and type first"):
        find_overlap(valued([1], "query"), other)


@given(st.lists(values, min_size=2, max_size=3))
def test_what_is_kept_occurs_once_and_nothing_leaves_where_nothing_is_shared(drawn):
    sets = [valued(each, name) for each, name in zip(drawn, ("query", "holdout", "members"), strict=False)]
    times = Counter(value for each in drawn for value in each)
    shared = any(set(first) & set(second) for first, second in combinations(drawn, 2))
    wanted = [[value for value in each if not shared or times[value] == 1] for each in drawn]
    if not all(wanted):
        with pytest.raises(InputError, match="no record remains"):
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
            of_query, of_holdout = without_copies(valued(mine, "query"), valued(others, "holdout"))
        except InputError:
            continue
        query = [mine[place] for place in of_query]
        left = frozenset(query) | {others[place] for place in of_holdout}
        seen.setdefault((left, len(query)), Counter()).update(query)
    assert seen
    for (left, _), counts in seen.items():
        assert len({counts[value] for value in left}) == 1
    assert one_sided[0] > 0 == one_sided[6]

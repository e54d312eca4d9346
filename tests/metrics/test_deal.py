"""Deals keep groups whole and numbers exact, and every choice is equally likely."""

from collections import Counter
from itertools import combinations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import jaxaudit as ja
from jaxaudit.errors import InputError
from jaxaudit.metrics.deal import deal_members, merge_groups

SURE = 1e-4


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.floats(0.01, 0.99), st.integers(0, 5))
def test_groups_stay_whole_and_numbers_are_exact(values: list[int], share: float, seed: int) -> None:
    groups, rows = np.array(values), None
    count = len(np.unique(groups))
    try:
        rows = ja.deal(jax.random.key(seed), len(groups), share, groups)
    except InputError:
        assert count < 20
        return
    held, kept = np.unique(groups[rows]), np.unique(groups[~rows])
    assert not set(held) & set(kept)
    assert len(held) == min(max(round(share * count), 1), count - 1)
    assert len(held) + len(kept) == count


def test_all_deals_are_equally_likely() -> None:
    trials = 1000
    found = [tuple(np.flatnonzero(ja.deal(jax.random.key(seed), 6)).tolist()) for seed in range(trials)]
    counts = [found.count(each) for each in combinations(range(6), 3)]
    assert sum(counts) == trials
    assert stats.chisquare(counts).pvalue > SURE


def test_all_deals_with_members_are_equally_likely() -> None:
    """Nine records to three sides with one key for both draws, whatever is held out: one false alarm in 10,000."""
    trials, counts = 600, Counter[tuple[bool, tuple[int, ...]]]()
    for seed in range(trials):
        key = jax.random.key(seed)
        held = ja.deal(key, 9, 1 / 3)
        members = deal_members(key, held, 1 / 3)
        assert not (held & members).any()
        counts[bool(held[0]), tuple(np.flatnonzero(members[~held]).tolist())] += 1
    # The first record is held out in a third of the deals.
    cells = [(first, chosen) for first in (True, False) for chosen in combinations(range(6), 3)]
    found, expected = [counts[cell] for cell in cells], [trials * (1 if first else 2) / 60 for first, _ in cells]
    assert sum(found) == trials
    assert stats.chisquare(found, expected).pvalue > SURE


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 99), min_size=20, max_size=120),
    st.floats(0.01, 0.9),
    st.floats(0.01, 0.9),
    st.integers(0, 5),
)
def test_members_are_whole_groups_that_are_not_held_out(
    values: list[int], share: float, of_members: float, seed: int
) -> None:
    groups, key = np.array(values), jax.random.key(seed)
    count = len(np.unique(groups))
    try:
        held = ja.deal(key, len(groups), share, groups)
        members = deal_members(key, held, of_members, groups)
    except InputError:
        assert count < 30 or share + of_members > 0.8 or min(share, of_members) < 0.1
        return
    sides = [set(groups[rows]) for rows in (held, members, ~(held | members))]
    assert all(sides)
    assert sum(map(len, sides)) == count
    assert abs(len(sides[1]) - of_members * count) <= 1.5


@pytest.mark.parametrize(
    ("records", "share", "groups"),
    [(100, 0.0, None), (100, 1.0, None), (0, 0.5, None), (5, 0.5, None), (19, 0.01, None), (9, 0.5, np.arange(9) // 4)],
)
def test_what_cannot_be_dealt_is_refused(records: int, share: float, groups: np.ndarray | None) -> None:
    with pytest.raises(InputError):
        ja.deal(jax.random.key(1), records, share, groups)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), min_size=1, max_size=30))
def test_groups_with_a_common_copy_are_one(pairs: list[tuple[int, int]]) -> None:
    """The slow twin joins until nothing changes."""
    groups, copies = np.array(pairs).T
    slow = groups.copy()
    while True:
        before = slow.copy()
        for values in (groups, copies):
            for value in np.unique(values):
                slow[values == value] = slow[values == value].min()
        if (slow == before).all():
            break
    found = merge_groups(groups, copies)
    np.testing.assert_array_equal(found[:, None] == found, slow[:, None] == slow)

"""Deals keep groups whole and numbers exact, and every choice is equally likely."""

from itertools import combinations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import jaxaudit as ja
from jaxaudit.errors import InputError
from jaxaudit.metrics.deal import joined

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
    trials = 4000
    found = [tuple(np.flatnonzero(ja.deal(jax.random.key(seed), 6)).tolist()) for seed in range(trials)]
    counts = [found.count(each) for each in combinations(range(6), 3)]
    assert sum(counts) == trials
    assert stats.chisquare(counts).pvalue > SURE


def test_the_same_key_deals_alike() -> None:
    first, again, other = (ja.deal(jax.random.key(seed), 100, 0.3) for seed in (1, 1, 2))
    assert (first == again).all()
    assert first.sum() == other.sum() == 30
    assert (first != other).any()


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
    found = joined(groups, copies)
    np.testing.assert_array_equal(found[:, None] == found, slow[:, None] == slow)

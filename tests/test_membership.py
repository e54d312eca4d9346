"""Membership draws: a row is a training set, and every draw says exactly which."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.membership import (
    AllBut,
    halves,
    leave_one_out_masks,
    member_counts,
    random_subset,
    subsets,
    with_and_without,
)

# Two-sided chance that a standard normal lies further out than this: 1e-9.
SIX_SIGMA = 6.1


@st.composite
def index_sets(draw):
    examples = draw(st.integers(1, 40))
    indices = draw(st.lists(st.integers(0, examples - 1), unique=True))
    return np.array(indices, int), examples


@given(index_sets())
def test_leave_one_out_leaves_out_one_in_the_order_asked(drawn):
    indices, examples = drawn
    rows = leave_one_out_masks(indices, examples)
    assert rows.shape == (len(indices), examples)
    assert [np.flatnonzero(~row).tolist() for row in rows] == [[index] for index in indices.tolist()]
    lazy = AllBut(indices, examples)
    assert lazy.shape == rows.shape
    assert len(lazy) == len(rows)
    np.testing.assert_array_equal(lazy[:], rows)
    np.testing.assert_array_equal(lazy[np.arange(len(rows))[::-2]], rows[::-2])
    assert member_counts(lazy).tolist() == member_counts(rows).tolist() == [examples - 1] * len(rows)


@given(index_sets().filter(lambda drawn: len(drawn[0]) > 0), st.floats(0.01, 1), st.integers(0, 2**32))
def test_random_subset_has_the_rounded_share_and_only_of_its_pool(drawn, fraction, seed):
    indices, examples = drawn
    row = random_subset(np.random.default_rng(seed), indices, fraction, examples)
    chosen = np.flatnonzero(row[0])
    assert row.shape == (1, examples)
    assert len(chosen) == max(1, round(fraction * len(indices)))
    assert set(chosen.tolist()) <= set(indices.tolist())


@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(0, 4))
def test_halves_split_the_pool_and_subsets_have_their_size(seed, examples, models):
    random = np.random.default_rng(seed)
    rows, size = halves(random, examples), examples // 3
    assert np.array_equal(rows[0], ~rows[1])
    assert rows.sum(axis=1).tolist() == [examples // 2, examples - examples // 2]
    rows = subsets(random, models, size, examples)
    assert rows.shape == (models, examples)
    assert (rows.sum(axis=1) == size).all()


def test_halves_and_subsets_and_random_subsets_treat_all_records_alike():
    # 2,000 draws of half of 10 records: each is taken 1,000 times in expectation; 30 chances of 1e-9 each.
    random = np.random.default_rng(13)
    drawn = [random_subset(random, np.arange(2, 12), 0.5, 14)[0] for _ in range(2000)]
    taken = (
        *(np.sum([halves(random, 10)[0] for _ in range(2000)], axis=0), subsets(random, 2000, 5, 10).sum(axis=0)),
        np.sum(drawn, axis=0)[2:12],
    )
    assert np.abs(np.array(taken) - 1000).max() < SIX_SIGMA * np.sqrt(2000 * 0.25)


@settings(max_examples=40)
@given(st.data(), st.integers(2, 20), st.integers(0, 2**32))
def test_with_and_without_differ_by_their_target_alone(data, size, seed):
    examples = data.draw(st.integers(size + 1, 45))
    targets = np.array(data.draw(st.lists(st.integers(0, examples - 1), min_size=1, max_size=12)))
    pairs = with_and_without(np.random.default_rng(seed), targets, size, examples)
    assert pairs.membership.shape == (len(targets) + 2, examples)
    for place, target in enumerate(targets):
        of_in, of_out = pairs.membership[pairs.with_target[place]], pairs.membership[pairs.without_target[place]]
        assert np.flatnonzero(of_in != of_out).tolist() == [target]
        assert (of_in[target], of_in.sum(), of_out.sum()) == (True, size, size - 1)
    # The pool holds all of them, and its length does not depend on the draw.
    assert not np.delete(pairs.membership, pairs.pool, axis=1).any()
    assert np.isin(targets, pairs.pool).all()
    assert len(np.unique(pairs.pool)) == len(pairs.pool) == min(size + len(targets), examples)


def test_what_is_with_a_target_is_uniform():
    """Also where the target is always the same: every other record stands beside it equally often."""
    random, taken = np.random.default_rng(17), np.zeros(9)
    for _ in range(3000):
        pairs = with_and_without(random, np.array([2, 7]), 4, 9)
        taken += pairs.membership[pairs.without_target[0]]
    # 3 of the 8 others, 3,000 times; 8 chances of 1e-9 each.
    assert taken[2] == 0
    assert np.abs(np.delete(taken, 2) - 3000 * 3 / 8).max() < SIX_SIGMA * np.sqrt(3000 * 3 / 8 * 5 / 8)

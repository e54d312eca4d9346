"""Membership draws: a row is a training set, and every draw says exactly which."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxaudit.membership import bernoulli_halves, everyone, leave_one_out, only, random_subset, without

# Two-sided chance that a standard normal lies further out than this: 1e-9.
SIX_SIGMA = 6.1


@st.composite
def index_sets(draw):
    examples = draw(st.integers(1, 40))
    indices = draw(st.lists(st.integers(0, examples - 1), unique=True))
    return np.array(indices, int), examples


def test_everyone_is_one_model_on_everything():
    row = everyone(5)
    assert row.shape == (1, 5)
    assert row.dtype == bool
    assert row.all()


@given(index_sets())
def test_only_and_without_split_the_pool(drawn):
    indices, examples = drawn
    assert np.flatnonzero(only(indices, examples)[0]).tolist() == sorted(indices.tolist())
    assert np.array_equal(only(indices, examples), ~without(indices, examples))
    assert only(indices, examples).shape == without(indices, examples).shape == (1, examples)


@given(index_sets())
def test_leave_one_out_leaves_out_one_in_the_order_asked(drawn):
    indices, examples = drawn
    rows = leave_one_out(indices, examples)
    assert rows.shape == (len(indices), examples)
    assert [np.flatnonzero(~row).tolist() for row in rows] == [[index] for index in indices.tolist()]


@given(index_sets().filter(lambda drawn: len(drawn[0]) > 0), st.floats(0.01, 1), st.integers(0, 2**32))
def test_random_subset_has_the_rounded_share_and_only_of_its_pool(drawn, fraction, seed):
    indices, examples = drawn
    row = random_subset(np.random.default_rng(seed), indices, fraction, examples)
    chosen = np.flatnonzero(row[0])
    assert row.shape == (1, examples)
    assert len(chosen) == max(1, round(fraction * len(indices)))
    assert set(chosen.tolist()) <= set(indices.tolist())


def test_random_subset_of_everything_is_everything():
    row = random_subset(np.random.default_rng(3), np.array([1, 4, 2]), 1.0, 6)
    assert np.array_equal(row, only(np.array([1, 2, 4]), 6))


def test_random_subset_treats_its_pool_alike():
    # Each of 10 records is taken 1,000 times in expectation; 10 chances of 1e-9 each.
    random = np.random.default_rng(11)
    taken = np.sum([random_subset(random, np.arange(2, 12), 0.5, 14)[0] for _ in range(2000)], axis=0)
    assert not taken[[0, 1, 12, 13]].any()
    assert np.abs(taken[2:12] - 1000).max() < SIX_SIGMA * np.sqrt(2000 * 0.25)


def test_bernoulli_halves_are_fair_and_independent():
    rows = bernoulli_halves(np.random.default_rng(5), 200, 300)
    assert rows.shape == (200, 300)
    assert rows.dtype == bool
    signs = np.where(rows, 1, -1)
    assert abs(signs.sum()) < SIX_SIGMA * np.sqrt(rows.size)
    # Neighbouring records, and neighbouring models, agree half of the time.
    assert abs((signs[:, 1:] * signs[:, :-1]).sum()) < SIX_SIGMA * np.sqrt(rows.size)
    assert abs((signs[1:] * signs[:-1]).sum()) < SIX_SIGMA * np.sqrt(rows.size)


@pytest.mark.parametrize(
    "draw", [lambda g: random_subset(g, np.arange(20), 0.5, 20), lambda g: bernoulli_halves(g, 4, 20)]
)
def test_draws_follow_their_generator(draw):
    assert np.array_equal(draw(np.random.default_rng(1)), draw(np.random.default_rng(1)))
    assert not np.array_equal(draw(np.random.default_rng(1)), draw(np.random.default_rng(2)))

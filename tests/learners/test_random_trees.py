"""Random decision trees: their splits, their leaves, and leaving one record out, against plain loops."""

import importlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.learners import arithmetic_mean, geometric_mean, random_trees, unnormalised_geometric_mean
from jaxaudit.learners.random_trees import GRID, draw_splits

KEY = jax.random.key(5)
COUNTS = (0, 3, 0, 2, 1)
CLASSES, RECORDS, TREES, DEPTH = 3, 12, 4, 3
LEARNER = random_trees(COUNTS, CLASSES, trees=TREES, depth=DEPTH)
BARE = random_trees(COUNTS, CLASSES, trees=TREES, depth=DEPTH, smoothing=0.0)
MEAN = random_trees(COUNTS, CLASSES, trees=TREES, depth=DEPTH, smoothing=0.5, aggregate=arithmetic_mean)
ALL = (LEARNER, BARE, MEAN)
MODULE = importlib.import_module("jaxaudit.learners.random_trees")

FIT = jax.jit(LEARNER.fit)
DRAW = jax.jit(draw_splits, static_argnums=(1, 2))
LOG_PROBS = {learner: jax.jit(learner.log_probs) for learner in (LEARNER, BARE)}

# Sums of float32 logarithms of at least 1e-4, over a few trees and classes.
CLOSE = {"rtol": 0, "atol": 1e-5}


def people(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records with many equal ones among them, numbers at both ends and on cuts of the trees included."""
    random = np.random.default_rng(seed)
    numbers = np.concatenate([[0, 1], np.asarray(FIT(KEY, *NOBODY).splits.cut).ravel()[:6]])
    columns = [random.integers(0, c, count) if c else random.choice(numbers, count) for c in COUNTS]
    return np.stack(columns, axis=1).astype(np.float32), random.integers(0, CLASSES, count).astype(np.int32)


NOBODY = (np.zeros((RECORDS, 5), np.float32), np.zeros(RECORDS, np.int32), np.zeros(RECORDS, np.float32))
INPUTS, LABELS = people(RECORDS)


def leaf_by_loop(tree, record):
    column, cut, right = tree
    node = 0
    while node < len(column):
        value = record[column[node]]
        goes_right = right[node][int(value)] if COUNTS[column[node]] else value >= cut[node]
        node = 2 * node + (2 if goes_right else 1)
    return node - len(column)


def trees_of(splits):
    """The splits of every tree as lists."""
    return list(zip(*(np.asarray(part).tolist() for part in splits), strict=True))


def forest_by_loop(splits, inputs, labels, members, record, smoothing=1.0, geometric=True):
    """The forest's probabilities of every class for one record, from the definitions."""
    each = []
    for tree in trees_of(splits):
        there = [labels[m] for m in members if leaf_by_loop(tree, inputs[m]) == leaf_by_loop(tree, record)]
        total = len(there) + smoothing * CLASSES
        each.append([(there.count(y) + smoothing) / total if total else 1 / CLASSES for y in range(CLASSES)])
    if not geometric:
        return np.mean(each, axis=0)
    product = np.prod(each, axis=0) ** (1 / TREES)
    return product / product.sum() if product.any() else np.full(CLASSES, 1 / CLASSES)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([((1, 4, 2), 4), (COUNTS, 5)]))
def test_no_split_is_idle_while_there_is_something_to_ask(seed, shape):
    counts, depth = shape
    tree = trees_of(jax.tree.map(lambda part: part[None], DRAW(jax.random.key(seed), counts, depth)))[0]

    def walk(node, ranges):
        if node >= len(tree[0]):
            return
        column, cut, right = tree[0][node], tree[1][node] * GRID, tree[2][node]
        low_high_or_set = ranges[column]
        if counts[column]:
            sides = [{c for c in low_high_or_set if right[c] == side} for side in (False, True)]
            idle = not (sides[0] and sides[1])
        else:
            low, high = low_high_or_set
            idle = not low < cut < high
            sides = [(low, cut), (cut, high)]
        more_to_ask = any(len(r) > 1 if counts[c] else r[1] - r[0] > 1 for c, r in enumerate(ranges))
        assert idle is not more_to_ask
        for child, side in zip((2 * node + 1, 2 * node + 2), sides, strict=True):
            walk(child, [*ranges[:column], side, *ranges[column + 1 :]])

    walk(0, [set(range(count)) if count else (0, GRID) for count in counts])
    assert len(tree[0]) == 2**depth - 1


def test_columns_cuts_and_sides_are_drawn_evenly():
    """Four tests on 6,000 roots and their right children, each at an error rate of 1e-3, with a fixed key."""
    keys = jax.random.split(jax.random.key(11), 6000)
    column, cut, right = jax.tree.map(np.asarray, jax.vmap(lambda key: draw_splits(key, (0, 3, 2), 2))(keys))
    assert stats.chisquare(np.bincount(column[:, 0], minlength=3)).pvalue > 1e-3
    assert stats.kstest(cut[column[:, 0] == 0, 0], "uniform").pvalue > 1e-3
    sides = right[column[:, 0] == 1, 0] @ [1, 2, 4]
    assert stats.chisquare(np.bincount(sides, minlength=8)[1:7]).pvalue > 1e-3
    assert set(sides) == set(range(1, 7))
    both = (column == 0)[:, [0, 2]].all(axis=1)
    assert stats.kstest((cut[both, 2] - cut[both, 0]) / (1 - cut[both, 0]), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("learner", [LEARNER, BARE], ids=["smoothed", "bare"])
@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, RECORDS - 1), unique=True), st.integers(0, 99))
def test_a_forest_says_what_loops_count(learner, members, seed):
    inputs, labels = people(RECORDS, seed)
    weights = np.isin(np.arange(RECORDS), members).astype(np.float32)
    # What does not belong leaves no trace, whatever it holds.
    forest = FIT(KEY, np.where(weights[:, None] > 0, inputs, np.nan).astype(np.float32), labels, weights)
    said = np.asarray(LOG_PROBS[learner](forest, inputs))
    expected = [
        forest_by_loop(forest.splits, inputs, labels.tolist(), members, record, learner.smoothing) for record in inputs
    ]
    np.testing.assert_allclose(np.exp(said), expected, **CLOSE)
    assert not np.isnan(said).any()
    assert (said[np.array(expected) == 0] == -np.inf).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.lists(st.integers(0, RECORDS - 1), max_size=5), st.sampled_from(ALL))
def test_leave_one_out_of_any_records_counts_exactly(seed, records, learner):
    inputs, labels = people(RECORDS, seed)
    told = learner.leave_one_out(KEY, inputs, labels, np.array(records, int))
    assert told.with_record.shape == told.without_record.shape == (len(records), CLASSES)
    assert not np.isnan(told).any()
    splits = FIT(KEY, *NOBODY).splits
    for place, record in enumerate(records):
        others = [other for other in range(RECORDS) if other != record]
        for ours, members in zip(told, (range(RECORDS), others), strict=True):
            told_by_loop = partial(forest_by_loop, geometric=learner is not MEAN)
            expected = told_by_loop(splits, inputs, labels.tolist(), members, inputs[record], learner.smoothing)
            np.testing.assert_allclose(np.exp(ours[place]), expected, rtol=1e-12, atol=1e-12)


def test_leave_one_out_is_the_same_in_small_chunks(monkeypatch):
    whole = LEARNER.leave_one_out(KEY, INPUTS, LABELS, np.arange(RECORDS))
    monkeypatch.setattr(MODULE, "RECORDS_AT_A_TIME", 5)
    monkeypatch.setattr(MODULE, "NUMBERS_AT_A_TIME", 3 * TREES * CLASSES)
    assert np.array_equal(whole, LEARNER.leave_one_out(KEY, INPUTS, LABELS, np.arange(RECORDS)))


def test_without_smoothing_trees_that_contradict_each_other_know_nothing():
    log_probs = np.log(np.array([[[0.5, 0.5, 1e-300]], [[0.9, 0.1, 1e-300]]]))
    log_probs[0, 0, 0] = log_probs[1, 0, 1:] = log_probs[0, 0, 2] = -np.inf
    for said in (geometric_mean(log_probs), geometric_mean(jnp.asarray(log_probs))):
        np.testing.assert_allclose(np.exp(said), [[1 / 3, 1 / 3, 1 / 3]], rtol=1e-6)
    assert (unnormalised_geometric_mean(log_probs) == -np.inf).all()
    np.testing.assert_allclose(np.exp(arithmetic_mean(np.log([[[0.25, 0.75]], [[0.75, 0.25]]]))), 0.5)


@pytest.mark.parametrize(
    ("counts", "classes", "options", "message"),
    [
        ((), 2, {}, "`columns` must be at least 1; got 0"),
        ((0, -1), 2, {}, "`category_counts` must be at least 0; got -1"),
        ((0,), 1, {}, "`classes` must be at least 2; got 1"),
        ((0,), 2, {"trees": 0}, "`trees` must be at least 1; got 0"),
        ((0,), 2, {"depth": 17}, "`depth` .* got 17"),
        ((0,), 2, {"smoothing": float("nan")}, "^`smoothing` must be at least 0; got nan"),
    ],
)
def test_impossible_forests_are_refused(counts, classes, options, message):
    with pytest.raises(InputError, match=message):
        random_trees(counts, classes, **{"trees": 3, "depth": 2, **options})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (INPUTS[:, :4], r"^`inputs` has shape \(\d+, 4\) but must have \(\d+, 5\)"),
        (INPUTS + np.eye(5)[1] * 3, "which is not a category from 0 to 2: pass ordinal"),
        (INPUTS * [1, 1, 9, 1, 1], r"which is not a number in \[0, 1\]: pass ordinal"),
        (INPUTS * [1, 1, np.nan, 1, 1], r"nan, which is not a number in \[0, 1\]"),
    ],
)
def test_impossible_records_are_refused(inputs, message):
    with pytest.raises(InputError, match=message):
        LEARNER.leave_one_out(KEY, inputs, LABELS, np.arange(2))

"""k-nearest neighbours and leaving one out, against loops in fractions and SciPy."""

import importlib
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxaudit.errors import InputError
from jaxaudit.learners import nearest_neighbours
from jaxaudit.learners.nearest_neighbours import BLOCK, FAR, nearest_indices, squared_distances, unit_of

KEY = jax.random.key(6)
CLASSES, RECORDS = 3, 12
LEARNER = nearest_neighbours(CLASSES, neighbours=3, smoothing=1.0)
BARE = nearest_neighbours(CLASSES, neighbours=3, smoothing=0.0)
MODULE = importlib.import_module("jaxaudit.learners.nearest_neighbours")

# A float32 logarithm of at least 1e-3.
CLOSE = {"rtol": 0, "atol": 2e-6}


def people(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records of two binary inputs and two numbers in eighths: few places, many ties."""
    random = np.random.default_rng(seed)
    inputs = np.concatenate([random.integers(0, 2, (count, 2)), random.integers(0, 9, (count, 2)) / 8], axis=1)
    return inputs.astype(np.float32), random.integers(0, CLASSES, count).astype(np.int32)


INPUTS, LABELS = people(RECORDS)


@partial(jax.jit, static_argnums=0)
def said(learner, inputs, labels, weights, queries):
    return learner.log_probs(learner.fit(KEY, inputs, labels, weights), queries)


def by_loop(learner, inputs, labels, members, query):
    """Probabilities of every class, with distances as fractions and ties by index."""

    def distance(record):
        return sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(inputs[record], query, strict=True))

    near = sorted(members, key=lambda record: (distance(record), record))[: learner.neighbours]
    total = len(near) + learner.smoothing * CLASSES
    votes = [sum(labels[record] == y for record in near) for y in range(CLASSES)]
    return [(vote + learner.smoothing) / total if total else 1 / CLASSES for vote in votes]


@pytest.mark.parametrize("learner", [LEARNER, BARE], ids=["smoothed", "bare"])
@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(0, RECORDS - 1)), st.integers(0, 99))
def test_a_model_says_what_loops_count(learner, members, seed):
    inputs, labels = people(RECORDS, seed)
    queries, _ = people(5, seed + 1)
    weights = np.isin(np.arange(RECORDS), list(members)).astype(np.float32)
    # What does not belong leaves no trace, whatever it holds.
    poisoned = np.where(weights[:, None] > 0, inputs, [np.nan, -7, 1e30, np.inf]).astype(np.float32)
    ours = np.asarray(said(learner, poisoned, labels, weights, queries))
    expected = [by_loop(learner, inputs, labels, members, query) for query in queries]
    np.testing.assert_allclose(np.exp(ours), expected, **CLOSE)
    assert (ours[np.array(expected) == 0] == -np.inf).all()
    assert not np.isnan(ours).any()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_distances_are_whole_symmetric_and_close_to_euclids(seed):
    records = np.random.default_rng(seed).random((9, 7), np.float32)
    records[3], records[4] = records[5], records[6] > 0.5
    whole = np.asarray(EACH_OTHERS(records))
    exact = ((records[:, None].astype(float) - records) ** 2).sum(axis=2)
    # Every square is rounded to a unit, after a difference and a product in float32.
    np.testing.assert_allclose(whole / unit_of(7), exact, rtol=0, atol=7 * (0.5 / unit_of(7) + 2.0**-23))
    by_numpy = np.rint((records[:, None] - records) ** 2 * np.float32(unit_of(7))).astype(int).sum(axis=2)
    assert np.array_equal(whole, by_numpy)
    assert np.array_equal(whole, whole.T)
    assert not whole.diagonal().any()
    assert np.array_equal(whole[:, 3], whole[:, 5])


EACH_OTHERS = jax.jit(lambda records: jax.vmap(squared_distances, (0, None, None))(records, records, unit_of(7)))


@pytest.mark.parametrize("columns", [1, 2, 7, 8, 836])
def test_opposite_corners_are_the_farthest_that_int32_holds(columns):
    corners = jnp.zeros(columns), jnp.ones((1, columns))
    farthest = int(squared_distances(*corners, unit_of(columns))[0])
    assert farthest == columns * unit_of(columns)
    assert FAR / 2 < farthest + unit_of(columns) <= FAR + 1


@pytest.mark.parametrize(("size", "count"), [(1, 1), (BLOCK * 33, 3), (BLOCK * 33 + 1, 1), (5000, 2), (400, 399)])
def test_the_nearest_come_in_the_order_of_distance_then_index(size, count):
    random = np.random.default_rng(size)
    find = jax.jit(nearest_indices, static_argnums=1)
    for values in (2, 50, FAR, *[size // 2 + 1] * 20):
        distances = random.integers(0, values, size).astype(np.int32)
        distances[random.random(size) < 0.3] = FAR
        expected = np.lexsort((np.arange(size), distances))[:count]
        assert np.asarray(find(distances, count)).tolist() == expected.tolist()


def test_leave_one_out_is_a_refit_where_distances_nearly_tie():
    """They differ in their last bits: any other rounding of distances would order them otherwise."""
    random, each = np.random.default_rng(4), np.arange(30)
    inputs, labels = people(30)
    inputs[:, 2:] = np.float32(0.3) + random.integers(0, 40, (30, 2)).astype(np.float32) * np.float32(2**-24)
    learner = nearest_neighbours(CLASSES, neighbours=4)
    rows = np.concatenate([np.ones((1, 30)), 1 - np.eye(30)]).astype(np.float32)
    refits = jax.vmap(partial(said, learner), in_axes=(None, None, 0, None))(inputs, labels, rows, inputs)
    told = learner.leave_one_out(KEY, inputs, labels, each)
    np.testing.assert_allclose(told.with_record, refits[0], **CLOSE)
    np.testing.assert_allclose(told.without_record, refits[1:][each, each], **CLOSE)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.lists(st.integers(0, RECORDS - 1), min_size=4, max_size=4), st.booleans())
def test_leave_one_out_of_any_records_counts_exactly(seed, records, bare):
    learner, (inputs, labels) = (BARE if bare else LEARNER), people(RECORDS, seed)
    told = learner.leave_one_out(KEY, inputs, labels, np.array(records))
    assert not np.isnan(told).any()
    for place, record in enumerate(records):
        others = [other for other in range(RECORDS) if other != record]
        for ours, members in zip(told, (range(RECORDS), others), strict=True):
            expected = by_loop(learner, inputs, labels, members, inputs[record])
            np.testing.assert_allclose(np.exp(ours[place]), expected, rtol=1e-12)


def test_leave_one_out_is_the_same_in_small_chunks(monkeypatch):
    whole = LEARNER.leave_one_out(KEY, INPUTS, LABELS, np.arange(RECORDS))
    monkeypatch.setattr(MODULE, "PAIRS_AT_A_TIME", 5 * RECORDS)
    told: list[tuple[int, int]] = []
    chunked = LEARNER.leave_one_out(KEY, INPUTS, LABELS, np.arange(RECORDS), lambda *done: told.append(done))
    assert np.array_equal(whole, chunked)
    assert told[0] == (5, RECORDS)
    assert told[-1] == (RECORDS, RECORDS)
    fresh = nearest_neighbours(CLASSES, neighbours=3, smoothing=1.5)
    expected = [by_loop(fresh, INPUTS, LABELS, range(RECORDS), query) for query in INPUTS]
    ours = said(fresh, INPUTS, LABELS, np.ones(RECORDS, np.float32), INPUTS)
    np.testing.assert_allclose(np.exp(ours), expected, **CLOSE)


def test_the_papers_counter_example_hides_at_the_record_and_tells_elsewhere():
    """Section 6.3: t at 0.4 and its nearest have one class; another input's nearest is t, its next of another class."""
    one_neighbour = nearest_neighbours(2, neighbours=1, smoothing=0.0)
    inputs, labels = np.array([[0.4], [0.3], [0.9]], np.float32), np.array([0, 0, 1], np.int32)
    told = one_neighbour.leave_one_out(KEY, inputs, labels, np.array([0]))
    assert np.array_equal(told.with_record, told.without_record)
    elsewhere = np.array([[0.61]], np.float32)
    with_t, without_t = (
        said(one_neighbour, inputs, labels, np.array([t, 1, 1], np.float32), elsewhere) for t in (1, 0)
    )
    assert np.exp(with_t).tolist() == [[1, 0]]
    assert np.exp(without_t).tolist() == [[0, 1]]


@pytest.mark.parametrize("bad", [1.5, -0.1, np.nan])
def test_inputs_outside_the_unit_interval_are_never_answered(bad):
    weights = np.ones(RECORDS, np.float32)
    queries, records = INPUTS.copy(), INPUTS.copy()
    queries[3, 2] = records[7, 1] = bad
    unanswered = np.isnan(said(LEARNER, INPUTS, LABELS, weights, queries))
    assert unanswered[3].all()
    assert unanswered.sum() == CLASSES
    assert np.isnan(said(LEARNER, records, LABELS, weights, INPUTS)).all()
    with pytest.raises(InputError, match=r"^inputs must lie in \[0, 1\], but 1 of 4 do not \(the first is number 1\)"):
        LEARNER.leave_one_out(KEY, records, LABELS, np.arange(2))


def test_impossible_numbers_are_refused():
    for classes, neighbours, message in ((1, 3, "^`classes` .* 2; got 1"), (2, 0, "^`neighbours` .* 1; got 0")):
        with pytest.raises(InputError, match=message):
            nearest_neighbours(classes, neighbours=neighbours)
    for smoothing in (-1.0, np.inf, np.nan):
        with pytest.raises(InputError, match=f"^`smoothing` must be at least 0.*; got {smoothing:g}"):
            nearest_neighbours(2, neighbours=1, smoothing=float(smoothing))
    with pytest.raises(InputError, match=r"`neighbours` must .* at most 2; got"):
        LEARNER.leave_one_out(KEY, INPUTS[:2], LABELS[:2], np.arange(2))
    with pytest.raises(InputError, match=r"`neighbours` must .* at most 2; got"):
        LEARNER.fit(KEY, jnp.asarray(INPUTS[:2]), jnp.asarray(LABELS[:2]), jnp.ones(2))


def test_images_are_neighbours_by_their_pixels():
    images = INPUTS.reshape(RECORDS, 2, 2, 1)
    flat = LEARNER.leave_one_out(KEY, INPUTS, LABELS, np.arange(3))
    assert np.array_equal(flat, LEARNER.leave_one_out(KEY, images, LABELS, np.arange(3)))
    weights = np.ones(RECORDS, np.float32)
    assert np.array_equal(
        said(LEARNER, images, LABELS, weights, images), said(LEARNER, INPUTS, LABELS, weights, INPUTS)
    )

"""k-nearest neighbours and leaving one out, against loops in fractions and scikit-learn."""

import importlib
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from jaxaudit import membership
from jaxaudit.ensemble import Execution, fit_many
from jaxaudit.errors import InputError
from jaxaudit.learners import LeavesOneOut, nearest_neighbours
from jaxaudit.learners.left_out import check_left_out
from jaxaudit.learners.nearest_neighbours import BLOCK, FAR, nearest, squared_distances, unit_of

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


@pytest.mark.parametrize(("count", "columns", "neighbours"), [(300, 6, 5), (300, 40, 1), (450, 3, 20)])
def test_where_nothing_ties_scikit_learn_says_the_same(count, columns, neighbours):
    random = np.random.default_rng(count + columns)
    inputs, queries = (random.random((n, columns), np.float32) for n in (count, 70))
    labels = random.integers(0, CLASSES, count).astype(np.int32)
    labels[:CLASSES] = np.arange(CLASSES)
    theirs = KNeighborsClassifier(neighbours, algorithm="brute").fit(np.float64(inputs), labels)
    learner = nearest_neighbours(CLASSES, neighbours=neighbours, smoothing=0.0)
    ours = said(learner, inputs, labels, np.ones(count, np.float32), queries)
    np.testing.assert_allclose(np.exp(ours), theirs.predict_proba(np.float64(queries)), **CLOSE)


def test_vmapped_models_are_the_models_one_by_one():
    weights = np.random.default_rng(1).integers(0, 2, (4, RECORDS)).astype(np.float32)
    many = jax.vmap(partial(said, LEARNER), in_axes=(None, None, 0, None))(INPUTS, LABELS, weights, INPUTS)
    for m in range(4):
        assert np.array_equal(many[m], said(LEARNER, INPUTS, LABELS, weights[m], INPUTS))


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


@pytest.mark.parametrize(
    ("size", "count"), [(1, 1), (5, 5), (BLOCK * 33, 3), (BLOCK * 33 + 1, 1), (1000, 7), (5000, 2), (400, 399)]
)
def test_the_nearest_come_in_the_order_of_distance_then_index(size, count):
    random = np.random.default_rng(size)
    find = jax.jit(nearest, static_argnums=1)
    for values in (2, 50, FAR, *[size // 2 + 1] * 20):
        distances = random.integers(0, values, size).astype(np.int32)
        distances[random.random(size) < 0.3] = FAR
        expected = np.lexsort((np.arange(size), distances))[:count]
        assert np.asarray(find(distances, count)).tolist() == expected.tolist()


def refits(learner, inputs, labels):
    """What fits of everything and of everything but each record say of it, by fit_many."""
    count = len(labels)
    rows = np.concatenate([membership.everyone(count), membership.leave_one_out(np.arange(count), count)])
    keys = jnp.stack([KEY] * len(rows))
    say = jax.jit(jax.vmap(learner.log_probs, in_axes=(0, None)))
    told = fit_many(
        keys,
        rows,
        inputs,
        labels,
        learner,
        execution=Execution(len(rows)),
        summarize=lambda models, _: say(models, inputs),
    )
    return told[0], told[1:][np.arange(count), np.arange(count)]


@pytest.mark.parametrize(("count", "neighbours"), [(40, 4), (12, 12), (1, 1)])
def test_leave_one_out_is_a_refit_of_everything_and_of_everything_else(count, neighbours):
    learner = nearest_neighbours(CLASSES, neighbours=neighbours)
    inputs, labels = people(count, seed=count)
    told = learner.leave_one_out(KEY, inputs, labels, np.arange(count))
    for ours, theirs in zip(told, refits(learner, inputs, labels), strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


@pytest.mark.parametrize("only", [slice(0, 2), slice(2, 4)], ids=["binary", "numbers"])
def test_leave_one_out_of_one_kind_of_inputs_is_a_refit_too(only):
    inputs = INPUTS[:, only]
    told = LEARNER.leave_one_out(KEY, inputs, LABELS, np.arange(RECORDS))
    for ours, theirs in zip(told, refits(LEARNER, inputs, LABELS), strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


def test_leave_one_out_of_near_ties_is_a_refit_too():
    """Numbers that differ in their last bits: any other rounding of distances would order them otherwise."""
    random = np.random.default_rng(4)
    inputs = np.float32(0.3) + random.integers(0, 40, (30, 3)).astype(np.float32) * np.float32(2**-24)
    inputs = np.concatenate([inputs, random.integers(0, 2, (30, 2))], axis=1).astype(np.float32)
    labels = random.integers(0, CLASSES, 30).astype(np.int32)
    told = LEARNER.leave_one_out(KEY, inputs, labels, np.arange(30))
    for ours, theirs in zip(told, refits(LEARNER, inputs, labels), strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


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


def test_a_record_with_many_copies_before_it_is_not_among_its_own_neighbours():
    copies, labels = np.full((8, 2), 0.25, np.float32), np.array([0, 0, 0, 1, 1, 2, 2, 2])
    told = LEARNER.leave_one_out(KEY, copies, labels, np.array([0, 3, 7]))
    np.testing.assert_allclose(np.exp(told.with_record), [[4 / 6, 1 / 6, 1 / 6]] * 3, rtol=1e-12)
    np.testing.assert_allclose(
        np.exp(told.without_record), [[3 / 6, 2 / 6, 1 / 6], [4 / 6, 1 / 6, 1 / 6], [4 / 6, 1 / 6, 1 / 6]], rtol=1e-12
    )


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


def test_leaving_out_no_record_is_no_answer():
    told = LEARNER.leave_one_out(KEY, INPUTS, LABELS, np.zeros(0, int))
    assert told.with_record.shape == told.without_record.shape == (0, CLASSES)


def test_a_class_that_loses_its_last_member_keeps_its_smoothing():
    labels = np.where(np.arange(RECORDS) == 4, 2, LABELS % 2).astype(np.int32)
    smoothed, bare = (one.leave_one_out(KEY, INPUTS, labels, np.array([4])) for one in (LEARNER, BARE))
    np.testing.assert_allclose(np.exp(smoothed.with_record[0, 2]), 2 / 6)
    np.testing.assert_allclose(np.exp(smoothed.without_record[0, 2]), 1 / 6)
    np.testing.assert_allclose(np.exp(bare.with_record[0, 2]), 1 / 3)
    assert bare.without_record[0, 2] == -np.inf


@pytest.mark.parametrize("smoothing", [0.01, 1.0])
def test_smoothing_bounds_what_a_record_can_move(smoothing):
    learner, queries = nearest_neighbours(CLASSES, neighbours=3, smoothing=smoothing), people(60, seed=1)[0]
    everyone, *others = np.concatenate([np.ones((1, RECORDS)), 1 - np.eye(RECORDS)]).astype(np.float32)
    before = said(learner, INPUTS, LABELS, everyone, queries)
    moved = [np.abs(before - said(learner, INPUTS, LABELS, weights, queries)).max() for weights in others]
    np.testing.assert_allclose(max(moved), np.log(1 + 1 / smoothing), rtol=1e-6)


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


def test_what_nearest_neighbours_are():
    assert isinstance(LEARNER, LeavesOneOut)
    assert nearest_neighbours(CLASSES, neighbours=3, smoothing=1.0) == LEARNER != BARE
    assert hash(nearest_neighbours(CLASSES, neighbours=3, smoothing=1.0)) == hash(LEARNER)


def test_images_are_neighbours_by_their_pixels():
    images = INPUTS.reshape(RECORDS, 2, 2, 1)
    flat = LEARNER.leave_one_out(KEY, INPUTS, LABELS, np.arange(3))
    assert np.array_equal(flat, LEARNER.leave_one_out(KEY, images, LABELS, np.arange(3)))
    weights = np.ones(RECORDS, np.float32)
    assert np.array_equal(
        said(LEARNER, images, LABELS, weights, images), said(LEARNER, INPUTS, LABELS, weights, INPUTS)
    )


@pytest.mark.parametrize(("classes", "neighbours"), [(1, 3), (2, 0)])
def test_impossible_numbers_are_refused(classes, neighbours):
    message = f"^nearest neighbours need .*2 classes and 1 neighbour.* got {classes} and {neighbours}"
    with pytest.raises(InputError, match=message):
        nearest_neighbours(classes, neighbours=neighbours)


@pytest.mark.parametrize("smoothing", [-1.0, np.inf, np.nan])
def test_impossible_smoothing_is_refused(smoothing):
    with pytest.raises(InputError, match=f"^smoothing must be 0 or more; got {smoothing}"):
        nearest_neighbours(2, neighbours=1, smoothing=float(smoothing))


def test_more_neighbours_than_records_are_refused():
    message = "neighbours are"
    with pytest.raises(InputError, match=message):
        LEARNER.leave_one_out(KEY, INPUTS[:2], LABELS[:2], np.arange(2))
    with pytest.raises(InputError, match=message):
        LEARNER.fit(KEY, jnp.asarray(INPUTS[:2]), jnp.asarray(LABELS[:2]), jnp.ones(2))


def test_inputs_without_labels_are_refused():
    with pytest.raises(InputError, match=r"^there are 5 inputs and 12 labels"):
        check_left_out(INPUTS[:5], LABELS, np.arange(2), CLASSES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": LABELS + 1}, "3 does not exist"),
        ({"records": np.array([0, 12])}, "12 does not exist"),
        ({"records": np.array([-1])}, "^record -1 does not exist"),
    ],
)
def test_impossible_records_are_refused(change, message):
    given_ = {"inputs": INPUTS, "labels": LABELS, "records": np.arange(2), **change}
    with pytest.raises(InputError, match=message):
        LEARNER.leave_one_out(KEY, **given_)

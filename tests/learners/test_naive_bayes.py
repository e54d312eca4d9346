"""Naive Bayes against scikit-learn, and its closed-form leave-one-out against refits."""

from functools import lru_cache
from importlib import import_module

import jax
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from support.memory import at_most

from jaxaudit.errors import InputError
from jaxaudit.learners import BoundsDTP, Learner, LeavesOneOut, LeftOut, SteppedLearner, naive_bayes

KEY = jax.random.key(17)
MODULE = import_module("jaxaudit.learners.naive_bayes")
MIXED = (3, 0, 2, 0, 11)
FEW, COUNTS = 9, (2, 3)
EVERYTHING = np.indices(COUNTS).reshape(len(COUNTS), -1).T.astype(np.float32)


def records(count, category_counts, classes, seed=5):
    """Random records whose values lean on their class, of which every one has members where there are enough."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count) % classes).astype(np.int32)
    columns = [
        (random.binomial(size - 1, (labels + 1) / (classes + 1)) if size else random.normal(labels, 1 + labels))
        for size in category_counts
    ]
    return np.stack(columns, axis=1).astype(np.float32), labels


def joint_by_sklearn(category_counts, classes, inputs, labels, asked, smoothing=1.0, variance_smoothing=1e-9):
    """log p(class) + log p(record | class), columns of both kinds together; -inf for a class without members."""
    numeric = np.array(category_counts) == 0
    inputs, asked = inputs.astype(np.float64), asked.astype(np.float64)
    present, joint = np.unique(labels), np.full((len(asked), classes), -np.inf)
    log_prior = np.log(np.bincount(labels)[present] / len(labels))
    parts = []
    if not numeric.all():
        counter = CategoricalNB(alpha=smoothing, min_categories=np.array(category_counts)[~numeric])
        counter.fit(inputs[:, ~numeric].astype(int), labels)
        parts.append(counter.predict_joint_log_proba(asked[:, ~numeric].astype(int)))
    if numeric.any():
        gaussian = GaussianNB(var_smoothing=variance_smoothing).fit(inputs[:, numeric], labels)
        parts.append(gaussian.predict_joint_log_proba(asked[:, numeric]))
    joint[:, present] = sum(parts[1:], start=parts[0]) - (len(parts) - 1) * log_prior
    return joint


def normalised(joint):
    largest = joint.max(axis=1, keepdims=True)
    return joint - largest - np.log(np.exp(joint - largest).sum(axis=1, keepdims=True))


def left_out_by_sklearn(category_counts, classes, inputs, labels, chosen):
    """The joint log-likelihoods of a refit without each of `chosen`."""
    rows = []
    for record in chosen:
        others = np.arange(len(labels)) != record
        rows.append(
            joint_by_sklearn(category_counts, classes, inputs[others], labels[others], inputs[record : record + 1])
        )
    return np.concatenate(rows)


def leave_one_out(category_counts, classes, inputs, labels, chosen):
    return naive_bayes(category_counts, classes).leave_one_out(KEY, inputs, labels, np.asarray(chosen))


@lru_cache
def compiled(category_counts, classes, **options):
    learner = naive_bayes(category_counts, classes, **options)
    return jax.jit(lambda x, y, w, asked: learner.log_probs(learner.fit(KEY, x, y, w), asked))


def fitted(category_counts, classes, inputs, labels, weights, asked=None):
    asked = inputs if asked is None else asked
    return np.asarray(compiled(category_counts, classes)(inputs, labels, np.asarray(weights, np.float32), asked))


def close(ours, joint):
    """Equal to the posterior of `joint` to 1e-10 of the largest of its terms (of 1, where all are smaller)."""
    scale = np.maximum(1, np.abs(np.where(np.isfinite(joint), joint, 0)).max(axis=1, keepdims=True))
    expected = normalised(joint)
    with np.errstate(invalid="ignore"):
        same = (ours == expected) | (np.abs(ours - expected) <= 1e-10 * scale)
    return bool(same.all())


def single_close(ours, theirs, tolerance=1e-5):
    """float32 keeps a sum of some dozen terms of order 1 to about 1e-6."""
    return np.allclose(ours, theirs, rtol=1e-5, atol=tolerance)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 10), min_size=1, max_size=6),
    st.integers(2, 14),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 1.0, 1e3, 1e6]),
)
@example([0], 3, 1, 0, 1e6)
@example([0, 1], 4, 2, 1, 0.0)
def test_leave_one_out_equals_refits_on_any_records(category_counts, count, classes, seed, outlier):
    category_counts = tuple(category_counts)
    random = np.random.default_rng(seed)
    inputs, labels = records(count, category_counts, classes, seed)
    labels = random.permutation(labels) if seed % 2 else labels
    numeric = np.flatnonzero(np.array(category_counts) == 0)
    inputs[:, numeric] = np.round(inputs[:, numeric])  # ties, and classes without any variance
    inputs[0, numeric] += outlier * random.random(len(numeric))
    chosen = [
        record
        for record in range(count)
        if not len(numeric) or np.ptp(np.delete(inputs, record, axis=0)[:, numeric], axis=0).any()
    ]  # scikit-learn divides by 0 where all numeric columns are constant
    left_out = leave_one_out(category_counts, classes, inputs, labels, range(count))
    assert not np.isnan(left_out).any()
    assume(chosen)
    refits = left_out_by_sklearn(category_counts, classes, inputs, labels, chosen)
    assert close(left_out.without_record[chosen], refits)
    assert close(left_out.with_record, joint_by_sklearn(category_counts, classes, inputs, labels, inputs))


def test_without_its_only_record_every_class_is_as_likely():
    left_out = leave_one_out((2, 0), 3, np.array([[1.0, 4.0]], np.float32), np.array([1]), [0])
    np.testing.assert_array_equal(left_out.with_record, [[-np.inf, 0, -np.inf]])
    np.testing.assert_allclose(left_out.without_record, -np.log(3))


def test_constant_numeric_columns_say_nothing():
    inputs, labels = records(20, (3,), 2)
    constant = np.concatenate([inputs, np.full((20, 2), 0.1, np.float32)], axis=1)
    for ours, theirs in zip(
        leave_one_out((3, 0, 0), 2, constant, labels, range(20)),
        leave_one_out((3,), 2, inputs, labels, range(20)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    assert single_close(
        fitted((3, 0, 0), 2, constant, labels, np.ones(20)), fitted((3,), 2, inputs, labels, np.ones(20))
    )


def test_the_one_record_that_makes_a_column_vary():
    inputs, labels = np.full((6, 1), 0.1, np.float32), np.array([0, 0, 0, 1, 1, 1])
    inputs[2] = 7.0
    left_out = leave_one_out((0,), 2, inputs, labels, [2, 3])
    np.testing.assert_allclose(left_out.without_record[0], np.log([2 / 5, 3 / 5]), rtol=1e-12)
    weights = np.ones(6)
    weights[2] = 0
    assert single_close(fitted((0,), 2, inputs, labels, weights)[2], np.log([2 / 5, 3 / 5]))
    assert np.isfinite(left_out.without_record[1]).all()


def test_records_in_any_number_and_order_are_the_same(monkeypatch):
    """Copies looked up once, or one by one; in one chunk, or in many."""
    inputs, labels = records(60, (2, 3, 9), 2)
    whole = leave_one_out((2, 3, 9), 2, inputs, labels, range(60))
    many = leave_one_out((2, 3, 9), 2, inputs, labels, np.tile(np.arange(60)[::-1], 3))
    mixed = leave_one_out((2, 3, 9, 0), 2, np.insert(inputs, 3, inputs[:, 1], axis=1), labels, range(60))
    monkeypatch.setattr(MODULE, "CHUNK_CELLS", 40)
    chunked = leave_one_out((2, 3, 9, 0), 2, np.insert(inputs, 3, inputs[:, 1], axis=1), labels, range(60))
    for part in range(2):
        np.testing.assert_allclose(many[part], np.tile(whole[part][::-1], (3, 1)), rtol=1e-14)
        np.testing.assert_allclose(chunked[part], mixed[part], rtol=1e-14)
    assert leave_one_out((2, 3, 9), 2, inputs, labels, np.arange(0)).with_record.shape == (0, 2)


def test_memory_stays_in_proportion_to_the_records():
    inputs, labels = records(20_000, MIXED, 3)
    with at_most(200 * 2**20):  # n by n would be 3 GB
        leave_one_out(MIXED, 3, inputs, labels, np.arange(20_000))


def test_smoothing_is_that_of_scikit_learn():
    inputs, labels = records(30, MIXED, 2)
    ours = compiled(MIXED, 2, smoothing=0.3, variance_smoothing=0.2)(inputs, labels, np.ones(30, np.float32), inputs)
    joint = joint_by_sklearn(MIXED, 2, inputs, labels, inputs, 0.3, 0.2)
    assert single_close(ours, normalised(joint))
    learner = naive_bayes(MIXED, 2, smoothing=0.3, variance_smoothing=0.2)
    assert close(learner.leave_one_out(KEY, inputs, labels, np.arange(30)).with_record, joint)


def test_numbers_far_from_zero_keep_their_variance():
    inputs, labels = records(200, (0, 0), 2)
    inputs = (inputs + 3e3).astype(np.float32)
    expected = normalised(joint_by_sklearn((0, 0), 2, inputs, labels, inputs))
    # An input of 3e3 is itself known to 1e-4 only; both see the same rounded one.
    assert single_close(fitted((0, 0), 2, inputs, labels, np.ones(200)), expected, tolerance=3e3 * 2**-24 * 10)


@pytest.mark.parametrize("members", [0, 1, 2])
def test_few_members(members):
    inputs, labels = records(50, MIXED, 3)
    log_probs = fitted(MIXED, 3, inputs, labels, np.arange(50) < members)
    assert not np.isnan(log_probs).any()
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1, rtol=1e-5)
    absent = np.setdiff1d(np.arange(3), labels[:members])
    if members:
        assert np.isneginf(log_probs[:, absent]).all()
    else:
        np.testing.assert_allclose(log_probs, -np.log(3), rtol=1e-6)


def test_an_input_that_is_no_category_says_nothing():
    inputs, labels = records(20, (3, 2), 2)
    asked = np.array([[7.0, 1.0], [0.5, 1.0]], np.float32)
    assert single_close(
        fitted((3, 2), 2, inputs, labels, np.ones(20), asked)[0],
        fitted((2,), 2, inputs[:, 1:], labels, np.ones(20), asked[:, 1:])[0],
    )


def test_records_are_counted_block_by_block(monkeypatch):
    inputs, labels = records(50, MIXED, 3)
    weights = (np.arange(50) % 3 > 0).astype(np.float32)
    whole = fitted(MIXED, 3, inputs, labels, weights)
    monkeypatch.setattr(MODULE, "ONE_HOT_CELLS", 7 * 16)
    learner = naive_bayes(MIXED, 3)
    in_blocks = jax.jit(lambda x, y, w: learner.log_probs(learner.fit(KEY, x, y, w), x))(inputs, labels, weights)
    assert single_close(in_blocks, whole)


def test_many_train_as_each_alone_and_a_record_of_weight_zero_leaves_no_trace():
    inputs, labels = records(50, MIXED, 3)
    rows = 1 - np.eye(50, dtype=np.float32)[:3]
    many = jax.jit(jax.vmap(compiled(MIXED, 3), in_axes=(None, None, 0, None)))
    said = many(inputs, labels, rows, inputs)
    np.testing.assert_allclose(said[2], fitted(MIXED, 3, inputs, labels, rows[2]), atol=2e-4)
    changed, others = inputs.copy(), labels.copy()
    changed[2], others[2] = inputs[3], (labels[2] + 1) % 3
    np.testing.assert_array_equal(many(changed, others, rows, inputs)[2], said[2])


def test_it_knows_its_leave_one_out_models_and_bounds_them():
    made, again = (naive_bayes(COUNTS, 3, smoothing=0.3) for _ in range(2))
    assert (hash(made), made) == (hash(again), again)
    assert all(isinstance(made, kind) for kind in (Learner, LeavesOneOut, BoundsDTP))
    assert not isinstance(made, SteppedLearner)
    same = np.log(np.full((4, 3), 1 / 3))
    labels = np.array([0, 1, 2, 0])
    assert naive_bayes((2, 0, 2), 3).dtp_bound(labels, labels, LeftOut(same, same)) is None  # nothing is proven


def test_no_refit_moves_an_output_on_any_input_by_more():
    made, rng, share = naive_bayes(COUNTS, 3, smoothing=0.3), np.random.default_rng(2), 0.0
    rows = np.concatenate([np.ones((1, FEW)), 1 - np.eye(FEW)]).astype(np.float32)
    outputs = jax.jit(jax.vmap(compiled(COUNTS, 3, smoothing=0.3), in_axes=(None, None, 0, None)))
    for _ in range(60):
        inputs = EVERYTHING[rng.integers(len(EVERYTHING), size=FEW)]
        labels = np.concatenate([np.repeat(np.arange(3), 2), rng.integers(3, size=FEW - 6)]).astype(np.int32)
        full, *without = np.asarray(outputs(inputs, labels, rows, EVERYTHING))
        moved = np.abs(full - np.array(without)).max(axis=(1, 2))
        bound = made.dtp_bound(labels, labels, made.leave_one_out(KEY, inputs, labels, np.arange(FEW)))
        assert bound is not None
        assert (moved <= bound + 1e-5).all()  # refits are float32
        share = max(share, float((moved / bound).max()))
    assert share > 0.5  # it is no idle bound


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (((), 2), {}, "`columns` must be at least 1; got 0"),
        (((2, -1), 2), {}, "`category_counts` must be at least 0; got -1"),
        (((2,), 0), {}, "`classes` must be at least 1; got 0"),
        (((2,), 2), {"smoothing": 0.0}, "`smoothing` must be above 0; got 0"),
        (((2,), 2), {"variance_smoothing": -1.0}, "`variance_smoothing` must be above 0; got -1"),
    ],
)
def test_what_no_learner_can_be_made_of(arguments, options, message):
    with pytest.raises(InputError, match=f"^{message}"):
        naive_bayes(*arguments, **options)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((4, 0), 3.0, "column 0 .* 3, .* of its 3 categories 0 to 2"),
        ((4, 0), 0.5, "column 0 .* 0.5"),
        ((4, 0), np.nan, "column 0 .* nan"),
        ((4, 1), np.nan, "column 1 .*NaN or infinite"),
    ],
)
def test_inputs_that_cannot_be_used(place, value, message):
    inputs, labels = records(10, (3, 0), 2)
    inputs[place] = value
    with pytest.raises(InputError, match=f"^{message}"):
        leave_one_out((3, 0), 2, inputs, labels, [0])
    with pytest.raises(InputError, match=r"^`inputs` has shape \(10, 2\) but must have \(10, 3\)"):
        leave_one_out((3, 0, 0), 2, inputs, labels, [0])


def test_records_and_labels_that_do_not_exist_are_refused():
    inputs, labels = records(10, (3, 0), 2)
    for wrong, chosen, said in (
        (labels, [0, 10], "`records` .* below 10; got 10"),
        (labels, [2, -1], "`records` .* got -1"),
        (labels + 1, [0], "`labels` .* below 2; got 2"),
        (labels - 1, [0], "`labels` .* got -1"),
        (labels[:5], [0], r"^`labels` has shape \(5,\) but must have"),
    ):
        with pytest.raises(InputError, match=said):
            leave_one_out((3, 0), 2, inputs, wrong, chosen)

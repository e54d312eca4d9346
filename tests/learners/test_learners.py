"""A learner against plain loops and against refits, and who trains together in which order: chunks, minibatches."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.references import batches_by_loop, softmax, softmax_regression_by_loop
from support.tiny_learners import (
    OPTIMIZERS,
    Dropped,
    Normed,
    compiled_fit,
    learner,
    records,
    small_mlp,
    softmax_regression,
)

from jaxaudit.data import Column, Examples, Table, category_counts, one_hot, ordinal
from jaxaudit.ensemble import batches
from jaxaudit.ensemble.batches import Tables
from jaxaudit.ensemble.concurrency import chunk_places, plan_groups
from jaxaudit.errors import InputError
from jaxaudit.learners import (
    BoundsDTP,
    Learner,
    LeavesOneOut,
    LeftOut,
    SteppedLearner,
    naive_bayes,
    network,
)

KEY = jax.random.key(8)
INPUTS, LABELS = records(23, 4)

# float32 keeps a gradient of order 1 to about 1e-6; a dozen steps of at most 0.05 / EPSILON times that.
CLOSE = {"rtol": 0, "atol": 1e-4}


def dense(params):
    """Kernel and bias of softmax regression."""
    layer = nnx.to_pure_dict(params)["layers"][0]
    return np.asarray(layer["kernel"]), np.asarray(layer["bias"])


def fitted(one, key, member):
    return compiled_fit(one)(key, INPUTS, LABELS, member.astype(np.float32))


@pytest.mark.parametrize(
    ("members", "optimizer"), [*((members, "adam") for members in (23, 21, 20, 9, 1, 0)), (22, "sgd")]
)
def test_fit_is_a_plain_loop_over_the_members(members, optimizer):
    one = learner(softmax_regression, optimizer=optimizer)
    member = np.zeros(23, bool)
    member[np.random.default_rng(members).permutation(23)[:members]] = True
    start = dense(jax.jit(one.init)(jax.random.fold_in(KEY, 0)).params)
    batches = batches_by_loop(KEY, member, epochs=2, batch_size=4)
    expected = softmax_regression_by_loop(batches, *start, INPUTS, LABELS, OPTIMIZERS[optimizer])
    for ours, theirs in zip(dense(fitted(one, KEY, member).params), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


def test_log_probs_are_those_of_evaluation():
    one = learner(Dropped)
    params = fitted(one, KEY, np.ones(23, bool))
    first, again = (jax.jit(one.log_probs)(params, INPUTS) for _ in range(2))
    assert np.array_equal(first, again)
    np.testing.assert_allclose(np.exp(first).sum(axis=1), 1, rtol=1e-5)
    logits, _ = one.net.apply(params.params, params.state, jnp.asarray(INPUTS), False)
    np.testing.assert_allclose(np.exp(first), softmax(np.asarray(logits, np.float64)), rtol=1e-4, atol=1e-6)


EXAMPLES = 30
QUICK = settings(max_examples=25, deadline=None)


def like(batch_size: int, batch_coupled: bool) -> Any:
    """A learner with this batch size, coupled or not."""
    return replace(learner(Normed if batch_coupled else small_mlp), batch_size=batch_size)


@st.composite
def memberships(draw):
    """Rows of many kinds: empty, single, sparse, leave-some-out, everyone."""
    sizes = st.sampled_from([0, 1, 8, 15, 16, 26, 27, 29, 30])
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = [random.permutation(EXAMPLES) < size for size in draw(st.lists(sizes, min_size=1, max_size=5))]
    one_key = draw(st.booleans())
    words = np.zeros((len(rows), 2), np.uint32) if one_key else random.integers(0, 9, (len(rows), 2)).astype(np.uint32)
    return np.array(rows), words


def tables_of(group: Any, membership: np.ndarray, keys: Any, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """One epoch of a group, `[models, steps, batch]`: the blocks put together."""
    tables = Tables(like(batch_size, False), group, keys[group.rows], membership[group.rows])
    blocks = list(tables.blocks(2, tables.draw(2)))
    assert len({block.weights.shape[0] for block in blocks}) <= 1
    for block in blocks:
        assert not block.weights[block.steps :].any()
    weights = np.concatenate([block.weights[: block.steps] for block in blocks])
    indices = np.concatenate([block.indices[: block.steps] for block in blocks])
    if group.shared:
        indices = np.repeat(indices[:, None], len(group.rows), axis=1)
    assert len(weights) == group.steps
    return np.moveaxis(indices, 1, 0), np.moveaxis(weights, 1, 0)


KEYS = jax.random.split(jax.random.key(2), 8)
SAME = jnp.stack([KEYS[0]] * 8)


@QUICK
@given(memberships(), st.integers(1, 40), st.booleans(), st.sampled_from([1, 64, 1 << 22]))
def test_an_epoch_visits_every_member_once_and_no_one_else(drawn, batch_size, coupled, entries):
    membership, words = drawn
    keys = KEYS[: len(membership)] if words.any() else SAME[: len(membership)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "TABLE_ENTRIES", entries)  # small tables: an epoch of many blocks
        for group in plan_groups(np.asarray(jax.random.key_data(keys)), membership, like(batch_size, coupled)):
            if group.steps == 0:
                assert not membership[group.rows].any()
                continue
            indices, weights = tables_of(group, membership, keys, batch_size)
            assert set(np.unique(weights).tolist()) <= {0.0, 1.0}
            for row, chosen, weight in zip(membership[group.rows], indices, weights, strict=True):
                visited = Counter(chosen[weight > 0].tolist())
                assert visited == Counter(np.flatnonzero(row).tolist())
                if not group.pool and row.any():
                    assert row[chosen].all()
            # Only a group that says so has a step without records.
            assert group.uneven or weights.any(axis=2).all()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5))
def test_chunks_are_of_one_size_cover_all_and_repeat_only_the_last_place(count, width, devices):
    made = chunk_places(count, width, devices)
    assert {len(chunk) for chunk in made} == {max(devices, width // devices * devices)}
    together = np.concatenate(made)
    assert together.tolist() == [min(place, count - 1) for place in range(len(together))]
    # No chunk consists of copies alone.
    assert len(together) - count < len(made[0])


RECORDS, CLASSES = 24, 3
REFIT_KEY = jax.random.key(5)
ROWS = np.concatenate([np.ones((1, RECORDS)), 1 - np.eye(RECORDS)]).astype(np.float32)
"""All records, and all but each."""
EACH = pytest.mark.parametrize("family", ["network", "naive Bayes"])


def made(family: str) -> tuple[Examples, Learner]:
    """Two columns of categories and one of numbers that have to do with the label."""
    rng = np.random.default_rng(3)
    labels = np.arange(RECORDS) % CLASSES
    columns = [
        (labels + rng.integers(0, 2, RECORDS)) % 4,
        rng.integers(0, 2, RECORDS),
        labels + rng.normal(size=RECORDS),
    ]
    kinds = (Column("kind", ("a", "b", "c", "d")), Column("flag", ("no", "yes")), Column("number"))
    table = Table(np.stack(columns, axis=1).astype(np.float32), kinds, labels, ("x", "y", "z"), "small")
    if family == "naive Bayes":
        return ordinal(table), naive_bayes(category_counts(table), CLASSES)
    examples = one_hot(table)
    how: dict[str, Any] = {"epochs": 4, "batch_size": 8, "optimizer": optax.sgd(0.05)}
    return examples, network(small_mlp, examples.inputs.shape[1:], CLASSES, **how)


@lru_cache
def asked(family: str) -> tuple[Any, Any, Any]:
    """The records, the learner, and what models of many rows say of all records, in one program."""
    examples, learner = made(family)

    def one(inputs: Any, labels: Any, weights: Any) -> Any:
        return learner.log_probs(learner.fit(REFIT_KEY, inputs, labels, weights), inputs)

    return examples, learner, (jax.jit(jax.vmap(one, in_axes=(None, None, 0))), jax.jit(one))


@EACH
def test_a_learner_trains_many_as_each_alone_and_a_record_of_weight_zero_leaves_no_trace(family: str):
    examples, learner, (many, alone) = asked(family)
    assert isinstance(learner, Learner)
    inputs, labels = examples.inputs.copy(), examples.labels.copy()
    said = np.asarray(many(inputs, labels, ROWS))
    assert said.shape == (len(ROWS), RECORDS, CLASSES)
    np.testing.assert_allclose(np.exp(said.astype(np.float64)).sum(axis=2), 1, rtol=1e-4)
    for row in (0, 4):
        np.testing.assert_allclose(alone(inputs, labels, ROWS[row]), said[row], atol=2e-4)
    inputs[7], labels[7] = inputs[8], labels[8]
    others = np.arange(RECORDS) != 7
    np.testing.assert_array_equal(np.asarray(many(inputs, labels, ROWS))[8][others], said[8][others])


@EACH
def test_leave_one_out_models_that_are_known_are_refits_and_bounds_hold(family: str):
    examples, learner, (many, _) = asked(family)
    assert isinstance(learner, LeavesOneOut) is not isinstance(learner, SteppedLearner)
    if not isinstance(learner, LeavesOneOut):
        return
    pool, records = (examples.inputs, examples.labels), np.arange(RECORDS)
    again = made(family)[1]
    assert (hash(again), again) == (hash(learner), learner)
    left, refits = learner.leave_one_out(REFIT_KEY, *pool, records, None), np.asarray(many(*pool, ROWS))
    np.testing.assert_allclose(left.with_record, refits[0], atol=1e-5)
    np.testing.assert_allclose(left.without_record, refits[1 + records, records], atol=1e-5)
    assert learner.leave_one_out(REFIT_KEY, *pool, records[:0]).without_record.shape == (0, CLASSES)
    bound = learner.dtp_bound(examples.labels, examples.labels, left) if isinstance(learner, BoundsDTP) else None
    if bound is not None:
        assert (np.abs(left.with_record - left.without_record).max(axis=1) <= bound + 1e-4).all()


@EACH
def test_records_labels_and_inputs_that_do_not_exist_are_refused(family: str):
    examples, learner, _ = asked(family)
    if not isinstance(learner, LeavesOneOut):
        return
    good = {"inputs": examples.inputs, "labels": examples.labels, "records": np.arange(2)}
    for change, said in (
        ({"records": np.array([0, RECORDS])}, f"`records` .* below {RECORDS}; got {RECORDS}"),
        ({"records": np.array([2, -1])}, "`records` .* got -1"),
        ({"labels": examples.labels + 1}, f"`labels` .* below {CLASSES}; got {CLASSES}"),
        ({"labels": examples.labels - 1}, "`labels` .* got -1"),
        ({"labels": examples.labels[:5]}, r"^`labels` has shape \(5,\) but must have"),
        ({"inputs": np.where(np.arange(RECORDS)[:, None] == 3, np.nan, examples.inputs)}, "nan|NaN|unit|lie in"),
    ):
        with pytest.raises(InputError, match=said):
            learner.leave_one_out(REFIT_KEY, **{**good, **change})


FEW, COUNTS = 9, (2, 3)
EVERYTHING = np.indices(COUNTS).reshape(len(COUNTS), -1).T.astype(np.float32)
BOUND_LABELS = np.array([0, 1, 2, 0, 1, 0])
ROUNDING = 1e-5  # refits are float32


def test_no_refit_moves_an_output_on_any_input_by_more():
    made, rng = naive_bayes(COUNTS, CLASSES, smoothing=0.3), np.random.default_rng(2)
    assert isinstance(made, BoundsDTP)
    less = jnp.ones((FEW, FEW)) - jnp.eye(FEW)

    @jax.jit
    def outputs(inputs: Any, labels: Any) -> Any:
        def of(weights: Any) -> Any:
            return made.log_probs(made.fit(REFIT_KEY, inputs, labels, weights), jnp.asarray(EVERYTHING))

        return of(jnp.ones(FEW)), jax.vmap(of)(less)

    share = 0.0
    for _ in range(60):
        inputs = EVERYTHING[rng.integers(len(EVERYTHING), size=FEW)]
        labels = np.concatenate([np.repeat(np.arange(CLASSES), 2), rng.integers(CLASSES, size=FEW - 2 * CLASSES)])
        full, without = outputs(inputs, labels.astype(np.int32))
        moved = np.abs(np.asarray(full) - np.asarray(without)).max(axis=(1, 2))
        left = made.leave_one_out(REFIT_KEY, inputs, labels, np.arange(FEW))
        bound = made.dtp_bound(labels, labels, left)
        assert bound is not None
        assert bound.shape == (FEW,)
        assert (moved <= bound + ROUNDING).all()
        share = max(share, float((moved / bound).max()))
    assert share > 0.5  # it is no idle bound


def test_nothing_is_said_where_nothing_is_proven():
    same = np.log(np.full((4, CLASSES), 1 / CLASSES))
    assert naive_bayes((2, 0, 2), CLASSES).dtp_bound(BOUND_LABELS, BOUND_LABELS[:4], LeftOut(same, same)) is None

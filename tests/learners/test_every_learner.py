"""What holds of every learner of the command line (a new one in `FAMILIES` is found), and of bounds on outputs."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaudit.cli.classifiers import FAMILIES, ClassifierOptions, make_classifier
from jaxaudit.cli.groups import RecipeFlags
from jaxaudit.cli.pdtp import PDTPOptions
from jaxaudit.data import Column, Examples, Table
from jaxaudit.errors import InputError
from jaxaudit.learners import (
    BoundsDTP,
    Learner,
    LeavesOneOut,
    LeftOut,
    SteppedLearner,
    naive_bayes,
)
from jaxaudit.learners.learner import check_left_out

RECORDS, CLASSES = 24, 3
KEY = jax.random.key(5)
RECIPE = RecipeFlags(epochs=4, batch_size=8, learning_rate=0.05, optimizer="sgd")
ROWS = np.concatenate([np.ones((1, RECORDS)), 1 - np.eye(RECORDS)]).astype(np.float32)
"""All records, and all but each."""
EACH = pytest.mark.parametrize("family", FAMILIES)


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
    options = PDTPOptions(model=ClassifierOptions(model=family), recipe=RECIPE)
    return make_classifier(options, table)[1:]


@lru_cache
def asked(family: str) -> tuple[Any, Any, Any]:
    """The records, the learner, and what models of many rows say of all records, in one program."""
    examples, learner = made(family)

    def one(inputs: Any, labels: Any, weights: Any) -> Any:
        return learner.log_probs(learner.fit(KEY, inputs, labels, weights), inputs)

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
    left, refits = learner.leave_one_out(KEY, *pool, records, None), np.asarray(many(*pool, ROWS))
    np.testing.assert_allclose(left.with_record, refits[0], atol=1e-5)
    np.testing.assert_allclose(left.without_record, refits[1 + records, records], atol=1e-5)
    assert learner.leave_one_out(KEY, *pool, records[:0]).without_record.shape == (0, CLASSES)
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
        ({"inputs": np.where(np.arange(RECORDS)[:, None] == 3, np.nan, examples.inputs)}, "nan|NaN|unit|lie in"),
    ):
        with pytest.raises(InputError, match=said):
            learner.leave_one_out(KEY, **{**good, **change})
    with pytest.raises(InputError, match=r"^`labels` has shape \(24,\) but must have \(5,\)"):
        check_left_out(examples.inputs[:5], examples.labels, np.arange(2), CLASSES)


FEW, COUNTS = 9, (2, 3)
EVERYTHING = np.indices(COUNTS).reshape(len(COUNTS), -1).T.astype(np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 0])
ROUNDING = 1e-5  # refits are float32


def test_no_refit_moves_an_output_on_any_input_by_more():
    made, rng = naive_bayes(COUNTS, CLASSES, smoothing=0.3), np.random.default_rng(2)
    assert isinstance(made, BoundsDTP)
    less = jnp.ones((FEW, FEW)) - jnp.eye(FEW)

    @jax.jit
    def outputs(inputs: Any, labels: Any) -> Any:
        def of(weights: Any) -> Any:
            return made.log_probs(made.fit(KEY, inputs, labels, weights), jnp.asarray(EVERYTHING))

        return of(jnp.ones(FEW)), jax.vmap(of)(less)

    share = 0.0
    for _ in range(60):
        inputs = EVERYTHING[rng.integers(len(EVERYTHING), size=FEW)]
        labels = np.concatenate([np.repeat(np.arange(CLASSES), 2), rng.integers(CLASSES, size=FEW - 2 * CLASSES)])
        full, without = outputs(inputs, labels.astype(np.int32))
        moved = np.abs(np.asarray(full) - np.asarray(without)).max(axis=(1, 2))
        left = made.leave_one_out(KEY, inputs, labels, np.arange(FEW))
        bound = made.dtp_bound(labels, labels, left)
        assert bound is not None
        assert bound.shape == (FEW,)
        assert (moved <= bound + ROUNDING).all()
        share = max(share, float((moved / bound).max()))
    assert share > 0.5  # it is no idle bound


def test_nothing_is_said_where_nothing_is_proven():
    same = np.log(np.full((4, CLASSES), 1 / CLASSES))
    assert naive_bayes((2, 0, 2), CLASSES).dtp_bound(LABELS, LABELS[:4], LeftOut(same, same)) is None

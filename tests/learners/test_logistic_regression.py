"""Logistic regression against scikit-learn, and each of its leave-one-out models against a refit."""

from functools import lru_cache
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from jaxaudit.errors import InputError
from jaxaudit.learners import logistic_regression

KEY = jax.random.key(29)
MODULE = import_module("jaxaudit.learners.logistic_regression")
COLUMNS = 4


def records(count, classes, seed=7):
    """Random records in [0, 1] whose classes overlap, every class with members."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count) % classes).astype(np.int32)
    centres = random.random((classes, COLUMNS))
    return np.clip(centres[labels] + random.normal(0, 0.4, (count, COLUMNS)), 0, 1).astype(np.float32), labels


def log_probs_by_sklearn(inputs, labels, asked, classes, l2=1.0):
    """Log-probabilities of a refit; -inf for a class without members."""
    inputs, asked, present = inputs.astype(np.float64), asked.astype(np.float64), np.unique(labels)
    log_probs = np.full((len(asked), classes), -np.inf)
    if len(present) == 1:
        log_probs[:, present] = 0
        return log_probs
    # Two classes left of more still have a row each here, and so half the penalty on their difference.
    strength = 1 / l2 if len(present) > 2 or classes == 2 else 2 / l2
    model = LogisticRegression(C=strength, solver="newton-cg", tol=1e-9, max_iter=1000)
    log_probs[:, present] = model.fit(inputs, labels).predict_log_proba(asked)
    return log_probs


@lru_cache
def compiled(classes, l2=1.0, tolerance=1e-7):
    learner = logistic_regression(COLUMNS, classes, l2=l2, tolerance=tolerance)

    def fit_and_ask(inputs, labels, weights, asked):
        params = learner.fit(KEY, inputs, labels, weights)
        return params, learner.log_probs(params, asked)

    return jax.jit(fit_and_ask)


def fitted(classes, inputs, labels, weights=None, l2=1.0):
    weights = np.ones(len(labels)) if weights is None else weights
    params, log_probs = compiled(classes, l2)(inputs, labels, np.asarray(weights, np.float32), inputs)
    return params, np.asarray(log_probs)


def refits(classes, inputs, labels, chosen, l2=1.0):
    return np.concatenate(
        [
            log_probs_by_sklearn(
                np.delete(inputs, record, axis=0), np.delete(labels, record), inputs[[record]], classes, l2
            )
            for record in chosen
        ]
    )


def close(ours, theirs, tolerance):
    return np.allclose(ours, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("classes", "l2"), [(2, 0.01), (3, 1.0)])
def test_fit_equals_scikit_learn(classes, l2):
    inputs, labels = records(30, classes)
    params, log_probs = fitted(classes, inputs, labels, l2=l2)
    # What float32 keeps of the parameters; the optimum itself is 100 times as exact.
    assert close(log_probs, log_probs_by_sklearn(inputs, labels, inputs, classes, l2), 1e-5)
    assert params.gradient_norm <= 1e-7
    assert params.weights.dtype == params.intercepts.dtype == jnp.float32
    assert jnp.ones(1).dtype == jnp.float32


@pytest.mark.parametrize(("classes", "l2"), [(2, 1.0), (3, 0.01)])
def test_leave_one_out_equals_refits_of_scikit_learn(classes, l2):
    inputs, labels = records(30, classes)
    chosen = np.array([4, 0, 29, 13, 4])
    left_out = logistic_regression(COLUMNS, classes, l2=l2).leave_one_out(KEY, inputs, labels, chosen)
    assert close(left_out.with_record, log_probs_by_sklearn(inputs, labels, inputs[chosen], classes, l2), 1e-6)
    assert close(left_out.without_record, refits(classes, inputs, labels, chosen, l2), 1e-5)
    assert np.abs(left_out.with_record - left_out.without_record).max() > 0.01


def test_chunks_and_preconditioners_lead_to_the_same_optimum(monkeypatch):
    inputs, labels = records(30, 3)
    learner, chosen = logistic_regression(COLUMNS, 3), np.arange(5)
    whole = learner.leave_one_out(KEY, inputs, labels, chosen)
    monkeypatch.setattr(MODULE, "CHUNK_CELLS", 2 * 3 * 30)
    monkeypatch.setattr(MODULE, "MOST_COUPLED", 29)
    told: list[tuple[int, int]] = []
    chunked = learner.leave_one_out(KEY, inputs, labels, chosen, lambda *done: told.append(done))
    assert told == [(2, 5), (4, 5), (5, 5)]
    assert close(chunked.without_record, whole.without_record, 1e-6)
    assert not np.array_equal(chunked.without_record, whole.without_record)


def test_separable_classes_converge():
    """A small penalty, and records that stand alone: one moves the model far."""
    inputs, labels = np.zeros((30, COLUMNS), np.float32), np.arange(30, dtype=np.int32) % 3
    inputs[np.arange(30), labels], inputs[:3, 3] = 1, 1
    learner = logistic_regression(COLUMNS, 3, l2=1e-3)
    left_out = learner.leave_one_out(KEY, inputs, labels, np.arange(5))
    assert close(left_out.without_record, refits(3, inputs, labels, range(5), l2=1e-3), 1e-4)
    assert left_out.with_record[np.arange(5), labels[:5]].min() > -0.01


def test_a_class_that_loses_its_last_member_has_probability_zero():
    inputs, labels = records(30, 3)
    labels[labels == 2] = 1
    labels[5] = 2
    chosen = np.array([5, 6, 7, 8, 9])
    left_out = logistic_regression(COLUMNS, 3).leave_one_out(KEY, inputs, labels, chosen)
    assert np.isneginf(left_out.without_record[0, 2])
    assert np.isfinite(left_out.with_record).all()
    assert close(left_out.without_record, refits(3, inputs, labels, chosen), 1e-6)


@pytest.mark.parametrize("members", [0, 1, 2])
def test_few_members(members):
    inputs, labels = records(30, 3)
    labels[:2] = [1, 0]
    params, log_probs = fitted(3, inputs, labels, np.arange(30) < members)
    assert params.gradient_norm <= 1e-7
    expected = log_probs_by_sklearn(inputs[:members], labels[:members], inputs, 3) if members else -np.log(3)
    assert close(log_probs, expected, 1e-5)


def test_without_its_only_record_every_class_is_as_likely():
    left_out = logistic_regression(1, 3).leave_one_out(KEY, np.ones((1, 1), np.float32), np.array([1]), np.array([0]))
    assert close(left_out.without_record, -np.log(3), 1e-12)
    assert left_out.with_record.tolist() == [[-np.inf, 0, -np.inf]]


def test_what_does_not_converge_is_told():
    inputs, labels = records(30, 3)
    learner = logistic_regression(COLUMNS, 3, tolerance=1e-30)
    with pytest.raises(
        InputError, match=r"^6 of 6 models stopped at a gradient norm of up to .*e-1., above the tolera"
    ):
        learner.leave_one_out(KEY, inputs, labels, np.arange(5))
    params, _ = compiled(3, tolerance=1e-30)(inputs, labels, np.ones(30, np.float32), inputs)
    assert 1e-30 < params.gradient_norm < 1e-10


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 2), {}, "`inputs` must be at least 1; got 0"),
        ((3, 0), {}, "`classes` must be at least 1; got 0"),
        ((3, 2), {"l2": 0.0}, "`l2` must be above 0; got 0"),
        ((3, 2), {"tolerance": -1.0}, "`tolerance` must be above 0; got -1"),
    ],
)
def test_what_no_learner_can_be_made_of(arguments, options, message):
    with pytest.raises(InputError, match=f"^{message}"):
        logistic_regression(*arguments, **options)

"""Bounds of DTP by hand and by brute force, and what is refused."""

import math

import numpy as np
import pytest
from support.references import log_of

from jaxaudit.errors import InputError
from jaxaudit.kernels import dtp_bound, log_odds_dtp_bound, smoothed_naive_bayes_delta
from jaxaudit.metrics import pdtp


def test_theorem_6_2_by_hand():
    assert np.array_equal(dtp_bound(np.array([0.0, 0.7, np.inf]), 1.0), [0.0, 0.7, np.inf])
    np.testing.assert_allclose(dtp_bound(np.array([0.1, 0.7]), 1.5), [math.log(1.5), 0.7])


def test_log_odds_by_hand():
    outputs = np.array([[0.8, 0.1, 0.1], [0.0, 0.5, 0.5], [0.3, 0.7, 0.0]]), np.full((3, 3), [[0.6, 0.2, 0.2]])
    bounds = log_odds_dtp_bound(log_of(outputs[0]), log_of(outputs[1]), np.array([0, 0, 1]), 1.1)
    np.testing.assert_allclose(bounds, [math.log(4 / 1.5), np.inf, math.log((7 / 3) / 0.25)])
    same = log_odds_dtp_bound(log_of(outputs[1]), log_of(outputs[1]), np.array([0, 1, 2]), 1.1)
    np.testing.assert_allclose(same, math.log(1.1))
    certain = np.array([[0.0, -np.inf]])
    assert log_odds_dtp_bound(certain, certain, np.array([0])) == np.inf  # nothing is known of the odds
    assert smoothed_naive_bayes_delta(4, (2, 3), 0.5) == pytest.approx((5 / 4) * (5.5 / 4.5))


def test_log_odds_of_impossible_outputs_are_refused(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    for shape, labels, parameter in (
        ((2, 2), [0, 0, 0], "without_record"),
        ((3, 2), [0, 0, 2], "labels"),
        ((3, 2), [0, 0], "labels"),
        ((3, 2), [0, -1, 0], "labels"),
    ):
        with pytest.raises(InputError, match=f"`{parameter}`"):
            log_odds_dtp_bound(np.zeros((3, 2)), np.zeros(shape), np.array(labels))
    for delta in (0.9, np.nan):
        with pytest.raises(InputError, match="`delta` must be at least 1"):
            log_odds_dtp_bound(np.zeros((1, 2)), np.zeros((1, 2)), np.array([0]), delta)


@pytest.mark.parametrize(
    ("smallest", "counts", "smoothing", "parameter"),
    [
        (0, (2,), 1.0, "smallest_class"),
        (1, (), 1.0, "columns"),
        (1, (0, 2), 1.0, "category_counts"),
        (1, (2,), 0.0, "smoothing"),
    ],
)
def test_a_smoothed_constant_of_nothing_is_refused(smallest, counts, smoothing, parameter):
    with pytest.raises(InputError, match=f"^`{parameter}` must be"):
        smoothed_naive_bayes_delta(smallest, counts, smoothing)


# By brute force: slow learners, counts of records in float64, that give outputs [inputs, classes] at every input.


def naive_bayes(x, y, counts, classes, smoothing):
    """The joint, prod p(x_i | y) p(y)."""
    inputs = np.indices(counts).reshape(len(counts), -1).T
    joint = np.zeros((len(inputs), classes))
    for label in set(y.tolist()):
        members = x[y == label]
        for i, row in enumerate(inputs):
            value = len(members) / len(y)
            for column, count in enumerate(counts):
                same = np.sum(members[:, column] == row[column])
                value *= (same + smoothing) / (len(members) + smoothing * count)
            joint[i, label] = value
    return joint


def normalised(outputs):
    """Posteriors; uniform where no class has any probability."""
    total = outputs.sum(axis=1, keepdims=True)
    return np.divide(outputs, total, out=np.full(outputs.shape, 1 / outputs.shape[1]), where=total > 0)


def bound_and_dtp(learner, x, y, t, counts, classes, delta, **options):
    """The bound that the outputs at record t give of its DTP, and its DTP over every input."""
    kept = np.arange(len(y)) != t
    a, b = (log_of(normalised(learner(x[k], y[k], counts, classes, **options))) for k in (kept | True, kept))
    at = np.flatnonzero((x[t] == np.indices(counts).reshape(len(counts), -1).T).all(axis=1))
    return log_odds_dtp_bound(a[at], b[at], y[[t]], delta)[0], pdtp(a, b, bins=0).values.max()


def test_delta_is_needed():
    """All of class 0 agree: without one of them, an input that differs in every column is more likely of class 0."""
    x, y = np.repeat([[0] * 6, [1] * 6], [10, 50], axis=0), np.repeat([0, 1], [10, 50])
    delta = smoothed_naive_bayes_delta(10, (2,) * 6, 1.0)
    bounds, values = zip(
        *(bound_and_dtp(naive_bayes, x, y, 0, (2,) * 6, 2, least, smoothing=1.0) for least in (1.0, delta)), strict=True
    )
    assert values[0] > bounds[0] + 0.1
    assert 0.7 * bounds[1] < values[1] <= bounds[1]

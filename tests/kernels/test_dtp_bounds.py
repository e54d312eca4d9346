"""Bounds of DTP by hand, and what is refused."""

import math

import numpy as np
import pytest
from support.references import log_of

from jaxaudit.errors import InputError
from jaxaudit.kernels import dtp_bound, log_odds_dtp_bound, smoothed_naive_bayes_delta


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


def test_delta_is_needed():
    """Six columns of two categories: class 0 is all zeros, 50 records of class 1 are all ones. Without one of ten
    records of class 0, an input that differs from it in every column is more likely of class 0."""

    def of_zeros_and_of_ones(records: int) -> np.ndarray:
        """The log-posterior of both inputs, by counts smoothed by one."""
        first = records / (records + 50) * np.array([records + 1, 1]) ** 6.0 / (records + 2) ** 6
        second = 50 / (records + 50) * np.array([1, 51]) ** 6.0 / 52**6
        return np.log(np.stack([first, second], axis=1) / (first + second)[:, None])

    a, b = of_zeros_and_of_ones(10), of_zeros_and_of_ones(9)
    dtp, delta = np.abs(a - b).max(), smoothed_naive_bayes_delta(10, (2,) * 6, 1.0)
    bounds = [log_odds_dtp_bound(a[:1], b[:1], np.array([0]), least)[0] for least in (1.0, delta)]
    assert dtp > bounds[0] + 0.1
    assert 0.7 * bounds[1] < dtp <= bounds[1]

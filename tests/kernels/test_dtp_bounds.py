"""Bounds of DTP by hand, and what is refused; `tests/test_experiments_stability.py` tries them by brute force."""

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
    for shape, labels in (((2, 2), [0, 0, 0]), ((3, 2), [0, 0, 2]), ((3, 2), [0, 0]), ((3, 2), [0, -1, 0])):
        with pytest.raises(InputError, match=r"got \(3, 2\) and"):
            log_odds_dtp_bound(np.zeros((3, 2)), np.zeros(shape), np.array(labels))
    for delta in (0.9, np.nan):
        with pytest.raises(InputError, match="PDTP of at least 0 and a delta of at least 1"):
            log_odds_dtp_bound(np.zeros((1, 2)), np.zeros((1, 2)), np.array([0]), delta)


@pytest.mark.parametrize(
    ("smallest", "counts", "smoothing"), [(0, (2,), 1.0), (1, (), 1.0), (1, (0, 2), 1.0), (1, (2,), 0.0)]
)
def test_a_smoothed_constant_of_nothing_is_refused(smallest, counts, smoothing):
    with pytest.raises(InputError, match=rf"^no stability constant for {smallest} records in the smallest class, cat"):
        smoothed_naive_bayes_delta(smallest, counts, smoothing)

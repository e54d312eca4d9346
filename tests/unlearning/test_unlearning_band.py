"""The band of retrained models: exact where it says exact, and no more often wrong than it says."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from jaxaudit.metrics import Place, place


def by_all_signs(method: np.ndarray, retrained: np.ndarray) -> float:
    """The p-value by trying every pattern of signs."""
    ranks = rankdata(np.concatenate([method, retrained]))
    differences = ranks[: len(method)] - ranks[len(method) :]
    sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=len(method))]
    return float(np.mean(np.array(sums) >= abs(differences.sum()) - 1e-9))


scores = st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.5, 3.0, np.inf]) | st.floats(-5, 5), min_size=2, max_size=8)


@settings(max_examples=30)
@given(scores, st.randoms(use_true_random=False))
def test_the_p_value_counts_all_signs(values, random):
    method = np.array(values)
    retrained = np.array([random.choice([value, value + random.gauss(0, 1)]) for value in values])
    found = place(method, retrained)
    assert found.p_value == pytest.approx(by_all_signs(method, retrained))
    mirrored = place(-method, -retrained)
    assert (mirrored.share_below, mirrored.share_above) == (found.share_above, found.share_below)
    opposite = {"above": "below", "below": "above"}
    assert mirrored.verdict == opposite.get(found.verdict, found.verdict)
    assert mirrored.p_value == pytest.approx(found.p_value)


def test_hand_cases():
    retrained = np.array([1.0, 2.0, 3.0, 4.0])
    same = place(retrained, retrained)
    assert (same.p_value, same.verdict) == (1.0, "too few seeds")
    # Each seed is compared with the others: 1 is below {2, 3, 4}, 4 above {1, 2, 3}.
    assert (same.share_below, same.share_above) == (0.25, 0.25)
    far = place(retrained + 10, retrained)
    assert (far.share_above, far.share_below, far.p_value) == (1.0, 0.0, 2 / 2**4)
    assert (far.retrained_low, far.retrained_high) == (1.0, 4.0)
    assert far.verdict == "too few seeds"
    verdicts = [
        place(moved, retrained, threshold=2 / 2**4).verdict for moved in (retrained + 10, retrained - 10, retrained)
    ]
    assert verdicts == ["above", "below", "not distinguishable"]
    assert place(np.full(4, np.inf), retrained).p_value == 2 / 2**4
    assert place(np.zeros(4), np.zeros(4)) == Place("too few seeds", 1.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.outer
def test_a_method_as_good_as_retraining_is_seldom_called_different():
    """2,000 draws of models that share something with the retrained one of their seed, at a level of 0.05.

    More than 130 rejections would have probability below 0.001 were the rate 0.05 (binomial); the share outside the
    band has mean at most 2 / 20, and lies above 0.11 with probability below 0.001 (standard error 0.003).
    """
    random = np.random.default_rng(17)
    rejected, outside = 0, 0.0
    for _ in range(2000):
        shared = random.normal(size=20)
        found = place(shared + random.normal(size=20), shared + random.normal(size=20))
        rejected += found.p_value <= 0.05
        outside += (found.share_below + found.share_above) / 2000
    assert rejected <= 130
    assert outside <= 0.11
    assert rejected >= 50  # and the test is not idle: nearly exact for continuous scores

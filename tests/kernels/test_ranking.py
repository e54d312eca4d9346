"""ROC curves, areas and resampled counts: by pairs, by scikit-learn, and by theory."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from jaxaudit.errors import InputError
from jaxaudit.kernels import area, auc, cluster_counts, mid_ranks, power, rank, running_counts

SCORES = st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 3.0, np.inf]) | st.floats(-2, 2)


@st.composite
def scored(draw):
    """Scores with ties and infinities, and a truth that has both groups."""
    scores = draw(st.lists(SCORES, min_size=2, max_size=12))
    truth = draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    truth[:2] = draw(st.permutations([True, False]))
    return np.array(scores), np.array(truth)


def auc_by_pairs(scores, truth):
    pairs = [(a, b) for a in scores[truth] for b in scores[~truth]]
    return Fraction(sum(2 * (a > b) + (a == b) for a, b in pairs), 2 * len(pairs))


def power_by_thresholds(scores, truth, level):
    """Over every rule `score >= threshold`, and the one that calls nothing."""
    best = (0.0, 0.0)
    for threshold in scores:
        called = scores >= threshold
        false, true = np.mean(called[~truth]), np.mean(called[truth])
        if false <= level + 1e-12:
            best = max(best, (true, false))
    return best


@settings(max_examples=40, deadline=None)
@given(scored())
def test_the_area_is_the_share_of_pairs_in_order(case):
    scores, truth = case
    assert auc(scores, truth) == float(auc_by_pairs(scores, truth))
    np.testing.assert_allclose(auc(scores, ~truth), 1 - auc(scores, truth), rtol=1e-15, atol=1e-15)
    finite = np.nan_to_num(scores, posinf=10.0, neginf=-10.0)
    np.testing.assert_allclose(auc(scores, truth), roc_auc_score(truth, finite), rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(scored(), st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.99, 1.0]))
def test_the_rate_at_a_limit_is_the_best_of_all_thresholds(case, level):
    scores, truth = case
    counts = running_counts(rank(scores, truth), np.ones((1, len(scores)), np.int64))
    np.testing.assert_allclose(power(*counts, level)[:, 0], power_by_thresholds(scores, truth, level), rtol=1e-15)


@settings(max_examples=30, deadline=None)
@given(scored(), st.integers(0, 2**32))
def test_counts_are_records_that_occur_so_often(case, seed):
    scores, truth = case
    counts = np.random.default_rng(seed).integers(0, 3, (3, len(scores)))
    running = running_counts(rank(scores, truth), counts)
    for r, row in enumerate(counts):
        repeated, groups = np.repeat(scores, row), np.repeat(truth, row)
        assert running[0][r, -1] == groups.sum()
        assert running[1][r, -1] == (~groups).sum()
        if groups.all() or not groups.any():
            assert np.isnan(area(*running)[r])
            assert np.isnan(power(*running, 0.5)[:, r]).all()
        else:
            assert area(*running)[r] == auc(repeated, groups)
            np.testing.assert_allclose(power(*running, 0.3)[:, r], power_by_thresholds(repeated, groups, 0.3))


def test_drawn_clusters_are_multinomial():
    clusters, replicates = 5, 4000
    counts = cluster_counts(np.random.default_rng(4), clusters, replicates)
    assert (counts.sum(axis=1) == clusters).all()
    # Chi-square of each cell's distribution against Binomial(5, 1/5), at 1e-6 over the 5 cells together.
    expected = stats.binom.pmf(np.arange(clusters + 1), clusters, 1 / clusters) * replicates
    expected = np.append(expected[:3], expected[3:].sum())
    for column in counts.T:
        found = np.bincount(np.minimum(column, 3), minlength=4)
        assert np.sum((found - expected) ** 2 / expected) < stats.chi2.isf(2e-7, 3)
    assert len(np.unique(counts, axis=0)) > 100


def test_scores_that_cannot_be_ranked_are_refused(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    both = np.array([True, False])
    with pytest.raises(InputError, match=r"^`truth` has shape \(2,\) but must have \(3,\)"):
        rank(np.zeros(3), both)
    with pytest.raises(
        InputError, match=r"^`scores` must be a number; got nan, as 1 of 2 numbers: did training diverge"
    ):
        auc(np.array([np.nan, 1.0]), both)
    for one, members in ((both | True, 2), (both & False, 0)):
        with pytest.raises(InputError, match=rf"^{members} of 2 records are members: an attack is judged on"):
            rank(np.zeros(2), one)


@given(st.lists(SCORES | st.just(np.nan), min_size=1, max_size=12), st.integers(1, 3))
def test_mid_ranks_are_those_of_scipy(scores, columns):
    values = np.stack([np.roll(scores, 1 - column) for column in range(columns)], axis=1)
    for each in (values, values[:, 0]):
        np.testing.assert_array_equal(mid_ranks(each), stats.rankdata(each, axis=0))

"""Membership scores: what they agree with, and what leaves them unchanged."""

import numpy as np
import pytest
from scipy import special
from sklearn.linear_model import LogisticRegression
from support.simulated_shadows import halves, provider

from jaxaudit.errors import InputError
from jaxaudit.metrics.scores import (
    RIDGE,
    cut,
    fit_weights,
    log_odds,
    membership_scores,
    profile,
    profiles_of_others,
)

GENERATOR = np.random.default_rng(8)
RECORDS = provider(GENERATOR, 40, 4.0)
MEMBERSHIP = halves(GENERATOR, 11, 40, 20)
MODELS = RECORDS.outputs(GENERATOR, MEMBERSHIP)
TARGET, SHADOWS, THEIRS = MODELS[0], MODELS[1:], MEMBERSHIP[1:]


def test_profiles_of_others_are_profiles_without_the_model() -> None:
    for index, fast in enumerate(profiles_of_others(MODELS, MEMBERSHIP)):
        slow = profile(np.delete(MODELS, index, axis=0), np.delete(MEMBERSHIP, index, axis=0))
        for one, other in zip(fast, slow, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_a_record_that_no_model_has_gets_the_typical_gap() -> None:
    membership = MEMBERSHIP.copy()
    membership[:, 0] = False
    found = profile(MODELS, membership)
    gaps = found.inside - found.outside
    assert found.outside[0] == pytest.approx(MODELS[:, 0].mean())
    assert gaps[1:].min() <= gaps[0] <= gaps[1:].max()


def test_the_regression_is_scikit_learns() -> None:
    random = np.random.default_rng(9)
    evidence = np.concatenate([np.ones((300, 1)), random.normal(size=(300, 3))], axis=1)
    truth = random.random(300) < special.expit(evidence @ [0.3, 1.0, -2.0, 0.0])
    theirs = LogisticRegression(C=1 / RIDGE, tol=1e-10, max_iter=1000).fit(evidence[:, 1:], truth)
    found = fit_weights(evidence, truth)
    np.testing.assert_allclose(found, [*theirs.intercept_, *theirs.coef_[0]], atol=1e-4)


def test_reordered_records_are_scored_alike() -> None:
    """What makes the permutation test exact: a score depends on the record and not on its place."""
    order = np.random.default_rng(10).permutation(40)
    there = membership_scores(TARGET[order], SHADOWS[:, order], THEIRS[:, order])
    here = membership_scores(TARGET, SHADOWS, THEIRS)
    np.testing.assert_allclose(there.target, here.target[order], rtol=1e-6)


def test_infinite_log_odds_count_as_20() -> None:
    infinite = np.where(TARGET > 1, np.inf, TARGET)
    np.testing.assert_array_equal(
        membership_scores(infinite, SHADOWS, THEIRS).target, membership_scores(cut(infinite), SHADOWS, THEIRS).target
    )


@pytest.mark.parametrize(
    ("target", "shadows", "membership", "message"),
    [
        (TARGET[:-1], SHADOWS, THEIRS, "one column per record"),
        (TARGET, SHADOWS[:3], THEIRS[:3], "too few to tell what use changes"),
        (np.where(TARGET > 1, np.nan, TARGET), SHADOWS, THEIRS, "are NaN"),
        (TARGET, SHADOWS, np.ones_like(THEIRS), "random half"),
    ],
)
def test_what_cannot_be_scored_is_refused(target, shadows, membership, message, monkeypatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # as outside tests
    with pytest.raises(InputError, match=message):
        membership_scores(target, shadows, membership)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_log_odds_are_those_of_scipys_logsumexp_to_the_bit(kind: type):
    """Ties, infinities and one class among them."""
    random = np.random.default_rng(4)
    values = (5 * random.normal(size=(3, 500, 6))).round(1).astype(kind)
    values[random.random(values.shape) < 0.2] = -np.inf
    values[0, :20] = -np.inf
    values[1, :5, 2] = np.inf
    labels = random.integers(0, 6, 500)
    own = np.arange(6) == labels[:, None]
    inside = np.take_along_axis(values, np.broadcast_to(labels[:, None], (3, 500, 1)), axis=-1)[..., 0]
    with np.errstate(invalid="ignore"):
        slow = inside - special.logsumexp(np.where(own, -np.inf, values), axis=-1)
        np.testing.assert_array_equal(log_odds(values, labels), slow)

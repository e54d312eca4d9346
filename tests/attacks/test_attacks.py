"""The two targeted attacks: their sums written out, every 0."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.references import log_of

from jaxaudit.attacks import distance_scores, frequency_scores
from jaxaudit.errors import InputError


def place(probability: float, bins: int) -> int:
    return min(int(probability * bins * (1 + 1e-6)), bins - 1)


def outputs(seed: int, shadows: int, targets: int, classes: int) -> list[np.ndarray]:
    """Probabilities of the attacked model, of models with the target, and of models without, not far from it."""
    random = np.random.default_rng(seed)
    q = random.dirichlet(np.ones(classes), targets)
    near = np.array([random.dirichlet(30 * row + 0.3, (2, shadows)) for row in q]).reshape(targets, 2, shadows, classes)
    return [q, *near.transpose(1, 2, 0, 3)]


def centres(probabilities: np.ndarray, bins: int) -> np.ndarray:
    flat = [(place(p, bins) + 0.5) / bins if bins else p for p in probabilities.ravel()]
    return np.reshape(flat, probabilities.shape)


def kl(q: np.ndarray, p: np.ndarray) -> float:
    return sum(a * math.log(a / b) for a, b in zip(q, p, strict=True))


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 4), st.integers(1, 5), st.sampled_from([0, 10, 100]))
def test_the_distance_score_is_the_difference_of_divergences(seed, shadows, targets, classes, bins):
    cases = outputs(seed, shadows, targets, classes)
    found = distance_scores(*map(log_of, cases), bins=bins)
    q, p_in, p_out = (centres(case, bins) for case in cases)
    for t in range(targets):
        mean_in, mean_out = (sum(p[j, t] for j in range(shadows)) / shadows for p in (p_in, p_out))
        np.testing.assert_allclose(found[t], kl(q[t], mean_out) - kl(q[t], mean_in), rtol=1e-9, atol=1e-12)
    assert found.shape == (targets,)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 4), st.integers(1, 5), st.sampled_from([1, 10, 100]))
def test_the_frequency_score_is_the_log_of_a_product_of_ratios(seed, shadows, targets, classes, bins):
    q, p_in, p_out = outputs(seed, shadows, targets, classes)
    for smoothing in (1.0, 0.5):
        found = frequency_scores(*map(log_of, (q, p_in, p_out)), bins=bins, smoothing=smoothing)
        for t in range(targets):
            product = 1.0
            for y in range(classes):
                o_in, o_out = (
                    sum(place(p[j, t, y], bins) == place(q[t, y], bins) for j in range(shadows)) for p in (p_in, p_out)
                )
                product *= (o_in + smoothing) / (o_out + smoothing)
            np.testing.assert_allclose(found[t], math.log(product), rtol=1e-9, atol=1e-12)


# Zeros: attacked model, shadows with, shadows without -> score.


@pytest.mark.parametrize(
    ("q", "p_in", "p_out", "score"),
    [
        ([1.0, 0.0], [0.5, 0.5], [0.5, 0.5], 0.0),
        ([1.0, 0.0], [1.0, 0.0], [0.5, 0.5], math.log(2)),  # a class with q = 0 says nothing
        ([0.5, 0.5], [0.5, 0.5], [1.0, 0.0], math.inf),
        ([0.5, 0.5], [1.0, 0.0], [0.0, 1.0], 0.0),  # neither could have given q
        ([0.5, 0.5], [0.5, 0.0], [0.25, 0.0], 0.5 * math.log(2)),  # a class both miss says nothing
    ],
)
def test_exact_divergences_give_every_zero_a_meaning(q, p_in, p_out, score):
    given = log_of([q]), log_of([[p_in]]), log_of([[p_out]])
    np.testing.assert_allclose(distance_scores(*given, bins=0), [score], rtol=1e-15)
    np.testing.assert_allclose(distance_scores(given[0], given[2], given[1], bins=0), [-score], rtol=1e-15)
    assert np.isfinite(distance_scores(*given)).all()


def test_counts_without_smoothing_give_every_zero_a_meaning():
    for p_in, p_out, score in (
        ([0.9, 0.1], [0.5, 0.5], math.inf),
        ([0.5, 0.5], [0.9, 0.1], -math.inf),
        ([0.9, 0.5], [0.5, 0.1], 0.0),
        ([0.5, 0.5], [0.3, 0.7], 0.0),
        ([0.9, 0.1], [0.9, 0.1], 0.0),
    ):
        found = frequency_scores(log_of([[0.9, 0.1]]), log_of([[p_in]]), log_of([[p_out]]), smoothing=0.0)
        assert found.tolist() == [score]


# What is refused.

ONE = log_of([[0.5, 0.5]])


def test_bins_and_smoothing_that_count_nothing_are_refused():
    given = ONE, ONE[None], ONE[None]
    for bins in (0, -1):
        with pytest.raises(InputError, match=rf"^probabilities .* {bins} bins"):
            frequency_scores(*given, bins=bins)
    with pytest.raises(InputError, match=r"^probabilities .* -1 bins"):
        distance_scores(*given, bins=-1)
    for smoothing in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match=r"^smoothing must be a number of at least 0; got"):
            frequency_scores(*given, smoothing=smoothing)

"""Which design a target resembles: against a slow twin, by construction, and where it cannot be told."""

import numpy as np
import pytest
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.resemblance import resemblance

DESIGNS, MODELS, RECORDS = 3, 18, 60


def made(apart: float, seed: int = 3) -> tuple[np.ndarray, ...]:
    """Models of three designs, each `apart` from the next, and the training sets that half of each record is in."""
    random = np.random.default_rng(seed)
    designs = np.arange(MODELS) % DESIGNS
    membership = random.random((MODELS, RECORDS)) < 0.5
    level = random.normal(1, 2, RECORDS)
    shadows = random.normal(size=(MODELS, RECORDS)) + level + apart * designs[:, None] + 2 * membership
    return random.normal(size=RECORDS) + level + apart, shadows, membership, designs


def slow_likelihood(target: np.ndarray, shadows: np.ndarray, membership: np.ndarray) -> float:
    """Record by record, with SciPy's normal density."""
    known = [np.flatnonzero(~membership[:, record]) for record in range(len(target))]
    several = [record for record in range(len(target)) if len(known[record]) > 1]
    variance = np.mean([shadows[known[record], record].var(ddof=1) for record in several]) + 1e-9
    densities = [
        stats.norm.logpdf(
            target[record],
            shadows[known[record], record].mean(),
            np.sqrt(variance * (1 + 1 / len(known[record]))),
        )
        for record in several
    ]
    return float(np.mean(densities))


def test_likelihoods_are_those_of_the_slow_twin():
    target, shadows, membership, designs = made(1.0)
    found = resemblance(target, shadows, membership, designs)
    wanted = [slow_likelihood(target, shadows[designs == d], membership[designs == d]) for d in range(DESIGNS)]
    np.testing.assert_allclose(found.likelihoods - np.log(2 * np.pi) / 2, wanted, rtol=1e-10)


def test_a_design_that_stands_apart_is_recognised():
    found = resemblance(*made(3.0))
    assert (found.design, found.recognised) == (1, 1.0)


def test_designs_that_are_the_same_are_recognised_as_often_as_by_chance():
    """Of 180 models of three equal designs, more than 84 right has a probability below 1e-4."""
    right = sum(MODELS * resemblance(*made(0.0, seed)).recognised for seed in range(10))
    assert right <= stats.binom.isf(1e-4, 10 * MODELS, 1 / DESIGNS)


def test_one_model_has_no_spread():
    target, shadows, membership, designs = made(1.0)
    with pytest.raises(InputError, match="1 shadow models"):
        resemblance(target, shadows[:4], membership[:4], designs[:4])

"""Experiments on groups: made-up worlds, how errors and shares are counted."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.group_rates import (
    QUERY,
    RECORDS,
    WORLDS,
    errors,
    made,
    p_values,
    rates,
)
from experiments.used_share_methods import adjusted_count
from jaxaudit.errors import InputError


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_has_the_groups_that_it_says(name: str) -> None:
    scores = made(np.random.default_rng(1), WORLDS[name], 3, 4, 5)
    sizes = np.bincount(scores.groups)
    assert sizes.tolist() == [RECORDS] * (QUERY - 1) + [WORLDS[name].records] + [RECORDS] * 4
    assert (scores.unused.shape, scores.size) == ((3, len(scores.groups)), int(sizes[:QUERY].sum()))
    assert p_values(scores).shape == (QUERY,)


def test_errors_are_those_of_innocent_groups() -> None:
    found = np.full(QUERY, 0.9)
    found[:2], found[-1] = 1e-4, 0.004
    table = errors(found, 5)
    assert np.flatnonzero(table.accused).tolist() == [0, 1]
    assert np.flatnonzero(table.suspected).tolist() == [0, 1, QUERY - 1]
    counted = rates([table, errors(np.ones(QUERY), 5)])
    assert (counted["any accused"], counted["any suspected"], counted["last"]) == (0, 1, 1)
    assert counted["false share"] == pytest.approx((1 / 3 + 0) / 2)
    assert counted["found"] == pytest.approx(2 / 10)
    assert rates([errors(found, 0)])["found"] is None


def world(seed: int, models: int, records: int, decimals: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of members one higher than those of others, rounded so that some are tied, one of them unknown."""
    random = np.random.default_rng(seed)
    membership = random.random((models, records)) < 0.5
    membership[0, :2] = True, False
    shadows = (random.normal(size=membership.shape) + membership).round(decimals)
    shadows[:, -1] = np.nan
    target = (random.normal(size=records) + (random.random(records) < 0.3)).round(decimals)
    target[-1] = np.nan
    return target, shadows, membership


def twin(target: np.ndarray, shadows: np.ndarray, membership: np.ndarray) -> tuple[Fraction, float] | None:
    """Every score as a threshold in turn, the highest first; a mean over records of the paper's estimates."""
    pairs = [(s, m) for s, m in zip(shadows.ravel(), membership.ravel(), strict=True) if not np.isnan(s)]
    best, found = Fraction(0), None
    for threshold in sorted({score for score, _ in pairs}, reverse=True):
        rates = []
        for side in (True, False):
            calls = [score >= threshold for score, member in pairs if member == side]
            rates.append(Fraction(sum(calls), len(calls)))
        if rates[0] - rates[1] > best:
            best = rates[0] - rates[1]
            known = [score for score in target if not np.isnan(score)]
            each = [(int(score >= threshold) - rates[1]) / (rates[0] - rates[1]) for score in known]
            found = sum(each, Fraction(0)) / len(each), threshold
    return found


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(3, 12), st.sampled_from([0, 1, 9]))
def test_it_is_the_mean_of_the_papers_estimates(seed: int, models: int, records: int, decimals: int):
    target, shadows, membership = world(seed, models, records, decimals)
    slow = twin(target, shadows, membership)
    if slow is None:
        with pytest.raises(InputError):
            adjusted_count(target, shadows, membership)
        return
    found = adjusted_count(target, shadows, membership)
    assert found.threshold == slow[1]
    # A quotient of two differences of rates of at most a few dozen records.
    assert found.share == pytest.approx(float(slow[0]), rel=1e-12, abs=1e-12)

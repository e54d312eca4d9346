"""Experiments on groups: made-up worlds, how errors and shares are counted."""

import inspect
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from experiments.group_rates import (
    MEMORY,
    QUERY,
    RECORDS,
    WORLDS,
    World,
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


def test_use_raises_the_groups_that_were_used_and_its_spill_the_others() -> None:
    random, apart = np.random.default_rng(2), []
    for _ in range(300):
        scores = made(random, World(spill=2.0), 8, 4, 5)
        apart.append(np.bincount(scores.groups, scores.target - scores.unused.mean(axis=0)) / RECORDS)
    means = np.mean(apart, axis=0)
    # The standard deviation of a mean over 300 tables is below 0.2, with the shifts of models.
    assert means[:5] == pytest.approx(MEMORY, abs=0.8)
    assert means[5:] == pytest.approx(2.0, abs=0.8)


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


SURE = 1e-4
"""A correct estimator fails the statistical test of this file for one key in ten thousand; the key is fixed."""


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


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_its_mean_over_targets_like_the_shadow_models_is_the_used_share(share: float):
    random, targets, records = np.random.default_rng(11), 60, 100
    membership = random.random((100, records)) < 0.5
    shadows = random.normal(size=membership.shape) + membership
    used = np.arange(records) < round(share * records)
    shares = [adjusted_count(random.normal(size=records) + used, shadows, membership).share for _ in range(targets)]
    # The rates, of 5,000 scores each, have a standard error of .007, which all targets share: .03 of the share.
    error = np.hypot(np.std(shares, ddof=1) / np.sqrt(targets), 0.03)
    assert abs(np.mean(shares) - share) < stats.norm.isf(SURE / 2) * error


@pytest.mark.parametrize(
    ("target", "shadows", "membership", "numbers"),
    [
        (np.zeros(3), np.zeros((2, 4)), np.ones((2, 4), bool), ("(3,)", "(2, 4)")),
        (np.zeros(4), np.zeros((2, 4)), np.ones((3, 4), bool), ("(2, 4)", "(3, 4)")),
        (np.full(2, np.nan), np.array([[1.0, 0.0]]), np.array([[True, False]]), ("0 records", "1 members")),
        (np.zeros(2), np.array([[1.0, 0.0]]), np.array([[True, True]]), ("2 members", "0 non-members")),
        (np.zeros(2), np.array([[1.0, np.nan]]), np.array([[True, False]]), ("1 members", "0 non-members")),
        (np.zeros(2), np.array([[1.0, 1.0]]), np.array([[True, False]]), ("TPR = FPR", "1 members")),
        (np.zeros(2), np.array([[0.0, 1.0]]), np.array([[True, False]]), ("TPR = FPR", "1 non-members")),
    ],
)
def test_what_cannot_be_adjusted_is_refused(target, shadows, membership, numbers):
    # Without the tests' own check of shapes, which comes first.
    plain = inspect.unwrap(adjusted_count)
    with pytest.raises(InputError) as refused:
        plain(target, shadows, membership)
    assert all(number in str(refused.value) for number in numbers)

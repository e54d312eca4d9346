"""A holdout or a reference that was used is found; one that was not is said to be no more often than stated."""

import numpy as np
import pytest
from scipy import stats
from support.simulated_shadows import halves, provider

from jaxaudit.metrics.reference import reference_test
from jaxaudit.metrics.resemblance import bound_of_one_more, holdout_used
from jaxaudit.metrics.scores import membership_scores
from jaxaudit.metrics.usage import Usage

SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
ALPHA, TRIALS, SIZE = 0.05, 80, 60


def test_one_more_of_the_same_kind_exceeds_the_bound_as_often_as_stated() -> None:
    draws = np.random.default_rng(1).normal(3, 2, (2000, 8))
    above = sum(row[0] > bound_of_one_more(row[1:], ALPHA) for row in draws)
    assert stats.binom.ppf(SURE, len(draws), ALPHA) <= above <= stats.binom.ppf(1 - SURE, len(draws), ALPHA)


# The holdout.


def held(trial: int, gap: float, *, used: bool, apart: float = 0.0) -> tuple[str, ...]:
    """The doubts of one target. `gap`: most of what a model remembers of a record; `apart`: how far models are moved.

    Both are in standard deviations of an output around its record's level.
    """
    generator = np.random.default_rng([9, trial])
    records, membership = provider(generator, 2 * SIZE, gap), halves(generator, 30, 2 * SIZE, SIZE)
    moved = apart * generator.normal(size=(31, 1))
    shadows = records.outputs(generator, membership) + moved[1:]
    target = records.outputs(generator, np.full(2 * SIZE, used)) + moved[0]
    return holdout_used(membership_scores(target, shadows, membership), membership, SIZE, 0.25)


@pytest.mark.outer
@pytest.mark.parametrize("apart", [0.0, 0.3])
@pytest.mark.parametrize("gap", [0.1, 0.2, 0.6, 2.0])
def test_an_unused_holdout_is_doubted_no_more_often_than_stated(gap: float, apart: float) -> None:
    doubted = sum(bool(held(trial, gap, used=False, apart=apart)) for trial in range(TRIALS))
    assert doubted <= stats.binom.ppf(1 - SURE, TRIALS, ALPHA)


@pytest.mark.outer
def test_nothing_is_doubted_where_training_leaves_no_trace() -> None:
    assert not any(held(trial, 0.0, used=used) for trial in range(TRIALS // 2) for used in (False, True))


@pytest.mark.outer
@pytest.mark.parametrize("apart", [0.0, 0.3])
def test_a_used_holdout_is_doubted_where_memory_is_strong(apart: float) -> None:
    found = [held(trial, 4.0, used=True, apart=apart) for trial in range(20)]
    assert sum(bool(each) for each in found) == 20
    ((words,), *_) = found
    for part in ("may have been trained on the holdout", "another recipe", "might then not be detected"):
        assert part in words


# A reference.


def referred(trial: int, query: float, reference: float, *, apart: float = 0.0) -> Usage:
    """A target that used these shares of 100 query records and of 120 reference records."""
    generator = np.random.default_rng([31, trial])
    asked, known = 100, 120
    records = provider(generator, asked + known, 4.0)
    counts = [*[0] * 39, *[asked // 2] * 10, *[asked] * 19]
    membership = np.zeros((len(counts), asked + known), bool)
    for row, count in zip(membership, counts, strict=True):
        row[generator.choice(asked, count, replace=False)] = True
        row[asked + generator.choice(known, 2 * known // 3, replace=False)] = True
    shadows = records.outputs(generator, membership) + apart * generator.normal(size=(len(counts), 1))
    used = np.zeros(asked + known, bool)
    used[generator.choice(asked, round(query * asked), replace=False)] = True
    used[asked + generator.choice(known, round(reference * known), replace=False)] = True
    target = records.outputs(generator, used) + apart * generator.normal()
    return reference_test(target, shadows, membership, asked).usage


@pytest.mark.outer
@pytest.mark.parametrize("apart", [0.0, 0.3])
@pytest.mark.parametrize("query", [0.0, 1.0])
def test_an_unused_reference_is_doubted_no_more_often_than_stated(query: float, apart: float) -> None:
    doubted = sum(bool(referred(trial, query, 0.0, apart=apart).doubts) for trial in range(TRIALS))
    assert doubted <= stats.binom.ppf(1 - SURE, TRIALS, ALPHA)


@pytest.mark.outer
@pytest.mark.parametrize("reference", [0.45, 1.0])
def test_a_used_reference_is_doubted_and_hides_no_use_of_the_query_set(reference: float) -> None:
    found = [referred(trial, 0.5, reference) for trial in range(40)]
    assert sum(bool(each.doubts) for each in found) >= 38
    assert not any(each.verdict == "forgotten" for each in found)


def test_a_reference_that_is_known_too_well_is_doubted() -> None:
    """A target that is right on all of it, where shadow models are on half."""
    generator = np.random.default_rng(5)
    membership = np.zeros((60, 160), bool)
    membership[40:, :60] = True
    membership[:, 60:] = generator.random((60, 100)) < 0.5
    shadows = generator.normal(size=(60, 160)) + 8 * membership * (np.arange(160) < 60)
    target = np.where(np.arange(160) < 60, generator.normal(size=160), 0.01)
    (words,) = reference_test(target, shadows, membership, 60).usage.doubts
    assert "accuracy on the reference is 100.0%" in words

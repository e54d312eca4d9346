"""The reference test: error rates for targets that scatter and lie elsewhere, and the linear share's slow twin."""

import numpy as np
import pytest
from scipy import stats
from support.simulated_shadows import provider

from jaxaudit.errors import InputError
from jaxaudit.metrics.profile import profile
from jaxaudit.metrics.reference import ReferenceAnswer, reference_test
from jaxaudit.metrics.shares import own_scatter, spread, used_shares

SURE = 1e-4
"""A correct test fails one of this file for one in ten thousand keys; the keys are fixed."""
QUERY, REFERENCE, NEVER, PART, FULLY = 60, 120, 39, 10, 19


def world(trial: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray, "np.ndarray", np.ndarray]:
    """Levels and gaps of records, and shadow models that were trained on two thirds of the reference."""
    generator = np.random.default_rng([31, trial])
    records = provider(generator, QUERY + REFERENCE, 2.0)
    counts = [*[0] * NEVER, *[QUERY // 2] * PART, *[QUERY] * FULLY]
    membership = np.zeros((len(counts), QUERY + REFERENCE), bool)
    for row, count in zip(membership, counts, strict=True):
        row[generator.choice(QUERY, count, replace=False)] = True
        row[QUERY + generator.choice(REFERENCE, 2 * REFERENCE // 3, replace=False)] = True
    return generator, records.level, records.gap, records.outputs(generator, membership), membership


def audit(trial: int, fraction: float, *, scatter: float = 3.0, moved: float = 1.0) -> ReferenceAnswer:
    """A target whose outputs scatter more than the shadow models' and all lie somewhere else."""
    generator, level, gap, shadows, membership = world(trial)
    used = np.zeros(len(level), bool)
    used[generator.choice(QUERY, round(fraction * QUERY), replace=False)] = True
    target = level + moved + gap * used + scatter * generator.normal(size=len(level))
    return reference_test(target, shadows, membership, QUERY)


@pytest.mark.outer
def test_no_use_is_called_use_no_more_often_than_stated() -> None:
    trials = 150
    small = sum(audit(trial, 0.0).usage.p_never <= 0.05 for trial in range(trials))
    assert small <= stats.binom.ppf(1 - SURE, trials, 0.05)


@pytest.mark.outer
def test_full_use_is_rejected_no_more_often_than_stated() -> None:
    trials = 150
    small = sum((audit(trial, 1.0).usage.p_fully or 0) <= 0.05 for trial in range(trials))
    assert small <= stats.binom.ppf(1 - SURE, trials, 0.05)


@pytest.mark.outer
def test_the_interval_covers_the_used_fraction() -> None:
    trials = 60
    for fraction in (0.0, 0.5, 1.0):
        found = [audit(trial, fraction).usage for trial in range(trials)]
        covered = sum(each.fraction_low - 1e-9 <= fraction <= each.fraction_high + 1e-9 for each in found)
        assert covered >= stats.binom.ppf(SURE, trials, 0.95)


@pytest.mark.outer
def test_use_is_found() -> None:
    assert sum(audit(trial, 1.0, scatter=1.0).usage.verdict == "not forgotten" for trial in range(20)) == 20


def test_what_moves_all_outputs_alike_is_taken_off() -> None:
    for trial in range(5):
        here, there = (audit(trial, 0.5, scatter=0.5, moved=moved).usage.fraction for moved in (0.0, 1.0))
        assert abs(here - there) < 0.25


def test_a_reference_that_looks_used_takes_forgotten_away() -> None:
    generator, level, gap, shadows, membership = world(7)
    used = np.arange(len(level)) >= QUERY
    target = level + gap * used + 0.1 * generator.normal(size=len(level))
    usage = reference_test(target, shadows, membership, QUERY).usage
    assert usage.verdict == "inconclusive"
    assert any("reference looks used" in reason for reason in usage.reasons)


def test_accuracies_are_of_records_that_were_not_used() -> None:
    generator, level, _, shadows, membership = world(8)
    unseen = np.arange(len(level)) >= QUERY + 20
    target = generator.normal(size=len(level))
    answer = reference_test(target, shadows, membership, QUERY, unseen=unseen)
    assert answer.accuracy == (target[QUERY + 20 :] > 0).mean()
    first = [x > 0 for x, used in zip(shadows[0, QUERY:], membership[0, QUERY:], strict=True) if not used]
    assert answer.accuracies[0] == np.mean(first)


def test_shares_are_those_of_a_loop() -> None:
    generator, level, _, shadows, membership = world(9)
    target = level + generator.normal(size=len(level))
    found = used_shares(target, shadows, membership, QUERY)
    for model in (0, NEVER, len(shadows) - 1):
        others = np.arange(len(shadows)) != model
        known = profile(shadows[others], membership[others])
        for which, places in (("query", range(QUERY)), ("reference", range(QUERY, QUERY + REFERENCE))):
            above = below = 0.0
            for record in places:
                if which == "reference" and membership[model, record]:
                    continue
                gap = max(known.inside[record] - known.outside[record], 0.0)
                weight = gap / known.variance[record]
                above += weight * (shadows[model, record] - known.outside[record])
                below += weight * gap
            assert getattr(found, which)[model] == pytest.approx(above / below)
        unseen = ~membership[model] & (np.arange(len(level)) >= QUERY)
        assert found.scatter[model] == pytest.approx(own_scatter(shadows[model], known, unseen))


def test_variances_within_and_between_designs_are_found_again() -> None:
    generator = np.random.default_rng(10)
    designs = np.repeat(np.arange(200), 6)
    values = generator.normal(0, 2, 200)[designs] + generator.normal(0, 1, len(designs))
    found = spread(values, designs)
    assert found.within == pytest.approx(1, rel=0.15)
    assert found.between == pytest.approx(4, rel=0.3)
    assert spread(values, np.zeros(len(values), int)).between == 0


def test_refusals() -> None:
    _, level, _, shadows, membership = world(11)
    with pytest.raises(InputError, match="49 records"):
        reference_test(level, shadows, membership, QUERY, unseen=np.arange(len(level)) >= QUERY + REFERENCE - 49)
    with pytest.raises(InputError, match="at least 19 of each"):
        reference_test(level, shadows[NEVER - 18 :], membership[NEVER - 18 :], QUERY)
    with pytest.raises(InputError, match="NaN"):
        reference_test(np.full_like(level, np.nan), shadows, membership, QUERY)

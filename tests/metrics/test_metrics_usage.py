"""The used fraction, the detectable one, and the rule of the verdict; signs that a holdout or a reference was used."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy import stats
from support.simulated_shadows import halves, provider

from jaxaudit.errors import InputError
from jaxaudit.metrics import (
    Check,
    Effect,
    Limits,
    Usage,
    conclude,
    decided,
    detectable_fraction,
    holm,
    is_share_known,
    limits_of,
    membership_scores,
    shadow_test,
    undamaged_on_holdout,
    without_fraction,
)
from jaxaudit.metrics.shadow import bound_of_one_more, holdout_used
from jaxaudit.metrics.usage import at_most, given_limits

TRIALS = 600
SURE = 1e-4
"""A correct procedure fails a test of this file for one in ten thousand keys; the keys are fixed."""


def simulated(generator: np.random.Generator, fraction: float, models: int = 20) -> Effect:
    """A target whose effect comes from the same normal population as those of the models of full use."""
    mean, between, noise = 1.0, 0.1, 0.12
    own = generator.normal(mean, between)
    return Effect(
        difference=float(generator.normal(fraction * own, noise)),
        variance=noise**2,
        full=generator.normal(mean, np.hypot(between, noise), models),
        noise=noise**2,
        critical=float(stats.norm.ppf(0.95) * noise),
    )


@pytest.mark.outer
@pytest.mark.parametrize(
    ("fraction", "partly"), [(0.0, None), (0.1, None), (0.3, None), (0.5, None), (1.0, None), (0.4, (0.4, 0.7))]
)
def test_interval_and_limit_cover_the_used_fraction_at_their_levels(fraction: float, partly: Any) -> None:
    """`partly`: a fraction that shows more than its part, the effect of so much of full use."""
    generator, effects = np.random.default_rng(3), []
    for _ in range(TRIALS):
        effects.append(simulated(generator, partly[1] if partly else fraction)._replace(partly=partly))
    found = [limits_of(effect, 0.9) for effect in effects]
    covered = sum(each.low <= fraction <= each.high for each in found)
    below = sum(each.upper < fraction for each in found)
    assert covered >= stats.binom.ppf(SURE, TRIALS, 0.9)
    assert below <= stats.binom.ppf(1 - SURE, TRIALS, 0.05)
    # At the ends half of the errors are impossible; inside, an interval or limit that always covers says nothing.
    if fraction not in (0.0, 1.0):
        assert covered <= stats.binom.ppf(1 - SURE, TRIALS, 0.94)
        assert below >= stats.binom.ppf(SURE, TRIALS, 0.02)
        assert np.median([each.fraction for each in found]) == pytest.approx(fraction, abs=0.02)


@pytest.mark.outer
def test_the_detectable_fraction_is_detected_as_often_as_it_says() -> None:
    generator = np.random.default_rng(4)
    found = 0
    for _ in range(TRIALS):
        effect = simulated(generator, 0.0)
        least: Any = detectable_fraction(effect)
        target = simulated(generator, least)
        found += target.difference > target.critical
    assert stats.binom.ppf(SURE, TRIALS, 0.95) <= found <= stats.binom.ppf(1 - SURE, TRIALS, 0.97)


@pytest.mark.parametrize("shown", [None, 0.3, 0.75, 1.0, 1.2])
def test_the_interval_is_that_of_a_search_and_what_partial_use_shows_bends_it(shown: float | None) -> None:
    """Models of partial use that show less than their part change nothing, as if there were none."""
    generator = np.random.default_rng(6)
    grid = np.linspace(0, 1, 2001)
    below = max(shown or 0, 0.5)
    effects = np.where(grid <= 0.5, 2 * below * grid, below + (2 * grid - 1) * (1 - below))
    for fraction in np.repeat([0.0, 0.1, 0.5, 0.9], 5):
        effect = simulated(generator, fraction, models=6)
        spread = max(effect.full.var(ddof=1) - effect.noise, 0) + effect.full.var(ddof=1) / 6
        reach = stats.t.ppf(0.975, 5) * np.sqrt(effect.variance + effects**2 * spread)
        accepted = grid[(np.abs(effect.difference - effects * effect.full.mean()) <= reach) & (effects <= 1)]
        found, low, high, *_ = limits_of(effect._replace(partly=shown and (0.5, shown * effect.full.mean())))
        assert low <= min(max(found, 0), 1) <= high
        if not 0 <= found <= 1:
            assert found == pytest.approx(effect.difference / effect.full.mean())
        if below <= 1 and len(accepted):
            assert low == pytest.approx(accepted[0], abs=1e-3)
            assert high == pytest.approx(accepted[-1], abs=1e-3)


def test_where_full_use_makes_no_difference_nothing_is_known() -> None:
    effect = Effect(0.1, 0.01, np.array([-0.1, 0.0, 0.05, -0.05]), 0.0, 0.2)
    fraction, low, high, *_ = limits_of(effect)
    assert np.isnan(fraction)
    assert (low, high) == (0.0, 1.0)
    assert detectable_fraction(effect) is None


SHARP = Effect(0.0, 1e-4, np.array([0.9, 1.0, 1.1, 1.0, 1.0, 1.0]), 0.0, 0.02)
BLUNT = SHARP._replace(variance=0.04, critical=0.33)


@pytest.mark.parametrize(
    ("p_never", "p_fully", "effect", "doubts", "invalid", "verdict", "reason"),
    [
        (0.05, 0.5, SHARP, (), (), "not forgotten", None),
        (0.01, 0.01, SHARP, ("doubt",), (), "not forgotten", None),
        (0.01, 0.5, SHARP, (), ("unlike",), "inconclusive", "unlike"),
        (0.3, 0.01, SHARP, (), (), "forgotten", "at most 2.1%"),
        (0.3, 0.01, SHARP, ("doubt",), (), "inconclusive", "doubt"),
        (0.3, 0.2, SHARP, (), (), "forgotten", "at most"),
        (0.3, None, SHARP, (), (), "forgotten", "at most"),
        (0.3, 0.01, BLUNT, (), (), "inconclusive", "25% or less"),
        (0.3, 0.01, BLUNT._replace(critical=2.0), (), (), "inconclusive", "whole query set"),
        (0.3, 0.01, SHARP._replace(difference=0.3), (), (), "inconclusive", "up to"),
        # The numbers decide, not the level of the interval or what would have been detected.
        (0.3, 0.01, SHARP._replace(critical=0.5), (), (), "forgotten", "at most 2.1%"),
    ],
)
def test_the_rule_of_the_verdict(p_never, p_fully, effect, doubts, invalid, verdict, reason) -> None:
    usage = conclude("holdout", p_never, p_fully, limits_of(effect), doubts, invalid)
    assert usage.verdict == verdict
    assert (usage.reasons == ()) if reason is None else any(reason in words for words in usage.reasons)


def test_forgotten_is_said_with_its_upper_limit_and_up_to_the_stated_fraction() -> None:
    limits = limits_of(SHARP, level=0.5)
    usage = conclude("holdout", 0.5, 0.01, limits)
    assert usage.verdict == "forgotten"
    assert usage.upper == limits_of(SHARP).upper == limits_of(SHARP, 0.9).high
    assert at_most(usage.upper) in usage.reasons[0]
    assert conclude("holdout", 0.5, 0.01, limits, stated=usage.upper).verdict == "forgotten"
    assert conclude("holdout", 0.5, 0.01, limits, stated=usage.upper - 1e-6).verdict == "inconclusive"
    for stated in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(InputError, match="above 0 and below 1"):
            conclude("holdout", 0.5, 0.01, limits, stated=stated)


@pytest.mark.parametrize(
    ("p_never", "p_adjusted", "upper", "invalid", "verdict"),
    [
        (0.01, 0.03, 0.9, (), "not forgotten"),
        (0.03, 0.06, 0.9, (), "inconclusive"),
        (0.03, 0.06, 0.2, (), "inconclusive"),
        (0.06, 0.12, 0.2, (), "forgotten"),
        (0.01, 0.02, 0.2, ("unlike",), "inconclusive"),
    ],
)
def test_the_verdict_follows_the_adjusted_p_value(p_never, p_adjusted, upper, invalid, verdict) -> None:
    limits = limits_of(SHARP)._replace(upper=upper)
    usage = conclude("holdout", p_never, 0.5, limits, invalid=invalid)
    usage = replace(usage, p_never_adjusted=p_adjusted)
    assert decided(usage).verdict == verdict
    assert replace(decided(usage), verdict=usage.verdict, reasons=usage.reasons) == usage


def test_without_a_fraction_the_p_value_alone_decides() -> None:
    for p_never, verdict in ((0.05, "not forgotten"), (0.051, "inconclusive")):
        usage = conclude("holdout", p_never, 0.01, limits_of(SHARP))
        left = without_fraction(usage, ("nobody knows",))
        assert (left.verdict, left.p_never, left.p_fully) == (verdict, p_never, None)
        assert (left.fraction_low, left.fraction_high, left.upper, left.detectable) == (0.0, 1.0, 1.0, None)
        assert np.isnan(left.fraction)
        assert left.reasons == (() if verdict == "not forgotten" else ("nobody knows",))
        # What is doubted or invalid stays so.
        assert without_fraction(replace(usage, invalid=("unlike",)), ("nobody knows",)).reasons == ("unlike",)


@pytest.mark.outer
def test_more_than_the_stated_fraction_is_called_forgotten_no_more_often_than_stated() -> None:
    """Just above it no more often than stated, at twice as much hardly ever, and without use mostly."""
    generator = np.random.default_rng(9)

    def forgotten(fraction: float) -> int:
        found = [limits_of(simulated(generator, fraction)) for _ in range(TRIALS)]
        return [conclude("holdout", 0.5, None, each).verdict for each in found].count("forgotten")

    assert forgotten(0.26) <= stats.binom.ppf(1 - SURE, TRIALS, 0.05)
    assert forgotten(0.5) <= 2
    assert forgotten(0.0) > TRIALS / 2


@settings(max_examples=100)
@given(st.lists(st.sampled_from([0.0, 0.01, 0.012, 0.02, 0.025, 0.05, 0.3, 1.0]) | st.floats(0, 1), max_size=8))
def test_adjusted_p_values_reject_what_the_procedure_rejects(p_values: list[float]) -> None:
    """The slow twin rejects the smallest p-value again and again, as long as it is small enough for what is left."""
    found = holm(p_values)
    for alpha in (0.004, 0.0499, 0.0501, 0.11, 0.7):
        left = list(range(len(p_values)))
        while left and p_values[smallest := min(left, key=p_values.__getitem__)] * len(left) <= alpha:
            left.remove(smallest)
        assert [p_value > alpha for p_value in found] == [place in left for place in range(len(p_values))]


@pytest.mark.parametrize(
    ("share", "p_never", "p_fully", "known"),
    [
        ((0.4, 0.3, 0.5), 0.01, 0.03, True),
        ((0.4, 0.0, 0.996), 0.3, 0.3, False),
        ((1.0, 0.0, 1.0), 0.3, 0.031, False),
        ((1.0, 0.6, 1.0), 0.001, 0.031, False),
        ((1.0, 0.6, 1.0), 0.001, 0.06, True),
        ((0.0, 0.0, 0.2), 0.03, 0.03, False),
        ((0.0, 0.0, 0.2), 0.3, 0.03, True),
        ((-0.4, 0.0, 0.2), 0.3, 0.03, True),
        ((1.3, 0.6, 1.0), 0.001, 0.04, False),
        ((float("nan"), 0.0, 1.0), 0.3, 0.3, False),
    ],
)
def test_a_share_is_known_where_interval_and_tests_leave_it(share, p_never, p_fully, known) -> None:
    fraction, low, high = share
    usage = Usage("shadow", "inconclusive", p_never, p_fully, fraction, low, high, None, (), 1.0, None, "used")
    assert is_share_known(usage) == known


@settings(max_examples=200)
@given(
    st.floats(-2, 2),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from([None, 0.4]),
    st.floats(0.05, 1),
)
def test_a_limit_near_none_by_chance_is_raised_and_no_verdict_moves(
    fraction: float, above: float, high: float, p_never: float, detectable: float | None, stated: float
) -> None:
    upper = min(max(fraction + above, 0.0), 1.0)
    limits = Limits(fraction, 0.0, max(high, upper), upper, detectable)
    given = given_limits(limits, min(stated, 0.99))
    assert given.upper >= limits.upper
    assert (given.upper <= min(stated, 0.99)) == (limits.upper <= min(stated, 0.99))
    assert given.low <= given.upper <= given.high
    forgotten = p_never > 0.05 and detectable is not None and upper <= min(stated, 0.99)
    usage = conclude("holdout", p_never, None, limits, stated=min(stated, 0.99))
    assert (usage.verdict == "forgotten") == forgotten


ALPHA, TRIALS_USED, SIZE = 0.05, 80, 60


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
    doubted = sum(bool(held(trial, gap, used=False, apart=apart)) for trial in range(TRIALS_USED))
    assert doubted <= stats.binom.ppf(1 - SURE, TRIALS_USED, ALPHA)


@pytest.mark.outer
@pytest.mark.parametrize("apart", [0.0, 0.3])
def test_a_used_holdout_is_doubted_where_memory_is_strong(apart: float) -> None:
    found = [held(trial, 4.0, used=True, apart=apart) for trial in range(20)]
    assert sum(bool(each) for each in found) == 20
    ((words,), *_) = found
    for part in ("may have been trained on the holdout", "another recipe", "might then not be detected"):
        assert part in words


def compared(trial: int, query: float, calibration: float, *, apart: float = 0.0) -> Usage:
    """A target that used these shares of 100 query records and of 120 calibration records."""
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
    used[asked + generator.choice(known, round(calibration * known), replace=False)] = True
    target = records.outputs(generator, used) + apart * generator.normal()
    return shadow_test(target, shadows, membership, asked)


@pytest.mark.outer
@pytest.mark.parametrize("apart", [0.0, 0.3])
@pytest.mark.parametrize("query", [0.0, 1.0])
def test_an_unused_calibration_set_is_doubted_no_more_often_than_stated(query: float, apart: float) -> None:
    doubted = sum(bool(compared(trial, query, 0.0, apart=apart).doubts) for trial in range(TRIALS_USED))
    assert doubted <= stats.binom.ppf(1 - SURE, TRIALS_USED, ALPHA)


@pytest.mark.outer
@pytest.mark.parametrize("calibration", [0.45, 1.0])
def test_a_used_calibration_set_is_doubted_and_hides_no_use_of_the_query_set(calibration: float) -> None:
    found = [compared(trial, 0.5, calibration) for trial in range(40)]
    assert sum(bool(each.doubts) for each in found) >= 38
    assert not any(each.verdict == "forgotten" for each in found)


def test_a_calibration_set_that_is_known_too_well_is_doubted() -> None:
    """A target that is right on all of it, where shadow models are on half."""
    generator = np.random.default_rng(5)
    membership = np.zeros((60, 160), bool)
    membership[40:, :60] = True
    membership[:, 60:] = generator.random((60, 100)) < 0.5
    shadows = generator.normal(size=(60, 160)) + 8 * membership * (np.arange(160) < 60)
    target = np.where(np.arange(160) < 60, generator.normal(size=160), 0.01)
    (words,) = shadow_test(target, shadows, membership, 60).doubts
    assert "accuracy on the calibration set is 100.0%" in words


MEMORY, STATED = 1.0, 0.25


def found(random: np.random.Generator, damage: float, size: int = 60) -> Check:
    """Of a target with this damage; records differ in difficulty, which both models share."""
    hard, more = random.normal(-2, 0.8, (2, size))
    reference, target = hard + 0.3 * random.normal(size=(2, size))
    check: Any = undamaged_on_holdout(target - damage, reference, more + MEMORY, STATED, of="before")
    return check


def test_a_target_with_no_more_damage_than_stated_fails_in_at_most_one_of_twenty() -> None:
    """A bound of 99.9% over tables of a fixed key, at the worst damage that may pass."""
    random, tables = np.random.default_rng(1), 1_000
    failed = sum(not found(random, STATED * MEMORY).passed for _ in range(tables))
    assert failed <= stats.binom.ppf(0.999, tables, 0.05)
    assert failed >= stats.binom.ppf(0.001, tables, 0.03)
    # As of a model that was trained on less, and of one that unlearning made worse.
    assert sum(not found(random, 0.05).passed for _ in range(tables)) <= tables // 100
    assert sum(not found(random, 0.6).passed for _ in range(tables)) >= 0.95 * tables


def test_the_p_value_is_that_of_a_t_test_where_memory_is_known() -> None:
    target, reference = np.array([-3.0, -2.5, -4.0, -3.3]), np.array([-2.0, -2.1, -3.0, -2.4])
    used = np.full(9, -1.0)
    check: Any = undamaged_on_holdout(target, reference, used, 0.25, of="baseline")
    theirs = float(np.asarray(stats.ttest_1samp(1.25 * reference - target, -0.25, alternative="greater"))[1])
    np.testing.assert_allclose(check.value, (reference - target).mean() / (-1 - reference.mean()))
    assert f"(p = {theirs:.2g} " in check.message
    assert check.passed == (theirs > 0.05)
    assert not check.decisive
    assert undamaged_on_holdout(target, reference, used - 9, 0.25, of="before") is None
    assert undamaged_on_holdout(target[:1], reference[:1], used, 0.25, of="before") is None


def test_one_more_of_the_same_kind_exceeds_the_bound_as_often_as_stated() -> None:
    draws = np.random.default_rng(1).normal(3, 2, (2000, 8))
    above = sum(row[0] > bound_of_one_more(row[1:], ALPHA) for row in draws)
    assert stats.binom.ppf(SURE, len(draws), ALPHA) <= above <= stats.binom.ppf(1 - SURE, len(draws), ALPHA)


def test_the_limit_of_an_accident_is_that_of_an_estimate_one_standard_error_below_none() -> None:
    # Estimate and one-sided 95% limit of a normal number with standard error 0.2, three of them below none.
    given = given_limits(Limits(-0.6, 0.0, 0.0, -0.6 + 1.645 * 0.2, None), stated=0.25)
    assert given.upper == pytest.approx(0.2 * 0.645, abs=1e-3)
    usual = Limits(-0.1, 0.0, 0.3, -0.1 + 1.645 * 0.2, 0.5)
    assert given_limits(usual, 0.25) == usual
    unknown = Limits(float("nan"), 0.0, 1.0, 1.0, None)
    assert given_limits(unknown, 0.25) == unknown


def test_a_limit_is_never_rounded_down() -> None:
    for limit in np.random.default_rng(10).random(400):
        shown = float(at_most(limit).removesuffix("%")) / 100
        assert limit - 1e-9 <= shown <= limit + 0.01

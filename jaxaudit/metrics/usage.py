"""Was a query set used, and how much of it: the answer that the holdout and the shadow test share.

One rule turns the numbers into a verdict:

- `not forgotten` where the p-value of "never used" is at most alpha: for a target that never used the query set that
  happens at most that often, as far as the test's assumption holds;
- `forgotten` where it is not, full use is rejected too, and the use of a stated fraction would have been detected with
  95% probability: so it speaks of fractions from `detectable` up, and is said only with that number;
- else `inconclusive`, with reasons.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from jaxaudit.metrics.ks import Verdict

UsageMethod = Literal["holdout", "shadow"]

ALPHA = 0.05
LEVEL = 0.95
POWER = 0.95
STATED_FRACTION = 0.25


class Usage(NamedTuple):
    """How much of a query set a target's training used.

    Attributes:
        method: the test that says so.
        verdict: `not forgotten`, `forgotten` or `inconclusive`; never read `forgotten` without `detectable`.
        p_never: p-value of "the target never used the query set"; small speaks for use.
        p_fully: p-value of "it used all of it"; small speaks against that. None where nothing shows what full use
            looks like.
        fraction: estimate of the used fraction, in [0, 1]; NaN where there is none.
        fraction_low, fraction_high: its interval; 0 and 1 where the audit says nothing of it.
        detectable: the smallest used fraction this audit would have called `not forgotten` with 95% probability;
            None where not even the use of all.
        reasons: what the verdict rests on: why it is inconclusive, or which assumption it needs.
    """

    method: UsageMethod
    verdict: Verdict
    p_never: float
    p_fully: float | None
    fraction: float
    fraction_low: float
    fraction_high: float
    detectable: float | None
    reasons: tuple[str, ...]


class Share(NamedTuple):
    """A used share that can be said: an estimate and its interval, in [0, 1]."""

    value: float
    low: float
    high: float


def used_share(usage: Usage, alpha: float = ALPHA) -> Share | None:
    """The used share as far as a test knows it; None where it does not, and no number is to be shown.

    That is so where there is no estimate; where the interval, in whole percent, is from 0 to 100%; and where the
    estimate, in whole percent, is the very share that the test rejects: none beside a `p_never`, or all beside a
    `p_fully`, of at most `alpha`.

    >>> usage = Usage("holdout", "inconclusive", 0.3, 0.031, 1.0, 0.0, 1.0, None, ())
    >>> used_share(usage) is None, used_share(usage._replace(fraction=0.2, fraction_high=0.5))
    (True, Share(value=0.2, low=0.0, high=0.5))
    """
    share = Share(usage.fraction, usage.fraction_low, usage.fraction_high)
    if not np.isfinite(share).all():
        return None
    percent = [round(100 * each) for each in share]
    rejected = {0: usage.p_never <= alpha, 100: usage.p_fully is not None and usage.p_fully <= alpha}
    return None if percent[1:] == [0, 100] or rejected.get(percent[0], False) else share


class Effect(NamedTuple):
    """What a test measured, beside what it would measure of full use.

    A target that used the fraction f of the query set has a difference of mean e(f) * (the mean of `full`) and variance

        variance + e(f)^2 * max(var(full) - noise, 0):

    that of the measurement, and that between models in how much they give away. The effect e(f) is f itself, or where
    models of partial use showed more, straight from (0, 0) over `partly` to (1, 1): records that were left out can look
    used where others like them were used.

    Attributes:
        difference: the target's statistic; 0 on average where nothing was used.
        variance: what chance adds to it, at the least.
        full: the statistic of models that used all of the query set, each its own.
        noise: the part of the variance of `full` that chance adds.
        critical: where `difference` is above this, the test calls the query set used.
        partly: a used fraction within (0, 1), and the mean statistic of models that used so much; None where the effect
            is proportional.
    """

    difference: float
    variance: float
    full: Float[np.ndarray, " models"]
    noise: float
    critical: float
    partly: tuple[float, float] | None = None


def used_fraction(effect: Effect, level: float = LEVEL) -> tuple[float, float, float]:
    """The used fraction, and its interval: all f in [0, 1] that a t-test at `level` does not reject.

    With M models of full use, d their mean difference and t Student's quantile at M - 1 degrees of freedom, these are
    the f whose effect e = e(f) has

        |difference - e d| <= t sqrt(variance + e^2 (v + var(full) / M)),  v = max(var(full) - noise, 0)

    (Fieller 1954). Covers the truth at its level where the target's effect is one of the same population as theirs. An
    estimate beyond 0 or 1 becomes 0 or 1; where even those are rejected, the interval is that one point. Where full use
    makes no difference (d <= 0) nothing is known: NaN, from 0 to 1.

    >>> full = np.array([0.9, 1.0, 1.1, 1.0])
    >>> [round(number, 2) for number in used_fraction(Effect(0.5, 0.01, full, 0.0, 0.16))]
    [0.5, 0.18, 0.91]
    >>> [round(number, 2) for number in used_fraction(Effect(0.5, 0.01, full, 0.0, 0.16, partly=(0.5, 0.8)))]
    [0.31, 0.11, 0.79]
    """
    models, mean = len(effect.full), float(np.mean(effect.full))
    if not mean > 0:
        return float("nan"), 0.0, 1.0
    spread = _between(effect) + float(np.var(effect.full, ddof=1)) / models
    squared = float(stats.t.ppf((1 + level) / 2, models - 1)) ** 2
    # (difference - e mean)^2 <= squared (variance + e^2 spread), a parabola in e.
    a = mean**2 - squared * spread
    b = -effect.difference * mean
    c = effect.difference**2 - squared * effect.variance
    estimate = float(np.clip(effect.difference / mean, 0, 1))
    inside = b**2 - a * c
    if a <= 0:
        # Full use cannot be told from none: the accepted effects are unbounded. Those in [0, 1] that are rejected lie
        # between the roots, if there are any.
        return _fraction_of(estimate, effect), 0.0, 1.0
    low, high = (float(np.clip((-b + sign * np.sqrt(max(inside, 0.0))) / a, 0, 1)) for sign in (-1, 1))
    low, high = min(low, estimate), max(high, estimate)
    return _fraction_of(estimate, effect), _fraction_of(low, effect), _fraction_of(high, effect)


def detectable_fraction(effect: Effect, power: float = POWER) -> float | None:
    """The smallest f in [0, 1] whose use would have been detected with probability `power`; None where there is none.

    The smallest f with f d - critical >= t sqrt(variance + f^2 (v + var(full) / M)), in the letters of
    `used_fraction`, t the quantile of `power`. Of a small fraction no more effect is claimed than its share of the
    whole, though models of partial use showed more.

    >>> round(detectable_fraction(Effect(0.0, 0.01, np.array([0.9, 1.0, 1.1, 1.0]), 0.0, 0.16)), 3)
    0.411
    >>> detectable_fraction(Effect(0.0, 1.0, np.array([0.9, 1.0, 1.1, 1.0]), 0.0, 1.6)) is None
    True
    """
    models, mean = len(effect.full), float(np.mean(effect.full))
    spread = _between(effect) + float(np.var(effect.full, ddof=1)) / models
    quantile = float(stats.t.ppf(power, models - 1))

    def margin(fraction: float) -> float:
        return fraction * mean - effect.critical - quantile * float(np.sqrt(effect.variance + fraction**2 * spread))

    if not margin(1.0) >= 0:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if margin(middle) >= 0 else (middle, high)
    return high


def conclude(
    method: UsageMethod,
    p_never: float,
    p_fully: float | None,
    effect: Effect,
    doubts: tuple[str, ...] = (),
    invalid: tuple[str, ...] = (),
    *,
    alpha: float = ALPHA,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    recipe: str = "",
) -> Usage:
    """The verdict, by the rule at the head of this file.

    Args:
        doubts: why the models of full use may not be like the target: then `forgotten` is not said.
        invalid: why `p_never` itself may not hold: then nothing is said.
        recipe: where the shadow models fit badly, what to change about them; to be said before more records are asked
            for.
    """
    fraction, low, high = used_fraction(effect, level)
    detectable = detectable_fraction(effect)
    against: list[str] = list(doubts)
    if detectable is None:
        against.append("not even the use of the whole query set would surely have been detected")
        against.append(recipe or "more records are needed")
    elif detectable > stated:
        against.append(
            f"only the use of {detectable:.0%} or more would surely have been detected, and {stated:.0%} is asked for"
        )
        against += [recipe] if recipe else []
    if p_fully is None or p_fully > alpha:
        against.append("the use of the whole query set is not ruled out")
    elif high > stated and detectable is not None and detectable <= stated:
        against.append(f"the use of up to {high:.0%} is not ruled out")
    verdict: Verdict
    if invalid:
        verdict, reasons = "inconclusive", invalid
    elif p_never <= alpha:
        verdict, reasons = "not forgotten", ()
    elif against:
        verdict, reasons = "inconclusive", tuple(against)
    else:
        verdict, reasons = "forgotten", (f"the use of {detectable:.0%} or more would have been detected",)
    return Usage(method, verdict, p_never, p_fully, fraction, low, high, detectable, reasons)


def _fraction_of(part: float, effect: Effect) -> float:
    """The used fraction whose effect is this part of that of full use."""
    if effect.partly is None:
        return part
    fraction, shown = effect.partly
    shown = max(shown / float(np.mean(effect.full)), fraction)
    # Where they show as much as models of full use, nothing below that effect tells how much more was used.
    return float(np.interp(part, [0, min(shown, 1.0), 1], [0, fraction, 1]))


def _between(effect: Effect) -> float:
    return max(float(np.var(effect.full, ddof=1)) - effect.noise, 0.0)

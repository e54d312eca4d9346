"""Was a query set used, and how much of it? The holdout test and the shadow test share this answer.

One rule turns the numbers into a verdict:

- `not forgotten`: the p-value of "never used" is at most alpha. If the test's assumption holds, this happens to a
  target that never used the query set with probability alpha at most.
- `forgotten`: the p-value of "never used" is above alpha, full use is rejected, and use of a stated fraction would have
  been detected with 95% probability. It rules out only fractions of `detectable` or more, so it is given only with that
  number.
- `inconclusive`, with reasons: everything else.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from jaxaudit.metrics.ks import Verdict

ALPHA = 0.05
LEVEL = 0.95
POWER = 0.95
STATED_FRACTION = 0.25


class Usage(NamedTuple):
    """How much of a query set a target's training used.

    Attributes:
        method: the test.
        verdict: `not forgotten`, `forgotten` or `inconclusive`; never read `forgotten` without `detectable`.
        p_never: p-value of "the target never used the query set"; a small value is evidence of use.
        p_fully: p-value of "the target used all of the query set"; a small value is evidence against that. None if no
            model shows what full use looks like.
        fraction: estimate of the used fraction, in [0, 1]; NaN if not available.
        fraction_low, fraction_high: its interval; 0 and 1 if the data do not determine it.
        detectable: the minimum detectable fraction: the smallest used fraction that this audit would have called
            `not forgotten` with 95% probability. None if not even use of all would have been detected.
        reasons: what the verdict rests on, or why it is inconclusive.
    """

    method: str
    verdict: Verdict
    p_never: float
    p_fully: float | None
    fraction: float
    fraction_low: float
    fraction_high: float
    detectable: float | None
    reasons: tuple[str, ...]


class Share(NamedTuple):
    """A known used fraction: an estimate and its interval, in [0, 1]."""

    value: float
    low: float
    high: float


def used_share(usage: Usage, alpha: float = ALPHA) -> Share | None:
    """The used fraction with its interval; None if it is unknown, in which case no number should be shown.

    It is unknown if there is no estimate, if the interval is 0% to 100% in whole percent, or if the test rejects the
    estimate in whole percent: 0% although `p_never` is at most `alpha`, or 100% although `p_fully` is.

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
    """What a test measured of the target, and of models of full use.

    A target that used the fraction f of the query set has a difference of mean e(f) * (the mean of `full`) and variance

        variance + e(f)^2 * max(var(full) - noise, 0):

    the variance of the measurement plus the variance between models. The effect e(f) is f. If models of partial use
    show more, e is piecewise linear from (0, 0) over `partly` to (1, 1): records that were left out can look used if
    similar records were used.

    Attributes:
        difference: the target's statistic; 0 on average if nothing was used.
        variance: a lower bound of its sampling variance.
        full: the statistic of each model that used all of the query set.
        noise: the part of the variance of `full` that is sampling variance.
        critical: the critical value: the test detects use if `difference` is above it.
        partly: a used fraction in (0, 1), and the mean statistic of models that used that fraction; None if the effect
            is proportional.
    """

    difference: float
    variance: float
    full: Float[np.ndarray, " models"]
    noise: float
    critical: float
    partly: tuple[float, float] | None = None


def used_fraction(effect: Effect, level: float = LEVEL) -> tuple[float, float, float]:
    """The used fraction and its interval: all f in [0, 1] that a t-test at `level` does not reject.

    With M models of full use, d their mean difference and t Student's quantile at M - 1 degrees of freedom, these are
    the f whose effect e = e(f) has

        |difference - e d| <= t sqrt(variance + e^2 (v + var(full) / M)),  v = max(var(full) - noise, 0)

    (Fieller 1954). The interval covers the truth at its level if the target's effect comes from the same population as
    theirs. An estimate below 0 or above 1 becomes 0 or 1; if that is rejected too, the interval is that one point. If
    full use makes no difference (d <= 0), the fraction is unknown: NaN, from 0 to 1.

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
    """The smallest used fraction that would have been detected with probability `power`; None if not even 1 would.

    The smallest f with f d - critical >= t sqrt(variance + f^2 (v + var(full) / M)), in the notation of
    `used_fraction`, with t the quantile of `power`. The effect is taken as proportional to f even if models of partial
    use showed more.

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
    method: str,
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
    """The verdict, by the rule in this module's docstring.

    Args:
        doubts: why the models of full use may not resemble the target; rules out `forgotten`.
        invalid: why `p_never` itself may be wrong; the verdict is then `inconclusive`.
        recipe: what to change if the shadow models fit badly; this advice comes before that to give more records.
    """
    fraction, low, high = used_fraction(effect, level)
    detectable = detectable_fraction(effect)
    against: list[str] = list(doubts)
    if detectable is None:
        against.append(f"not even use of the whole query set would be detected with {POWER:.0%} probability")
        against.append(recipe or "more records are needed")
    elif detectable > stated:
        against.append(
            f"the minimum detectable fraction is {detectable:.0%}; `forgotten` requires {stated:.0%} or less"
        )
        against += [recipe] if recipe else []
    if p_fully is None or p_fully > alpha:
        against.append("use of the whole query set is not ruled out")
    elif high > stated and detectable is not None and detectable <= stated:
        against.append(f"use of up to {high:.0%} is not ruled out")
    verdict: Verdict
    if invalid:
        verdict, reasons = "inconclusive", invalid
    elif p_never <= alpha:
        verdict, reasons = "not forgotten", ()
    elif against:
        verdict, reasons = "inconclusive", tuple(against)
    else:
        verdict, reasons = "forgotten", (f"use of {detectable:.0%} or more would have been detected",)
    return Usage(method, verdict, p_never, p_fully, fraction, low, high, detectable, reasons)


def _fraction_of(part: float, effect: Effect) -> float:
    """The used fraction that has this share of the effect of full use."""
    if effect.partly is None:
        return part
    fraction, shown = effect.partly
    shown = max(shown / float(np.mean(effect.full)), fraction)
    # Where they show as much as models of full use, nothing below that effect tells how much more was used.
    return float(np.interp(part, [0, min(shown, 1.0), 1], [0, fraction, 1]))


def _between(effect: Effect) -> float:
    return max(float(np.var(effect.full, ddof=1)) - effect.noise, 0.0)

"""Was a query set used, and how much of it? The holdout test and the shadow test share this answer.

One rule turns the numbers into a verdict:

- `not forgotten`: the p-value of "never used" is at most alpha. If the test's assumption holds, this happens to a
  target that never used the query set with probability alpha at most.
- `forgotten`: the p-value of "never used" is above alpha, nothing is doubted, and the upper limit of the used fraction
  (one-sided, 95%) is at most a stated one. A target that used more than that is called `forgotten` with probability
  alpha at most, if the interval's assumption holds. Smaller use is not ruled out, so it is given only with its limit.
- `inconclusive`, with reasons: everything else.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.ks import Verdict

ALPHA = 0.05
LEVEL = 0.95
POWER = 0.95
STATED_FRACTION = 0.25
"""`forgotten` requires an upper limit of the used fraction of at most this.

A deletion that was done leaves none of the query set in training, and one that was not done leaves all of it. A limit
of a quarter tells the two apart with a wide margin. Smaller limits need more records: `jaxaudit power` says how many.
"""


class Usage(NamedTuple):
    """How much of a query set a target's training used.

    Attributes:
        method: the test.
        verdict: `not forgotten`, `forgotten` or `inconclusive`; never read `forgotten` without `upper`.
        p_never: p-value of "the target never used the query set"; a small value is evidence of use.
        p_fully: p-value of "the target used all of the query set"; a small value is evidence against that. None if no
            model shows what full use looks like.
        fraction: estimate of the used fraction, in [0, 1]; NaN if not available.
        fraction_low, fraction_high: its interval; 0 and 1 if the data do not determine it.
        detectable: the minimum detectable fraction: the smallest used fraction that this audit would have called
            `not forgotten` with 95% probability. None if not even use of all would have been detected.
        reasons: what the verdict rests on, or why it is inconclusive.
        upper: the one-sided 95% upper limit of the used fraction; 1 if the data do not determine it.
        p_never_adjusted: `p_never`, adjusted for all targets of the audit (`holm`); None for a single one. It
            decides nothing: `p_never` is exact for each target.
        design: of the shadow models: `guessed`, or `mixed` where there are several.
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
    upper: float = 1.0
    p_never_adjusted: float | None = None
    design: str = "guessed"


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
    estimate, low, high = (float(np.clip(each, 0, 1)) for each in share_of_effect(effect, level))
    if np.isnan(estimate):
        return estimate, low, high
    low, high = min(low, estimate), max(high, estimate)
    return _fraction_of(estimate, effect), _fraction_of(low, effect), _fraction_of(high, effect)


def share_of_effect(effect: Effect, level: float = LEVEL) -> tuple[float, float, float]:
    """The share e of the effect of full use, and its interval as in `used_fraction`, but not cut to [0, 1].

    From -infinity to infinity if full use cannot be told from none; NaN if it makes no difference.
    """
    models, mean = len(effect.full), float(np.mean(effect.full))
    if not mean > 0:
        return float("nan"), -float("inf"), float("inf")
    spread = _between(effect) + float(np.var(effect.full, ddof=1)) / models
    squared = float(stats.t.ppf((1 + level) / 2, models - 1)) ** 2
    # (difference - e mean)^2 <= squared (variance + e^2 spread), a parabola in e.
    a = mean**2 - squared * spread
    b = -effect.difference * mean
    c = effect.difference**2 - squared * effect.variance
    if a <= 0:
        # The accepted effects are unbounded. Those in [0, 1] that are rejected lie between the roots, if there are any.
        return effect.difference / mean, -float("inf"), float("inf")
    low, high = ((-b + sign * np.sqrt(max(b**2 - a * c, 0.0))) / a for sign in (-1, 1))
    return effect.difference / mean, float(low), float(high)


def upper_limit(effect: Effect, alpha: float = ALPHA) -> float:
    """The one-sided upper limit of the used fraction: it is below the truth with probability `alpha` at most.

    The upper end of the two-sided interval at 1 - 2 alpha (`used_fraction`); 1 if the data do not determine it.

    >>> effect = Effect(0.0, 0.01, np.array([0.9, 1.0, 1.1, 1.0]), 0.0, 0.16)
    >>> [round(number, 2) for number in (upper_limit(effect), used_fraction(effect)[2])]
    [0.24, 0.33]
    """
    return used_fraction(effect, 1 - 2 * alpha)[2]


def at_most(limit: float) -> str:
    """An upper limit as text: rounded up, never down; two digits below 10%, and 0.1% or more.

    >>> at_most(0.0621), at_most(0.242), at_most(0.25), at_most(0.0999), at_most(0.0)
    ('6.3%', '25%', '25%', '10%', '0.1%')
    """
    digits = 1 if limit < 0.1 else 0
    # A limit that is a round number but for its last bit keeps it.
    rounded = float(np.ceil(100 * limit * 10**digits - 1e-9)) / 10**digits
    return f"{max(rounded, 0.1):g}%"


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
        alpha: the level of `p_never`; 1 - alpha is that of the upper limit.
        level: confidence level of the interval; it changes no verdict.
        stated: `forgotten` requires an upper limit of at most this, above 0 and below 1.
        recipe: what to change if the shadow models fit badly; this advice comes before that to give more records.

    Raises:
        InputError: `stated` is out of range.
    """
    refuse_stated(stated)
    fraction, low, high = used_fraction(effect, level)
    upper, detectable = upper_limit(effect, alpha), detectable_fraction(effect)
    against: list[str] = list(doubts)
    if upper > stated:
        against.append(
            f"use of up to {at_most(upper)} is not ruled out (one-sided {1 - alpha:.0%} upper limit); `forgotten` "
            f"requires {100 * stated:g}% or less"
        )
        if detectable is None:
            against.append(f"not even use of the whole query set would be detected with {POWER:.0%} probability")
        if recipe or detectable is None:
            against.append(recipe or "more records are needed")
    verdict: Verdict
    if invalid:
        verdict, reasons = "inconclusive", invalid
    elif p_never <= alpha:
        verdict, reasons = "not forgotten", ()
    elif against:
        verdict, reasons = "inconclusive", tuple(against)
    else:
        verdict, reasons = "forgotten", (f"at most {at_most(upper)} was used ({1 - alpha:.0%} upper limit)",)
    return Usage(method, verdict, p_never, p_fully, fraction, low, high, detectable, reasons, upper)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values, in the same order: the probability that any true hypothesis has one of u or less is at most u.

    The k-th smallest of m p-values times m - k + 1, at least the one before it and at most 1 (Holm 1979, "A simple
    sequentially rejective multiple test procedure"). Holds however the p-values depend on one another.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values, np.float64)[order] * np.arange(len(order), 0, -1)
    found = np.empty(len(order))
    found[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return tuple(found.tolist())


def refuse_stated(stated: float) -> None:
    """Checks the largest upper limit of `forgotten`.

    Raises:
        InputError: it is not above 0 and below 1.
    """
    if not 0 < stated < 1:
        raise InputError(
            f"the stated fraction must be above 0 and below 1; got {stated:g}: `forgotten` requires an upper limit of "
            "the used fraction of at most this, and a limit of 1 rules nothing out."
        )


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

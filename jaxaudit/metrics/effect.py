"""The used fraction of a query set, its interval, and the minimum detectable fraction, all from an `Effect`."""

from typing import NamedTuple

import numpy as np
from scipy import special

from jaxaudit.metrics.arrays import PerModel

ALPHA = 0.05
LEVEL = 0.95
POWER = 0.95


class Effect(NamedTuple):
    """A test's statistic for the target, and for models that used all of the query set ("models of full use").

    If the target used the fraction f of the query set, its statistic has the mean e(f) * mean(full) and the variance

        variance + e(f)^2 * max(var(full) - noise, 0):

    the sampling variance plus the variance between models. By default e(f) = f. Records that were left out can look
    used if similar records were used: with `partly`, e is piecewise linear from (0, 0) over it to (1, 1).

    Attributes:
        difference: the target's statistic; 0 on average if nothing was used.
        variance: a lower bound of the sampling variance of `difference`.
        full: the statistic of each model that used all of the query set.
        noise: the part of the variance of `full` that is sampling variance.
        critical: use is detected if `difference` is above this.
        partly: a used fraction in (0, 1), and the mean statistic of models that used it; None: e(f) = f.
    """

    difference: float
    variance: float
    full: PerModel
    noise: float
    critical: float
    partly: tuple[float, float] | None = None


def used_fraction(effect: Effect, level: float = LEVEL) -> tuple[float, float, float]:
    """The used fraction and its interval: all f in [0, 1] that a t-test does not reject at confidence `level`.

    In the notation of `Effect`, with M models of full use, d their mean statistic and t Student's quantile at M - 1
    degrees of freedom, the interval holds all f whose effect e = e(f) satisfies

        |difference - e d| <= t sqrt(variance + e^2 (v + var(full) / M)),  v = max(var(full) - noise, 0)

    (Fieller 1954). It covers the true fraction at its level if the target's effect is drawn like those of the models.
    The estimate may be below 0 or above 1; the interval is the part in [0, 1], or the nearer end if there is none. If
    full use makes no difference (d <= 0), the fraction is NaN, from 0 to 1.

    >>> full = np.array([0.9, 1.0, 1.1, 1.0])
    >>> effect = Effect(difference=0.5, variance=0.01, full=full, noise=0.0, critical=0.16)
    >>> [round(number, 2) for number in used_fraction(effect)]
    [0.5, 0.18, 0.91]
    >>> [round(number, 2) for number in used_fraction(effect._replace(partly=(0.5, 0.8)))]
    [0.31, 0.11, 0.79]
    """
    estimate, *ends = share_of_effect(effect, level)
    low, high = np.clip(ends, 0, 1).tolist()
    if np.isnan(estimate):
        return estimate, low, high
    possible = float(np.clip(estimate, 0, 1))
    low, high = min(low, possible), max(high, possible)
    beyond = estimate - possible
    return _fraction_of(possible, effect) + beyond, _fraction_of(low, effect), _fraction_of(high, effect)


def share_of_effect(effect: Effect, level: float) -> tuple[float, float, float]:
    """The target's effect as a share of that of full use, and its interval (`used_fraction`), not cut to [0, 1]."""
    mean = float(np.mean(effect.full))
    if not mean > 0:
        return float("nan"), -float("inf"), float("inf")
    quantile = float(special.stdtrit(len(effect.full) - 1, (1 + level) / 2))
    low, high = accepted_shares(effect.difference, mean, (effect.variance, 0.0, _spread(effect)), quantile)
    return effect.difference / mean, low, high


def accepted_shares(
    difference: float, full: float, variance: tuple[float, float, float], quantile: float
) -> tuple[float, float]:
    """The ends of all shares f with (difference - f full)^2 <= quantile^2 (v0 + v1 f + v2 f^2) (Fieller 1954).

    Both are infinite if `full`, which is above 0, is too uncertain to bound f.

    >>> accepted_shares(0.5, 1.0, (0.01, 0.0, 0.0), 2.0)
    (0.3, 0.7)
    """
    squared = quantile**2
    leading = full**2 - squared * variance[2]
    middle = -squared * variance[1] / 2 - difference * full
    rest = difference**2 - squared * variance[0]
    if leading <= 0:
        return -float("inf"), float("inf")
    root = float(np.sqrt(max(middle**2 - leading * rest, 0.0)))
    return (-middle - root) / leading, (-middle + root) / leading


def upper_limit(effect: Effect) -> float:
    """The one-sided upper confidence limit of the used fraction: below the true one with probability at most 5%.

    The upper end of the two-sided interval at 90% (`used_fraction`); 1 if the data do not determine it.

    >>> effect = Effect(0.0, 0.01, np.array([0.9, 1.0, 1.1, 1.0]), 0.0, 0.16)
    >>> [round(number, 2) for number in (upper_limit(effect), used_fraction(effect)[2])]
    [0.24, 0.33]
    """
    return used_fraction(effect, 1 - 2 * ALPHA)[2]


def detectable_fraction(effect: Effect) -> float | None:
    """The minimum detectable fraction: the smallest that is detected with 95% probability; None if even 1 is not.

    The smallest f with f d - critical >= t sqrt(variance + f^2 (v + var(full) / M)), in the notation of `Effect`
    and `used_fraction`, with t the quantile of `POWER`. The effect is taken as proportional to f, whatever `partly` is.

    >>> round(detectable_fraction(Effect(0.0, 0.01, np.array([0.9, 1.0, 1.1, 1.0]), 0.0, 0.16)), 3)
    0.411
    >>> detectable_fraction(Effect(0.0, 1.0, np.array([0.9, 1.0, 1.1, 1.0]), 0.0, 1.6)) is None
    True
    """
    mean, spread = float(np.mean(effect.full)), _spread(effect)
    quantile = float(special.stdtrit(len(effect.full) - 1, POWER))

    def margin(fraction: float) -> float:
        return fraction * mean - effect.critical - quantile * float(np.sqrt(effect.variance + fraction**2 * spread))

    if not margin(1.0) >= 0:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if margin(middle) >= 0 else (middle, high)
    return high


def _fraction_of(part: float, effect: Effect) -> float:
    """The used fraction that has this share of the effect of full use."""
    if effect.partly is None:
        return part
    fraction, shown = effect.partly
    shown = max(shown / float(np.mean(effect.full)), fraction)
    # If models of partial use show the full effect, fractions above theirs cannot be distinguished.
    return float(np.interp(part, [0, min(shown, 1.0), 1], [0, fraction, 1]))


def _spread(effect: Effect) -> float:
    """The variance between models of full use, and that of their mean."""
    variance = float(np.var(effect.full, ddof=1))
    return max(variance - effect.noise, 0.0) + variance / len(effect.full)


class Limits(NamedTuple):
    """The used fraction of a target, its interval, upper limit, and the minimum detectable fraction; see `Usage`."""

    fraction: float
    low: float
    high: float
    upper: float
    detectable: float | None


UNKNOWN = Limits(float("nan"), 0.0, 1.0, 1.0, None)
"""The limits if it is not known how much the target remembers."""


def limits_of(effect: Effect, level: float = LEVEL) -> Limits:
    """The limits from an effect; `level` is that of the interval alone."""
    return Limits(*used_fraction(effect, level), upper_limit(effect), detectable_fraction(effect))


def limits_of_ratio(
    difference: float, full: float, variance: tuple[float, float, float], freedom: float, alpha: float, level: float
) -> Limits:
    """The share difference / full, for a positive `full`, and its limits: all shares in [0, 1] that a t-test accepts.

    `variance` is as for `accepted_shares`; `upper` is the upper end at 1 - 2 `alpha`. The minimum detectable fraction
    is (z(POWER) + z(1 - ALPHA)) sqrt(v0) / full, z the normal quantile.

    >>> limits = limits_of_ratio(0.2, 1.0, (0.01, 0.0, 0.0), 1e6, 0.05, 0.95)
    >>> [round(number, 2) for number in limits]
    [0.2, 0.0, 0.4, 0.36, 0.33]
    """
    estimate = difference / full
    possible = float(np.clip(estimate, 0, 1))

    def interval(confidence: float) -> tuple[float, float]:
        quantile = float(special.stdtrit(freedom, (1 + confidence) / 2))
        low, high = np.clip(accepted_shares(difference, full, variance, quantile), 0, 1).tolist()
        return min(low, possible), max(high, possible)

    least = float((special.ndtri(POWER) - special.ndtri(ALPHA)) * np.sqrt(variance[0]) / full)
    return Limits(estimate, *interval(level), interval(1 - 2 * alpha)[1], least if least <= 1 else None)

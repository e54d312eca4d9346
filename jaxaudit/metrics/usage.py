"""The result of all tests of use: the used fraction of a query set, its limits (`Effect`), the verdict (`Usage`).

Outputs on a query set and a holdout alone cannot tell "not used" from "used and not remembered". So a fraction, a limit
and `forgotten` require knowledge of how much the target remembers: from known members, or shadow models of its recipe.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy import special

from jaxaudit.errors import check_ranges
from jaxaudit.json_types import Number, NumberOrNaN, StrictStruct
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


Parabola = tuple[float, float, float]
"""v0, v1 and v2 of v0 + v1 f + v2 f^2."""


def accepted_shares(difference: float, full: float, variance: Parabola, quantile: float) -> tuple[float, float]:
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


def detectable_fraction(effect: Effect) -> float | None:
    """The minimum detectable fraction: the smallest that is detected with 95% probability; None if even 1 is not.

    The smallest f with f d - critical >= t sqrt(variance + f^2 (v + var(full) / M)), in the notation of `Effect` and
    `limits_of`, with t the quantile of `POWER`. The effect is taken as proportional to f, whatever `partly` is.

    >>> round(detectable_fraction(Effect(0.0, 0.01, np.array([0.9, 1.0, 1.1, 1.0]), 0.0, 0.16)), 3)
    0.411
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


class Ratio(NamedTuple):
    """What a target shows of a query set (`part`), beside what it shows of records that it used (`whole`).

    v0 + v1 f + v2 f^2 is the variance of `part` - f `whole`; `variance` holds v0, v1, v2, with `freedom` for a t-test.
    """

    part: float
    whole: float
    variance: Parabola
    freedom: float

    @property
    def memory(self) -> float:
        """What the target shows of records that it used, divided by its standard error."""
        return float(self.whole / np.sqrt(self.variance[2])) if self.variance[2] > 0 else 0.0

    def limits(self, alpha: float = ALPHA, level: float = LEVEL) -> Limits:
        """The share part / whole, and its limits: all shares in [0, 1] that a t-test accepts (`accepted_shares`).

        `upper` is the upper end at 1 - 2 `alpha`. The minimum detectable fraction is (z(POWER) + z(1 - ALPHA)) sqrt(v0)
        / whole, z the normal quantile. Nothing is known if `whole` is not above 0.

        >>> [round(number, 2) for number in Ratio(0.2, 1.0, (0.01, 0.0, 0.0), 1e6).limits()]
        [0.2, 0.0, 0.4, 0.36, 0.33]
        """
        if not self.whole > 0:
            return UNKNOWN
        estimate = self.part / self.whole
        possible = float(np.clip(estimate, 0, 1))

        def interval(confidence: float) -> tuple[float, float]:
            quantile = float(special.stdtrit(self.freedom, (1 + confidence) / 2))
            low, high = np.clip(accepted_shares(self.part, self.whole, self.variance, quantile), 0, 1).tolist()
            return min(low, possible), max(high, possible)

        least = float((special.ndtri(POWER) - special.ndtri(ALPHA)) * np.sqrt(self.variance[0]) / self.whole)
        return Limits(estimate, *interval(level), interval(1 - 2 * alpha)[1], least if least <= 1 else None)


def limits_of(effect: Effect, level: float = LEVEL) -> Limits:
    """The limits from an effect: all used fractions that a t-test does not reject at confidence `level`.

    In the notation of `Effect`, with M models of full use, d their mean statistic and t Student's quantile at M - 1
    degrees of freedom, the interval holds all f in [0, 1] whose effect e = e(f) satisfies

        |difference - e d| <= t sqrt(variance + e^2 (v + var(full) / M)),  v = max(var(full) - noise, 0)

    (Fieller 1954). It covers the true fraction at its level if the target's effect is drawn like those of the models.
    The estimate may be below 0 or above 1; the interval is the part in [0, 1], or the nearer end if there is none. If
    full use makes no difference (d <= 0), the fraction is NaN, from 0 to 1. `upper` is below the true fraction with
    probability at most 5%, whatever `level` is.

    >>> effect = Effect(difference=0.5, variance=0.01, full=np.array([0.9, 1.0, 1.1, 1.0]), noise=0.0, critical=0.16)
    >>> [round(number, 2) for number in limits_of(effect)[:4]]
    [0.5, 0.18, 0.91, 0.79]
    """
    mean, detectable = float(np.mean(effect.full)), detectable_fraction(effect)
    if not mean > 0:
        return UNKNOWN._replace(detectable=detectable)
    variance = (effect.variance, 0.0, _spread(effect))
    shares = Ratio(effect.difference, mean, variance, len(effect.full) - 1).limits(level=level)
    possible = float(np.clip(shares.fraction, 0, 1))
    parts = (possible, shares.low, shares.high, shares.upper)
    fraction, low, high, upper = (_fraction_of(part, effect) for part in parts)
    return Limits(fraction + (shares.fraction - possible), low, high, upper, detectable)


STATED_FRACTION = 0.25
"""`forgotten` requires an upper limit of the used fraction of at most this, which separates a deletion from none with a
wide margin. Smaller limits need more records: `jaxaudit power` computes how many."""

Verdict = Literal["forgotten", "not forgotten", "inconclusive"]
Question = Literal["used", "left"]


class Wording(NamedTuple):
    """Phrases for the reasons of a verdict on one question; `{most}` is the upper limit."""

    fraction: str
    heading: str
    open: str
    blind: str
    settled: str
    more: str
    less: str


WORDING: dict[Question, Wording] = {
    "used": Wording(
        "used fraction",
        "remembered",
        "use of up to {most} is not ruled out",
        "use of the whole query set",
        "at most {most} was used",
        "looks more used than",
        "looks less used",
    ),
    "left": Wording(
        "fraction left",
        "left",
        "up to {most} of the memory may be left",
        "the full memory of the query set",
        "at most {most} of the memory is left",
        "is remembered more than",
        "is remembered less",
    ),
}


OVER_FORGOTTEN = "over-forgotten, the usual trace of an unlearning method that pushes too far"
BY_CHANCE = "by chance, as 1 in 40 models that used none (an unlucky deal sways all of its models), or over-forgotten"
FAR_BEYOND_CHANCE = 1e-3
"""At most so many models that used none are called over-forgotten; a larger p-value is said to be chance, too."""


def less_used(p_smaller: float) -> str:
    """Why a query set looks less used than what nobody used, by the p-value of that.

    >>> less_used(0.001).partition(",")[0], less_used(0.02).partition(",")[0]
    ('over-forgotten', 'by chance')
    """
    return OVER_FORGOTTEN if p_smaller <= FAR_BEYOND_CHANCE else BY_CHANCE


def fraction_name(questions: Iterable[Question]) -> str:
    """The heading of a column of fractions, by what the tests asked: how much was used, or how much is left.

    >>> fraction_name(["used", "used"]), fraction_name(["left", "used"])
    ('used fraction', 'used fraction or fraction left')
    """
    distinct_questions = set(questions)
    return " or ".join(words.fraction for question, words in WORDING.items() if question in distinct_questions)


class Usage(StrictStruct, frozen=True, omit_defaults=True, tag_field="kind", tag="use"):
    """The numbers of a test of use for one target, and what these numbers alone support.

    - `not forgotten`: `p_never`, adjusted for all targets of the audit, is at most 5%. If the test's assumption holds,
      a target that never used the query set gets this verdict with probability at most 5%.
    - `forgotten`: that p-value is above 5%, there are no doubts, and `upper` is at most a stated fraction. If the
      interval's assumption holds, a target that used more gets this verdict with probability at most 5%. Smaller use is
      not ruled out, so the verdict is only given with its limit.
    - `inconclusive`, with reasons: in all other cases, and whenever the p-value itself may be wrong (`invalid`).

    Attributes:
        p_never: p-value of "the target never used the query set"; a small value is evidence of use.
        p_fully: p-value of "the target used all of the query set"; None if no model shows what full use looks like.
        fraction: estimate of the used fraction; below 0 if the query set looks less used than the holdout, above 1 if
            more than records that were used. NaN if not available, or not to be shown (`is_share_known`).
        fraction_low, fraction_high: its interval; 0 and 1 if the data do not determine it.
        detectable: the smallest used fraction for which this audit would have given `not forgotten` with 95%
            probability. None if not even use of all would have been detected.
        upper: the one-sided 95% upper limit of the used fraction; 1 if the data do not determine it.
        p_never_adjusted: `p_never`, adjusted for all targets of the audit (`holm`); None for a single target.
        question: what `fraction` means. `used`: the share that was used. `left`: how much memory of the query set is
            left, as a share of the memory of known members.
        doubts: why the fraction may be wrong; they rule out `forgotten`. In a result empty, like the next two.
        unsettled: why the upper limit is too large for `forgotten`. `invalid`: why `p_never` itself may be wrong.
    """

    method: str
    verdict: Verdict
    p_never: float
    p_fully: Number
    fraction: NumberOrNaN
    fraction_low: NumberOrNaN
    fraction_high: NumberOrNaN
    detectable: Number
    reasons: tuple[str, ...]
    upper: float
    p_never_adjusted: Number
    question: Question
    doubts: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()

    @property
    def has_fraction(self) -> bool:
        """Whether the fraction is a number."""
        return not math.isnan(self.fraction)


def is_share_known(usage: Usage) -> bool:
    """Whether the used fraction is known; else no number should be shown.

    It is unknown if there is no estimate, if the interval is 0% to 100% in whole percent, or if the test rejects the
    estimate in whole percent: 0% although `p_never` is at most 5%, or 100% although `p_fully` is.

    >>> usage = Usage("holdout", "inconclusive", 0.3, 0.031, 0.2, 0.0, 0.5, None, (), 1.0, None, "guessed", "used")
    >>> is_share_known(usage), is_share_known(replace(usage, fraction_high=1.0))
    (True, False)
    """
    share = usage.fraction, usage.fraction_low, usage.fraction_high
    if not np.isfinite(share).all():
        return False
    percent = [round(100 * end) for end in share]
    none, whole = usage.p_never <= ALPHA, usage.p_fully is not None and usage.p_fully <= ALPHA
    rejected = (none and percent[0] <= 0) or (whole and percent[0] >= 100)
    return percent[1:] != [0, 100] and not rejected


def at_most(limit: float) -> str:
    """An upper limit as text: rounded up, never down; two digits below 10%, and 0.1% or more.

    >>> at_most(0.0621), at_most(0.242), at_most(0.25), at_most(0.0999), at_most(0.0)
    ('6.3%', '25%', '25%', '10%', '0.1%')
    """
    digits = 1 if limit < 0.1 else 0
    # A limit that exceeds a round number only by floating-point error is not rounded up.
    rounded = float(np.ceil(100 * limit * 10**digits - 1e-9)) / 10**digits
    return f"{max(rounded, 0.1):g}%"


def conclude(
    method: str,
    p_never: float,
    p_fully: float | None,
    limits: Limits,
    doubts: tuple[str, ...] = (),
    invalid: tuple[str, ...] = (),
    *,
    stated: float = STATED_FRACTION,
    question: Question = "used",
    recipe: str = "",
) -> Usage:
    """The numbers of one target with their verdict, by the rule of `Usage`; no p-value is adjusted.

    `recipe` is advice if the shadow models fit badly, in place of "more records are needed".
    """
    check_ranges("(0, 1)", stated=stated)
    words = WORDING[question]
    unsettled: list[str] = []
    if limits.upper > stated:
        unsettled.append(
            f"{words.open.format(most=at_most(limits.upper))} (one-sided {1 - ALPHA:.0%} upper limit); "
            f"`forgotten` requires {100 * stated:g}% or less"
        )
    if limits.detectable is None:
        unsettled.append(f"not even {words.blind} would be detected with {POWER:.0%} probability")
    if unsettled and (recipe or limits.detectable is None):
        unsettled.append(recipe or "more records are needed")
    fraction, low, high, upper, detectable = given_limits(limits, stated)
    numbers = (p_never, p_fully, fraction, low, high, detectable, (), upper, None)
    usage = Usage(method, "inconclusive", *numbers, question, doubts, tuple(unsettled), invalid)
    return decided(usage)


def given_limits(limits: Limits, stated: float) -> Limits:
    """The limits that are given with a verdict: no smaller than those of an estimate one standard error below none, so
    that no limit near 0 comes from a chance difference (Cowan et al. 2011). None is raised above the stated share.
    """
    spread = (limits.upper - limits.fraction) / NormalDist().inv_cdf(1 - ALPHA)
    # Of an unknown fraction, which is NaN, the limits stay as they are.
    if not limits.fraction < -spread:
        return limits
    upper = max(limits.upper, min(stated, limits.upper - limits.fraction - spread))
    return limits._replace(high=max(limits.high, upper), upper=upper)


def decided(usage: Usage) -> Usage:
    """The usage with its verdict and reasons, by its p-values and by what is `invalid`, doubted and `unsettled`.

    `inconclusive` if not even full use would have been detected with 95% probability. Of 560 targets that used nothing,
    that takes 3 of 55 in a hundred away; power-constrained limits (Cowan et al. 2011) take 5, CLs (Read 2002) 9.
    """
    p_value = usage.p_never if usage.p_never_adjusted is None else usage.p_never_adjusted
    against = (*usage.doubts, *usage.unsettled)
    if usage.invalid:
        return replace(usage, verdict="inconclusive", reasons=usage.invalid)
    # The adjusted p-value is a product, so it has a rounding error.
    if p_value <= ALPHA + 1e-12:
        return replace(usage, verdict="not forgotten", reasons=())
    if usage.p_never <= ALPHA:
        # Alone, the target would be `not forgotten`; an adjustment for other targets must not make it `forgotten`.
        against = (*against, f"p = {usage.p_never:.2g} alone, and {p_value:.2g} adjusted for all targets")
    if against:
        return replace(usage, verdict="inconclusive", reasons=against)
    settled = WORDING[usage.question].settled.format(most=at_most(usage.upper))
    return replace(usage, verdict="forgotten", reasons=(f"{settled} ({1 - ALPHA:.0%} upper limit)",))


def without_fraction(usage: Usage, why: tuple[str, ...]) -> Usage:
    """Removes the fraction and its limits, so that the verdict is never `forgotten`; `why` precedes the doubts."""
    if not (why or usage.doubts):
        raise ValueError("a fraction is taken away for a reason, and none is given")
    fraction, low, high, upper, detectable = UNKNOWN
    left = replace(usage, fraction=fraction, fraction_low=low, fraction_high=high, upper=upper, detectable=detectable)
    return decided(replace(left, p_fully=None, doubts=(), unsettled=(*why, *usage.doubts)))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """p-values adjusted for multiple testing, in the same order (Holm 1979).

    The probability that any true null hypothesis has an adjusted p-value of u or less is at most u, for any dependence.
    The k-th smallest of m is multiplied by m - k + 1, and is at least the one before it and at most 1.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values, np.float64)[order] * np.arange(len(order), 0, -1)
    adjusted_values = np.empty(len(order))
    adjusted_values[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return tuple(adjusted_values.tolist())


def benjamini_hochberg(p_values: Sequence[float]) -> tuple[float, ...]:
    """p-values adjusted for a list of suspects, in the same order (Benjamini & Hochberg 1995).

    Of those adjusted to u or less, the share of true null hypotheses is at most u on average, if p-values are
    independent or positively dependent.

    >>> benjamini_hochberg([0.01, 0.04, 0.03])
    (0.03, 0.04, 0.04)
    """
    order, count = np.argsort(p_values, kind="stable"), len(p_values)
    steps = np.asarray(p_values, np.float64)[order] * count / np.arange(1, count + 1)
    adjusted_values = np.empty(count)
    adjusted_values[order] = np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1.0)
    return tuple(adjusted_values.tolist())

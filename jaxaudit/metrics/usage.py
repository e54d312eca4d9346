"""Was a query set used, and how much of it? The tests of use share this answer.

One rule turns the numbers into a verdict:

- `not forgotten`: the p-value of "never used", adjusted for all targets of the audit, is at most alpha. If the test's
  assumption holds, this happens to a target that never used the query set with probability alpha at most.
- `forgotten`: the p-value of "never used" is above alpha, nothing is doubted, and the upper limit of the used fraction
  (one-sided, 95%) is at most a stated one. A target that used more than that is called `forgotten` with probability
  alpha at most, if the interval's assumption holds. Smaller use is not ruled out, so it is given only with its limit.
- `inconclusive`, with reasons: everything else.

Outputs on a query set and a holdout alone cannot tell "not used" from "used and not remembered". So a fraction, a limit
and `forgotten` need to know how much the target remembers: from records that it is known to have used, or from shadow
models of its own recipe. Where nobody knows, there is no fraction (`without_fraction`).
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxaudit.errors import InputError
from jaxaudit.metrics.effect import ALPHA, LEVEL, POWER, Effect, detectable_fraction, upper_limit, used_fraction
from jaxaudit.metrics.ks import Verdict

STATED_FRACTION = 0.25
"""`forgotten` requires an upper limit of the used fraction of at most this.

A deletion that was done leaves none of the query set in training, and one that was not done leaves all of it. A limit
of a quarter tells the two apart with a wide margin. Smaller limits need more records: `jaxaudit power` says how many.
"""


Question = Literal["used", "left"]
Designs = Literal["guessed", "mixed", "none"]


class Wording(NamedTuple):
    """How reasons name the fraction that is estimated.

    Attributes:
        fraction: its name.
        open: why a limit does not allow `forgotten`; `{most}` is the limit.
        blind: what would not be detected, if nothing would.
        settled: what the limit says.
        more: of the holdout, if it scores higher than another set.
    """

    fraction: str
    open: str
    blind: str
    settled: str
    more: str


WORDING: dict[Question, Wording] = {
    "used": Wording(
        "used fraction",
        "use of up to {most} is not ruled out",
        "use of the whole query set",
        "at most {most} was used",
        "looks more used than",
    ),
    "left": Wording(
        "fraction left",
        "up to {most} of the memory may be left",
        "memory of the query set as strong as of the known members",
        "at most {most} of the memory is left",
        "is remembered more than",
    ),
}
"""By what is asked: how much was used, or how much memory of it is left."""


def fraction_name(questions: Iterable[Question]) -> str:
    """What to call the fractions that answer these questions together.

    >>> fraction_name(["used", "used"]), fraction_name(["left", "used"])
    ('used fraction', 'used fraction or fraction left')
    """
    found = set(questions)
    return " or ".join(words.fraction for question, words in WORDING.items() if question in found)


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
        p_never_adjusted: `p_never`, adjusted for all targets of the audit (`holm`); None for a single one. The verdict
            follows it.
        design: of the shadow models: `guessed`, or `mixed` where there are several; `none` where there are none.
        doubts: why the fraction may not be what it seems; they rule out `forgotten`.
        unsettled: why the limit does not allow `forgotten`.
        invalid: why `p_never` itself may be wrong.
        question: what `fraction` and its limits are of: `used`, the share that was used; `left`, the share of the
            memory of known members that is left of the query set.
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
    design: Designs = "guessed"
    doubts: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    question: Question = "used"


class Limits(NamedTuple):
    """The used fraction of a target, its interval, its one-sided 95% upper limit, and the minimum detectable fraction.

    Attributes are those of `Usage`.
    """

    fraction: float
    low: float
    high: float
    upper: float
    detectable: float | None


UNKNOWN = Limits(float("nan"), 0.0, 1.0, 1.0, None)
"""Where nobody knows how much a target remembers."""


def limits_of(effect: Effect, alpha: float = ALPHA, level: float = LEVEL) -> Limits:
    """The limits from what a test measured of the target and of models of full use."""
    return Limits(*used_fraction(effect, level), upper_limit(effect, alpha), detectable_fraction(effect))


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


def at_most(limit: float) -> str:
    """An upper limit as text: rounded up, never down; two digits below 10%, and 0.1% or more.

    >>> at_most(0.0621), at_most(0.242), at_most(0.25), at_most(0.0999), at_most(0.0)
    ('6.3%', '25%', '25%', '10%', '0.1%')
    """
    digits = 1 if limit < 0.1 else 0
    # A limit that is a round number but for its last bit keeps it.
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
    alpha: float = ALPHA,
    stated: float = STATED_FRACTION,
    recipe: str = "",
    question: Question = "used",
) -> Usage:
    """The verdict, by the rule in this module's docstring.

    Args:
        doubts: why the fraction may not be what it seems; rules out `forgotten`.
        invalid: why `p_never` itself may be wrong; the verdict is then `inconclusive`.
        alpha: the level of `p_never`; 1 - alpha is that of the upper limit.
        stated: `forgotten` requires an upper limit of at most this, above 0 and below 1.
        recipe: what to change if the shadow models fit badly; this advice comes before that to give more records.
        question: what the fraction is of, see `Usage`; changes the words of reasons alone.

    Raises:
        InputError: `stated` is out of range.
    """
    refuse_stated(stated)
    words = WORDING[question]
    unsettled: list[str] = []
    if limits.upper > stated:
        unsettled.append(
            f"{words.open.format(most=at_most(limits.upper))} (one-sided {1 - alpha:.0%} upper limit); "
            f"`forgotten` requires {100 * stated:g}% or less"
        )
        if limits.detectable is None:
            unsettled.append(f"not even {words.blind} would be detected with {POWER:.0%} probability")
        if recipe or limits.detectable is None:
            unsettled.append(recipe or "more records are needed")
    fraction, low, high, upper, detectable = limits
    usage = Usage(method, "inconclusive", p_never, p_fully, fraction, low, high, detectable, (), upper)
    usage = usage._replace(doubts=doubts, unsettled=tuple(unsettled), invalid=invalid, question=question)
    return decided(usage, alpha)


def decided(usage: Usage, alpha: float = ALPHA) -> Usage:
    """The same numbers with the verdict and the reasons that follow from them."""
    p_value = usage.p_never if usage.p_never_adjusted is None else usage.p_never_adjusted
    against = (*usage.doubts, *usage.unsettled)
    if usage.invalid:
        return usage._replace(verdict="inconclusive", reasons=usage.invalid)
    # Ranks times numbers of targets are rounded.
    if p_value <= alpha + 1e-12:
        return usage._replace(verdict="not forgotten", reasons=())
    if usage.p_never <= alpha:
        # Judged alone it would be `not forgotten`: other targets beside it do not make it `forgotten`.
        against = (*against, f"p = {usage.p_never:.2g} alone, and {p_value:.2g} adjusted for all targets")
    if against:
        return usage._replace(verdict="inconclusive", reasons=against)
    settled = WORDING[usage.question].settled.format(most=at_most(usage.upper))
    return usage._replace(verdict="forgotten", reasons=(f"{settled} ({1 - alpha:.0%} upper limit)",))


def without_fraction(usage: Usage, why: tuple[str, ...], alpha: float = ALPHA) -> Usage:
    """The p-value alone: no fraction, no limit and never `forgotten`, for these reasons and, after them, its doubts.

    >>> usage = Usage("holdout", "forgotten", 0.3, 0.01, 0.1, 0.0, 0.2, 0.2, (), 0.2)
    >>> left = without_fraction(usage, ("how much this model remembers is not known",))
    >>> left.verdict, left.upper, left.p_never, left.p_fully
    ('inconclusive', 1.0, 0.3, None)
    """
    fraction, low, high, upper, detectable = UNKNOWN
    left = usage._replace(fraction=fraction, fraction_low=low, fraction_high=high, upper=upper, detectable=detectable)
    return decided(left._replace(p_fully=None, doubts=(), unsettled=(*why, *usage.doubts)), alpha)


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

"""Was a query set used, and how much of it: the result that the holdout and the shadow test share.

One rule turns the numbers into a verdict, and its two errors have stated rates:

- `not forgotten` where the p-value of "never used" is at most `alpha`: wrong at most that often for a target that
  never saw the query set, as far as the test's assumption holds;
- `forgotten` where it is not, and a use of the fraction `stated` or more would have been detected with 95%
  probability: so it is a statement about fractions from `detectable` up, and is said only with that number;
- else `inconclusive`, with reasons.
"""

from typing import Literal, NamedTuple

from jaxaudit.metrics.ks import Verdict

UsageMethod = Literal["holdout", "shadow"]

ALPHA = 0.05
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
        fraction: estimate of the used fraction, in [0, 1].
        fraction_low, fraction_high: its interval; NaN, as the estimate is, where there is none.
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

"""How much memory of a query set is left after a deletion, compared with the same model before it.

Where every record was shared and none was kept back, there are no known members that stay in training. The model before
the deletion takes their place: it is known to have used the query set. Both models answer on the same query records,
and on the same holdout: records of the same source that neither model used, such as later ones.

    a = mean score of the query set - mean score of the holdout, of the model after the deletion
    b = the same difference, of the model before
    fraction = a / b

Each model's score is what a least-squares fit on the records' difficulty leaves of its log-odds (`residual_scores`), in
standard deviations of the holdout, so that answers that are sharper or softer as a whole change nothing. Both
differences are of the same records, so what makes a record score high with both models enters both; the limits are
those of a ratio of two paired means (Fieller 1954). They leave out that two models that were trained alike do not
remember exactly as much: of 240 models that used all of the query set again, 90% had a limit of 100%.

`p_never` is that of the model after the deletion alone: a permutation of query and holdout records, exact if these are
exchangeable. The fraction assumes more: that the answers before the deletion are of the model that used all of the
query set, and that using a record has the same effect on both models. If b is not significantly above 0, the model
before shows no memory of the query set, and the fraction has no limit.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int, Key
from msgspec.structs import replace
from scipy import special

from jaxaudit.metrics.effect import ALPHA, LEVEL, UNKNOWN, Limits, limits_of_ratio
from jaxaudit.metrics.holdout import mean_variance, swapped
from jaxaudit.metrics.permutation import PERMUTATIONS, permutation_test
from jaxaudit.metrics.usage import STATED_FRACTION, WORDING, Question, Usage, conclude, without_fraction
from jaxaudit.randomness import stream

NO_MEMORY_BEFORE = (
    "the model before the deletion shows no memory of the query set, so outputs of the model after it cannot tell what "
    "is left"
)


class Paired(NamedTuple):
    """The differences between query set and holdout, of the model after a deletion and of the model before it.

    Attributes:
        after, before: each model's mean score of the query set minus that of the holdout, in standard deviations of the
            holdout's scores.
        variance: v0, v1 and v2, where v0 + v1 f + v2 f^2 is the sampling variance of `after` - f `before`.
        freedom: the degrees of freedom of the variances.
    """

    after: float
    before: float
    variance: tuple[float, float, float]
    freedom: int

    @property
    def memory(self) -> float:
        """The difference of the model before the deletion, divided by its standard error."""
        return float(self.before / np.sqrt(self.variance[2])) if self.variance[2] > 0 else 0.0


class DeletionAnswer(NamedTuple):
    """The result of `deletion_test`.

    Attributes:
        usage: the verdict and its numbers; `fraction` is a / b, the share of the memory before that is left.
        memory: the difference of the model before the deletion, divided by its standard error.
        p_memory: p-value of "the model before the deletion shows no memory of the query set".
    """

    usage: Usage
    memory: float
    p_memory: float


def deletion_test(
    key: Key[Array, ""],
    after: Float[Array | np.ndarray, " n"],
    before: Float[Array | np.ndarray, " n"],
    size: int,
    *,
    groups: Int[Array | np.ndarray, " n"] | None = None,
    permutations: int = PERMUTATIONS,
    alpha: float = ALPHA,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    question: Question = "left",
) -> DeletionAnswer:
    """How much memory of the query set is left in the model after a deletion, of what the model before it had?

    - `p_never`: a permutation test of the mean score after the deletion, of query against holdout records. Exact if the
      two sets are exchangeable and the model after the deletion used neither.
    - `p_fully`: a t-test of "both models remember the query set alike", on the paired difference.
    - `fraction` and its limits: see the module.
    - The verdict is never `forgotten` if the model before shows no memory of the query set, and `inconclusive` if the
      holdout looks more used than the query set before the deletion, as if files were exchanged.

    Args:
        key: random key of the permutations.
        after, before: scores of each record by the model after and before the deletion, larger if more likely used, and
            such that no set entered them: `size` query records, then the holdout.
        groups: the group of each record, if whole groups were chosen at random.
        permutations: the number of random permutations.
        alpha, stated, question: the level of all tests, and the others as for `conclude`.
        level: confidence level of the interval.

    Raises:
        InputError: shapes disagree, a score is NaN, or as `permutation_test`.
    """
    after, before = np.asarray(after, np.float64), np.asarray(before, np.float64)
    owners = None if groups is None else np.asarray(groups)

    def compared(name: str, scores: np.ndarray) -> tuple[float, float]:
        test = permutation_test(
            stream(key, name), scores[:size], scores[size:], groups=owners, permutations=permutations, alpha=alpha
        )
        return test.p_larger, test.p_smaller

    p_never, p_smaller = compared("query and holdout", after)
    p_memory, p_reversed = compared("before the deletion", before)
    pair = paired(after, before, size, owners)
    limits = limits_by_before(pair, alpha, level) if p_memory <= alpha else UNKNOWN
    invalid = ()
    if p_reversed <= alpha / 2:
        invalid = (
            f"before the deletion the holdout {WORDING[question].more} the query set (p = {p_reversed:.3g}): files may "
            "be exchanged, or the model before the deletion did not use the query set",
        )
    error = np.sqrt(sum(pair.variance))
    p_fully = float(special.stdtr(pair.freedom, (pair.after - pair.before) / error)) if error > 0 else None
    usage = conclude(
        "deletion",
        p_never,
        p_fully if limits is not UNKNOWN else None,
        limits,
        swapped(p_smaller, alpha, question),
        invalid,
        alpha=alpha,
        stated=stated,
        question=question,
    )
    if p_memory > alpha:
        usage = without_fraction(usage, (NO_MEMORY_BEFORE,), alpha)
    return DeletionAnswer(replace(usage, design="none"), pair.memory, p_memory)


def paired(
    after: Float[np.ndarray, " n"], before: Float[np.ndarray, " n"], size: int, groups: Int[np.ndarray, " n"] | None
) -> Paired:
    """Both models' differences between query set and holdout, and the variance of their combinations.

    With groups the variances are those of means over groups (`mean_variance`). `freedom` is the number of records, or
    groups, of the smaller set, minus 1. Scores that are all the same have no difference.
    """
    is_query = np.arange(len(after)) < size
    # Of the holdout, which neither model used: the more of the query set is used, the more its scores differ.
    after, before = (scores / max(float(scores[~is_query].std()), 1e-12) for scores in (after, before))

    def variance(scores: np.ndarray) -> float:
        return sum(mean_variance(scores, groups, side) / side.sum() for side in (is_query, ~is_query))

    def difference(scores: np.ndarray) -> float:
        return float(scores[is_query].mean() - scores[~is_query].mean())

    of_after, of_before = variance(after), variance(before)
    units = [side.sum() if groups is None else len(np.unique(groups[side])) for side in (is_query, ~is_query)]
    variances = of_after, variance(after - before) - of_after - of_before, of_before
    return Paired(difference(after), difference(before), variances, max(1, int(min(units)) - 1))


def limits_by_before(pair: Paired, alpha: float = ALPHA, level: float = LEVEL) -> Limits:
    """The share that is left, and its limits (`limits_of_ratio`); unknown if the model before shows no memory.

    >>> pair = Paired(0.1, 1.0, (0.002, 0.0, 0.002), 999)
    >>> [round(each, 2) for each in limits_by_before(pair)[:4]]
    [0.1, 0.01, 0.19, 0.17]
    """
    if not pair.before > 0:
        return UNKNOWN
    return limits_of_ratio(pair.after, pair.before, pair.variance, float(pair.freedom), alpha, level)

"""How much memory of a query set is left after a deletion, compared with the same model before it.

Where every record was shared and none was kept back, there are no known members that stay in training. The model before
the deletion takes their place: it is known to have used the query set. Both models answer on the same query records,
and on the same holdout: records of the same source that neither model used, such as later ones.

    a = mean score of the query set - mean score of the holdout, of the model after the deletion
    b = the same difference, of the model before
    fraction = a / b

A score is what a least-squares fit on the records' difficulty leaves of a model's log-odds (`residual_scores`). For the
fraction, the log-odds after the deletion are first brought to the median and the spread that those before have on the
holdout, and scores are divided by the holdout's deviation: a model whose answers are sharper or softer as a whole
remembers no more and no less. Answers with noise, or rounded ones, follow the difficulty of records less. If those
after the deletion follow it much less than those before, memory may be hidden, and the fraction is doubted.

Both differences are of the same records, so what makes a record score high with both models enters both; the limits are
those of a ratio of two paired means (Fieller 1954). They leave out that two models that were trained alike do not
remember exactly as much.

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

from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.difficulty import residual, residual_scores
from jaxaudit.metrics.effect import ALPHA, LEVEL, UNKNOWN, Limits, limits_of_ratio
from jaxaudit.metrics.holdout import mean_variance, swapped
from jaxaudit.metrics.permutation import PERMUTATIONS, permutation_test
from jaxaudit.metrics.usage import STATED_FRACTION, WORDING, Question, Usage, conclude, without_fraction
from jaxaudit.randomness import stream

LEAST_FOLLOWED, LEAST_EXPLAINED = 0.5, 0.1
"""Answers that follow the difficulty of records less than this share of what those before the deletion did are doubted,
if the difficulty explains so much of those before, as a share of their variance."""
HIDDEN = (
    "the outputs after the deletion follow how difficult a record is much less than those before: noise or rounding in "
    "them may hide memory"
)
SAME_AFTER = "the outputs after the deletion say the same of all records, so they cannot tell what is left"
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
    predictors: Float[np.ndarray, "n kinds"] | None = None,
    *,
    groups: Int[Array | np.ndarray, " n"] | None = None,
    permutations: int = PERMUTATIONS,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    question: Question = "left",
) -> DeletionAnswer:
    """How much memory of the query set is left in the model after a deletion, of what the model before it had?

    - `p_never`: a permutation test of the mean score after the deletion, of query against holdout records. Exact if the
      two sets are exchangeable and the model after the deletion used neither.
    - `p_fully`: a t-test of "both models remember the query set alike", on the paired difference.
    - `fraction` and its limits: see the module.
    - The verdict is never `forgotten` if the model before shows no memory of the query set, if the outputs after the
      deletion say the same of all holdout records, or if they follow the difficulty of records much less than those
      before. It is `inconclusive` if the holdout looks more used than the query set before the deletion, as if files
      were exchanged.

    Args:
        key: random key of the permutations.
        after, before: each model's log-odds (nats) of each record's own class, at the same resolution: `size` query
            records, then the holdout.
        predictors: what tells the difficulty of the records (`difficulty`); None: nothing does.
        groups: the group of each record, if whole groups were chosen at random.
        permutations: the number of random permutations.
        stated, question: as for `conclude`.
        level: confidence level of the interval.

    Raises:
        InputError: shapes disagree, a log-odds is NaN, or as `permutation_test`.
    """
    odds_after, odds_before = np.asarray(after, np.float64), np.asarray(before, np.float64)
    predictors = np.zeros((len(odds_after), 0)) if predictors is None else predictors
    owners = None if groups is None else np.asarray(groups)

    def compared(name: str, scores: np.ndarray) -> tuple[float, float]:
        test = permutation_test(
            stream(key, name), scores[:size], scores[size:], groups=owners, permutations=permutations
        )
        return test.p_larger, test.p_smaller

    scores_before = residual_scores(odds_before, predictors)
    p_never, p_smaller = compared("query and holdout", residual_scores(odds_after, predictors))
    p_memory, p_reversed = compared("before the deletion", scores_before)
    brought = as_sharp_as(odds_after, odds_before, size)
    pair = paired(residual_scores(brought, predictors), scores_before, size, owners)
    lacks = [*((NO_MEMORY_BEFORE,) if p_memory > ALPHA else ()), *((SAME_AFTER,) if pair.variance[0] <= 0 else ())]
    limits = UNKNOWN if lacks else limits_by_before(pair, level)
    invalid = ()
    if p_reversed <= ALPHA / 2:
        invalid = (
            f"before the deletion the holdout {WORDING[question].more} the query set (p = {p_reversed:.3g}): files may "
            "be exchanged, or the model before the deletion did not use the query set",
        )
    follows = [explained(odds[size:], predictors[size:]) for odds in (odds_after, odds_before)]
    hidden = follows[1] >= LEAST_EXPLAINED and follows[0] < LEAST_FOLLOWED * follows[1]
    error = np.sqrt(max(sum(pair.variance), 0.0))
    usage = conclude(
        "deletion",
        p_never,
        float(special.stdtr(pair.freedom, (pair.after - pair.before) / error)) if error > 0 and not lacks else None,
        limits,
        (*swapped(p_smaller, question), *((HIDDEN,) if hidden else ())),
        invalid,
        stated=stated,
        question=question,
    )
    if lacks:
        usage = without_fraction(usage, tuple(lacks))
    return DeletionAnswer(replace(usage, design="none"), pair.memory, p_memory)


def as_sharp_as(
    odds: Float[np.ndarray, " n"], other_odds: Float[np.ndarray, " n"], size: int
) -> Float[np.ndarray, " n"]:
    """Log-odds with the median and interquartile range that another model's have on the holdout, after `size` records.

    Log-odds without a range stay as they are.

    >>> odds = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> as_sharp_as(4 * odds - 3, odds, 2)
    array([1., 2., 3., 4., 5.])
    """
    (low, middle, high), (other_low, other_middle, other_high) = (
        np.quantile(values[size:], [0.25, 0.5, 0.75]) for values in (odds, other_odds)
    )
    if not (high > low and other_high > other_low):
        return odds
    return (odds - middle) * ((other_high - other_low) / (high - low)) + other_middle


def explained(odds: Float[np.ndarray, " n"], predictors: Float[np.ndarray, "n kinds"]) -> float:
    """The share of the variance of log-odds that the difficulty of records explains, adjusted for its predictors.

    Log-odds are replaced by their ranks, so that it is the same for sharper answers.
    """
    ranks = mid_ranks(odds)
    left = residual(ranks[:, None], predictors)[:, 0]
    free = len(odds) - predictors.shape[1] - 1
    total = float(ranks.var())
    return 1 - float((left**2).sum()) / free / total if free > 0 and total > 0 else 0.0


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


def limits_by_before(pair: Paired, level: float = LEVEL) -> Limits:
    """The share that is left, and its limits (`limits_of_ratio`); unknown if the model before shows no memory.

    >>> pair = Paired(0.1, 1.0, (0.002, 0.0, 0.002), 999)
    >>> [round(each, 2) for each in limits_by_before(pair)[:4]]
    [0.1, 0.01, 0.19, 0.17]
    """
    if not pair.before > 0:
        return UNKNOWN
    return limits_of_ratio(pair.after, pair.before, pair.variance, float(pair.freedom), ALPHA, level)

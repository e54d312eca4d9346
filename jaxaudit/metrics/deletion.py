"""How much memory of a query set is left after a deletion, compared with the same model before it, and one holdout.

    a, b = mean score of the query set - mean score of the holdout, of the model after and before; fraction = a / b

The model before is known to have used the query set. Scores are `residual_scores`, brought to the holdout's spread
before: answers that are sharper or softer as a whole remember no less. One rule for all records can make both sets look
alike, and `p_rule` tests that. Limits are those of a ratio of two paired means (Fieller 1954).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Int
from scipy import special

from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.arrays import AnyNumbers, Integers, Kinds, Numbers, OneKey
from jaxaudit.metrics.difficulty import residual, residual_scores
from jaxaudit.metrics.effect import ALPHA, LEVEL, UNKNOWN, Limits, limits_of_ratio
from jaxaudit.metrics.holdout import sampling_variance, swapped
from jaxaudit.metrics.permutation import PERMUTATIONS, permutation_test, without_strata
from jaxaudit.metrics.usage import STATED_FRACTION, WORDING, Question, Usage, conclude, without_fraction
from jaxaudit.randomness import generator_of, stream

LEAST_FOLLOWED, LEAST_EXPLAINED = 0.5, 0.1
"""Answers that follow the difficulty of records less than this share of what those before the deletion did are doubted,
if the difficulty explains so much of those before, as a share of their variance."""
HIDDEN = (
    "the outputs after the deletion follow how difficult a record is much less than those before: noise or rounding in "
    "them may hide memory"
)
BY_RULE = (
    "the query set did not fall below holdout records that had the same answers before (p = {p:.3g}): a rule for all "
    "answers of the model before may have lowered them, and no deletion"
)
RULE_LEVEL, OF_EQUAL = ALPHA / 2, 12
"""The largest p-value of `rule_test` that a deletion may have, and how many records of about equal answers before are
compared. Since these are not quite equal, the rate of rules that pass is stated as 5%: in simulated worlds of 240 and
1,200 records it was 3.2% over ten rules (noise, folds, caps, steps, reversed answers), at most 6.3% of 300 of one."""
SAME_AFTER = "the outputs after the deletion say the same of all records, so they cannot tell what is left"
NO_MEMORY_BEFORE = (
    "the model before the deletion shows no memory of the query set, so outputs of the model after it cannot tell what "
    "is left"
)


class Paired(NamedTuple):
    """The differences of query set and holdout, `after` and `before`, in standard deviations of the holdout's scores.

    v0 + v1 f + v2 f^2 is the variance of `after` - f `before`; `variance` holds v0, v1, v2.
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
    """The result of `deletion_test`; `memory` is of the model before the deletion, in standard errors.

    `p_memory` is of "the model before the deletion shows no memory of the query set", and `p_rule` of "the answers
    after the deletion are those before it, changed by a rule".
    """

    usage: Usage
    memory: float
    p_memory: float
    p_rule: float


def deletion_test(
    key: OneKey,
    after: AnyNumbers,
    before: AnyNumbers,
    size: int,
    predictors: Kinds | None = None,
    *,
    labels: Integers | None = None,
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
    - `fraction`: the share of the memory before that is left; its limits are Fieller's (1954).
    - The verdict is never `forgotten` if the model before shows no memory of the query set, if the outputs after say
      the same of all holdout records, if they follow the difficulty of records much less than those before, or if a
      rule may have made them of those before (`rule_test`). It is `inconclusive` if the holdout looks more used than
      the query set before the deletion, as if files were exchanged.

    Args:
        after, before: each model's log-odds (nats) of each record's own class, at the same resolution: `size` query
            records, then the holdout.
        predictors: what tells the difficulty of the records (`difficulty`); None: nothing does.
        labels: the class of each record, for `rule_test`; None: all are of one.
        groups: the group of each record, if whole groups were chosen at random.
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
    p_rule = rule_test(stream(key, "rule"), odds_after, odds_before, size, labels, owners)
    # A larger limit rules out `forgotten` anyway.
    if limits.upper <= stated and p_rule > RULE_LEVEL:
        lacks, limits = [BY_RULE.format(p=p_rule)], UNKNOWN
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
    return DeletionAnswer(usage, pair.memory, p_memory, p_rule)


def rule_test(
    key: OneKey,
    after: Numbers,
    before: Numbers,
    size: int,
    labels: Integers | None = None,
    groups: Integers | None = None,
) -> float:
    """The p-value of "the answer after depends on the answer before and the class alone", whatever the rule, or noise.

    It is small if the query set fell below holdout records with about equal answers before (`OF_EQUAL` a stratum).
    """
    classes = np.zeros(len(after), int) if labels is None else np.unique(labels, return_inverse=True)[1]
    order = np.lexsort((generator_of(key).random(len(after)), before, classes))
    place = np.arange(len(order)) - np.searchsorted(classes[order], classes[order])
    strata = np.cumsum(place % OF_EQUAL == 0) - 1
    columns = np.stack([place, order < size, mid_ranks(after)[order]], axis=1).astype(np.float64)
    place, *sides = without_strata(columns, strata).T
    spread, sizes = np.maximum(np.bincount(strata, place**2), 1e-12), np.bincount(strata)
    sides = [side - place * (np.bincount(strata, place * side) / spread)[strata] for side in sides]
    products = sides[0] * sides[1] * np.sqrt(sizes / np.maximum(sizes - 2, 1))[strata]
    units = order if groups is None else np.unique(groups, return_inverse=True)[1][order]
    error = float(np.linalg.norm(np.bincount(units, products)))
    return float(special.stdtr(strata[-1], products.sum() / error)) if error > 1e-9 and strata[-1] > 0 else 1.0


def as_sharp_as(odds: Numbers, other_odds: Numbers, size: int) -> Numbers:
    """Log-odds with the median and interquartile range of another model's on the holdout; without a range, as they are.

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


def explained(odds: Numbers, predictors: Kinds) -> float:
    """The share of the variance of ranks of log-odds that the records' difficulty explains (adjusted R squared)."""
    ranks = mid_ranks(odds)
    left = residual(ranks[:, None], predictors)[:, 0]
    free = len(odds) - predictors.shape[1] - 1
    total = float(ranks.var())
    return 1 - float((left**2).sum()) / free / total if free > 0 and total > 0 else 0.0


def paired(after: Numbers, before: Numbers, size: int, groups: Integers | None) -> Paired:
    """Both models' differences between query set and holdout, and the variance of their combinations."""
    is_query = np.arange(len(after)) < size
    # Of the holdout, which neither model used: the more of the query set is used, the more its scores differ.
    after, before = (scores / max(float(scores[~is_query].std()), 1e-12) for scores in (after, before))

    def variance(scores: np.ndarray) -> float:
        return sampling_variance(scores, is_query, groups)

    def difference(scores: np.ndarray) -> float:
        return float(scores[is_query].mean() - scores[~is_query].mean())

    of_after, of_before = variance(after), variance(before)
    units = [side.sum() if groups is None else len(np.unique(groups[side])) for side in (is_query, ~is_query)]
    variances = of_after, variance(after - before) - of_after - of_before, of_before
    return Paired(difference(after), difference(before), variances, max(1, int(min(units)) - 1))


def limits_by_before(pair: Paired, level: float = LEVEL) -> Limits:
    """The share that is left, and its limits (`limits_of_ratio`); unknown if the model before shows no memory."""
    if not pair.before > 0:
        return UNKNOWN
    return limits_of_ratio(pair.after, pair.before, pair.variance, float(pair.freedom), ALPHA, level)

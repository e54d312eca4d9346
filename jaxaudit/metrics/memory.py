"""How much memory a model has of a query set, as a share of what it is known to remember; no shadow model is needed.

A query set and a holdout never show that a target did not use the query set: a model that remembers nothing shows no
difference. Known members, drawn at random like the query set, show how much this target remembers (`members_test`):
fraction = (query set - holdout) / (members - holdout), of mean scores. After a deletion, the model before it shows that
(`deletion_test`): fraction = a / b, with a and b the mean score of the query set minus that of the holdout, after and
before. Limits are those of a ratio of two means (Fieller 1954).
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.arrays import AnyIntegers, AnyNumbers, Integers, Kinds, Numbers, OneKey, units_of_records
from jaxaudit.metrics.difficulty import residual, residual_scores
from jaxaudit.metrics.holdout import freedom_of_means, mean_variance, sampling_variance, swapped
from jaxaudit.metrics.permutation import (
    PERMUTATIONS,
    permutation_test,
    permuted_differences,
    set_effects,
    share_as_large,
    without_strata,
)
from jaxaudit.metrics.usage import (
    ALPHA,
    STATED_FRACTION,
    UNKNOWN,
    WORDING,
    Question,
    Ratio,
    Usage,
    conclude,
    without_fraction,
)
from jaxaudit.randomness import generator_of, stream

LEAST_MEMBERS = 50
NO_MEMORY = (
    "this model shows no memory of records that it did use, so its outputs cannot tell whether the query set was used"
)
NO_MEMORY_LEFT = (
    "this model shows no memory of records that it did use, so its outputs cannot tell how much memory of the query "
    "set is left"
)


SizesOfSets = tuple[int, int, int]
"""The numbers of records of query set, holdout and known members."""


class MemoryAnswer(NamedTuple):
    """The result of `members_test` or `deletion_test`.

    `memory` is what the target shows of the known members, or the model before the deletion of the query set, in
    standard errors; `p_memory` the p-value of "it shows none"; and `p_rule` that of "the answers after the deletion are
    those before it, changed by a rule".
    """

    usage: Usage
    memory: float
    p_memory: float
    p_rule: float = 1.0


def members_test(
    key: OneKey,
    scores: AnyNumbers,
    sizes: SizesOfSets,
    *,
    groups: AnyIntegers | None = None,
    strata: Integers | None = None,
    p_never: float | None = None,
    permutations: int = PERMUTATIONS,
    stated: float = STATED_FRACTION,
    question: Question = "used",
) -> MemoryAnswer:
    """Was the query set used by the target, and how much of it, compared with known members?

    - `p_never`: a permutation test of the mean score of query against holdout records, exact as in `holdout_test`.
    - `p_fully`: a permutation test of members against query records; exact if both were used alike.
    - `fraction` and its limits (Fieller 1954) assume that query records, if used, were used like the members.
    - The verdict is never `forgotten` if the target shows no memory of the members. It is `inconclusive` if the holdout
      looks more used than the members, as if files were swapped or the members not used.

    Args:
        scores: of the query set, the holdout, and then the members; larger means more likely used. No set entered them;
            of log-odds, `residual_scores` makes the best.
        groups: the group of each record, if whole groups were chosen at random.
        strata: the group of each record, if the records of each group were dealt at random over the three sets: they
            are permuted within it, and the fraction is that of differences within it (`set_effects`).
        p_never: a p-value of another exact test of the same target, to be used in place of this test's.
    """
    scores = np.asarray(scores)
    check_ranges(
        f"[{LEAST_MEMBERS}, inf)",
        "give more, to tell what the target remembers, or none: use is tested without them",
        known_members=sizes[2],
    )
    check_shapes((sum(sizes),), scores_of_sets=scores)
    query, holdout, members = np.split(np.arange(len(scores)), np.cumsum(sizes)[:2])

    def compared(name: str, first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
        rows = np.concatenate([first, second])
        if strata is None:
            owners = None if groups is None else np.asarray(groups)[rows]
            test = permutation_test(
                stream(key, name), scores[first], scores[second], groups=owners, permutations=permutations
            )
            return test.p_larger, test.p_smaller
        differences = permuted_differences(
            stream(key, name), scores[rows, None], len(first), strata=strata[rows], permutations=permutations
        )[:, 0]
        return share_as_large(differences), share_as_large(-differences)

    p_larger, p_smaller = compared("query and holdout", query, holdout)
    p_never = p_larger if p_never is None else p_never
    p_fully = compared("members and query", members, query)[0]
    p_memory, p_reversed = compared("members and holdout", members, holdout)
    means = set_means(scores, sizes, groups) if strata is None else means_within(scores, sizes, strata)
    limits = means.limits() if p_memory <= ALPHA else UNKNOWN
    doubts, invalid = swapped(p_smaller, question), ()
    if p_reversed <= ALPHA / 2:
        invalid = (
            f"the holdout {WORDING[question].more} the members (p = {p_reversed:.3g}): their files may be swapped, or "
            "the members were not used, or their outputs are of another model",
        )
    usage = conclude("members", p_never, p_fully, limits, doubts, invalid, stated=stated, question=question)
    if p_memory > ALPHA:
        usage = without_fraction(usage, (NO_MEMORY if question == "used" else NO_MEMORY_LEFT,))
    return MemoryAnswer(usage, means.memory, p_memory)


def set_means(scores: Numbers, sizes: SizesOfSets, groups: AnyIntegers | None = None) -> Ratio:
    """The mean scores of query set and members beside that of the holdout (`mean_variance`). Its limits (Fieller 1954)
    are all f with |query - f members - (1 - f) holdout| <= t sqrt(v_query + f^2 v_members + (1 - f)^2 v_holdout).
    """
    owners, sets = None if groups is None else np.asarray(groups), np.repeat([0, 1, 2], sizes)
    sides = [sets == place for place in range(3)]
    of_query, of_holdout, of_members = (mean_variance(scores, owners, side) / int(side.sum()) for side in sides)
    query, none, members = (float(scores[side].mean()) for side in sides)
    variance = (of_query + of_holdout, -2 * of_holdout, of_members + of_holdout)
    return Ratio(query - none, members - none, variance, freedom_of_means(sides, groups))


def means_within(scores: Numbers, sizes: SizesOfSets, strata: Integers) -> Ratio:
    """The means of query set and members within strata, as differences from the holdout (`set_effects`)."""
    effects, covariance, freedom = set_effects(scores, np.repeat([1, 0, 2], sizes), strata)
    of_holdout = float(covariance[0, 1])
    of_query, of_members = (float(variance) - of_holdout for variance in np.diag(covariance))
    variance = (of_query + of_holdout, -2 * of_holdout, of_members + of_holdout)
    return Ratio(float(effects[0]), float(effects[1]), variance, freedom)


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


def deletion_test(
    key: OneKey,
    after: AnyNumbers,
    before: AnyNumbers,
    size: int,
    predictors: Kinds | None = None,
    *,
    labels: Integers | None = None,
    groups: AnyIntegers | None = None,
    permutations: int = PERMUTATIONS,
    stated: float = STATED_FRACTION,
    question: Question = "left",
) -> MemoryAnswer:
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
    limits = UNKNOWN if lacks else pair.limits()
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
        float(special.stdtr(pair.freedom, (pair.part - pair.whole) / error)) if error > 0 and not lacks else None,
        limits,
        (*swapped(p_smaller, question), *((HIDDEN,) if hidden else ())),
        invalid,
        stated=stated,
        question=question,
    )
    if lacks:
        usage = without_fraction(usage, tuple(lacks))
    return MemoryAnswer(usage, pair.memory, p_memory, p_rule)


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
    units = np.unique(units_of_records(groups, len(order)), return_inverse=True)[1][order]
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


def paired(after: Numbers, before: Numbers, size: int, groups: Integers | None) -> Ratio:
    """Both models' differences between query set and holdout, in standard deviations of the holdout's scores."""
    is_query = np.arange(len(after)) < size
    # Of the holdout, which neither model used: the more of the query set is used, the more its scores differ.
    after, before = (scores / max(float(scores[~is_query].std()), 1e-12) for scores in (after, before))

    def variance(scores: np.ndarray) -> float:
        return sampling_variance(scores, is_query, groups)

    def difference(scores: np.ndarray) -> float:
        return float(scores[is_query].mean() - scores[~is_query].mean())

    of_after, of_before = variance(after), variance(before)
    variances = of_after, variance(after - before) - of_after - of_before, of_before
    return Ratio(difference(after), difference(before), variances, freedom_of_means((is_query, ~is_query), groups))

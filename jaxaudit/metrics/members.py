"""How much of a query set was used, estimated with known members: records that the target is known to have used.

A query set and a holdout can show that a target used the query set, but never that it did not: a model that used
everything and remembers nothing shows no difference. Known members, drawn at random like the query set, show how much
this target remembers of records that it used. If the share f of the query set was used at the same time as the members,
the mean of any score is the mixture f members + (1 - f) holdout:

    fraction = (mean of the query set - mean of the holdout) / (mean of the members - mean of the holdout)
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.metrics.arrays import AnyNumbers, Integers, Numbers, OneKey
from jaxaudit.metrics.effect import ALPHA, LEVEL, UNKNOWN, Limits, limits_of_ratio
from jaxaudit.metrics.holdout import mean_variance, swapped
from jaxaudit.metrics.permutation import (
    PERMUTATIONS,
    permutation_test,
    permuted_differences,
    set_effects,
    share_as_large,
)
from jaxaudit.metrics.usage import STATED_FRACTION, WORDING, Question, Usage, conclude, without_fraction
from jaxaudit.randomness import stream

LEAST_MEMBERS = 50
NO_MEMORY = (
    "this model shows no memory of records that it did use, so its outputs cannot tell whether the query set was used"
)
NO_MEMORY_LEFT = (
    "this model shows no memory of records that it did use, so its outputs cannot tell how much memory of the query "
    "set is left"
)


class Sides(NamedTuple):
    """The mean score of each set, and its sampling variance with degrees of `freedom`."""

    query: float
    holdout: float
    members: float
    query_variance: float
    holdout_variance: float
    members_variance: float
    freedom: int

    @property
    def memory(self) -> float:
        """The mean score of the members minus that of the holdout, divided by its standard error."""
        error = np.sqrt(self.members_variance + self.holdout_variance)
        return float((self.members - self.holdout) / error) if error > 0 else 0.0


class MembersAnswer(NamedTuple):
    """The result of `members_test`; `memory` is the difference of members and holdout in standard errors.

    `p_memory` is the p-value of "the target shows no memory of the members".
    """

    usage: Usage
    memory: float
    p_memory: float


def members_test(
    key: OneKey,
    scores: AnyNumbers,
    sizes: tuple[int, int, int],
    *,
    groups: Int[Array | np.ndarray, " n"] | None = None,
    strata: Integers | None = None,
    p_never: float | None = None,
    permutations: int = PERMUTATIONS,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    question: Question = "used",
) -> MembersAnswer:
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
    query, holdout, members = np.split(np.asarray(scores), np.cumsum(sizes)[:2])
    check_ranges(
        f"[{LEAST_MEMBERS}, inf)",
        "give more, to tell what the target remembers, or none: use is tested without them",
        known_members=len(members),
    )
    check_shapes((sum(sizes),), scores_of_sets=scores)
    units = groups if strata is None else strata
    parts = (None,) * 3 if units is None else tuple(np.split(np.asarray(units), np.cumsum(sizes)[:2]))
    of_query, of_holdout, of_members = parts

    def compared(name: str, first: np.ndarray, second: np.ndarray, *owners: np.ndarray | None) -> tuple[float, float]:
        owners_of_sets = None if units is None else np.concatenate([owner for owner in owners if owner is not None])
        if strata is not None:
            differences = permuted_differences(
                stream(key, name),
                np.concatenate([first, second])[:, None],
                len(first),
                strata=owners_of_sets,
                permutations=permutations,
            )[:, 0]
            return share_as_large(differences), share_as_large(-differences)
        test = permutation_test(stream(key, name), first, second, groups=owners_of_sets, permutations=permutations)
        return test.p_larger, test.p_smaller

    p_larger, p_smaller = compared("query and holdout", query, holdout, of_query, of_holdout)
    p_never = p_larger if p_never is None else p_never
    p_fully = compared("members and query", members, query, of_members, of_query)[0]
    p_memory, p_reversed = compared("members and holdout", members, holdout, of_members, of_holdout)
    means = (
        set_means(query, holdout, members, parts) if strata is None else means_within(np.asarray(scores), sizes, strata)
    )
    limits = limits_by_members(means, level) if p_memory <= ALPHA else UNKNOWN
    doubts, invalid = swapped(p_smaller, question), ()
    if p_reversed <= ALPHA / 2:
        invalid = (
            f"the holdout {WORDING[question].more} the members (p = {p_reversed:.3g}): their files may be swapped, or "
            "the members were not used, or their outputs are of another model",
        )
    usage = conclude("members", p_never, p_fully, limits, doubts, invalid, stated=stated, question=question)
    if p_memory > ALPHA:
        usage = without_fraction(usage, (NO_MEMORY if question == "used" else NO_MEMORY_LEFT,))
    return MembersAnswer(usage, means.memory, p_memory)


def set_means(
    query: Numbers,
    holdout: Float[np.ndarray, " m"],
    members: Float[np.ndarray, " k"],
    groups: tuple[Int[np.ndarray, " _"] | None, ...],
) -> Sides:
    """The mean score of each set, and its variance (`mean_variance`)."""
    sets = tuple(zip((query, holdout, members), groups, strict=True))
    of_query, of_holdout, of_members = (
        mean_variance(scores_of_set, owner, np.ones(len(scores_of_set), bool)) / len(scores_of_set)
        for scores_of_set, owner in sets
    )
    units = [len(scores_of_set) if owner is None else len(np.unique(owner)) for scores_of_set, owner in sets]
    means = float(query.mean()), float(holdout.mean()), float(members.mean())
    return Sides(*means, of_query, of_holdout, of_members, max(1, min(units) - 1))


def means_within(scores: Numbers, sizes: tuple[int, int, int], strata: Integers) -> Sides:
    """The means of query set, holdout and members within strata, as differences from the holdout (`set_effects`).

    Only sums of the variances have a meaning: one alone may be below 0.
    """
    differences = set_effects(scores, np.repeat([1, 0, 2], sizes), strata)
    of_holdout = float(differences.covariance[0, 1])
    of_query, of_members = (float(variance) - of_holdout for variance in np.diag(differences.covariance))
    return Sides(
        float(differences.effects[0]),
        0.0,
        float(differences.effects[1]),
        of_query,
        of_holdout,
        of_members,
        differences.freedom,
    )


def limits_by_members(means: Sides, level: float = LEVEL) -> Limits:
    """The used fraction and its limits: all f in [0, 1] that a t-test does not reject (Fieller 1954):

        |query - f members - (1 - f) holdout| <= t sqrt(v_query + f^2 v_members + (1 - f)^2 v_holdout)

    The limits are 0 and 1 if the members' mean is not significantly above the holdout's.
    """
    a, b = means.query - means.holdout, means.members - means.holdout
    if not b > 0:
        return UNKNOWN
    of_holdout = means.holdout_variance
    variance = (means.query_variance + of_holdout, -2 * of_holdout, means.members_variance + of_holdout)
    return limits_of_ratio(a, b, variance, float(means.freedom), ALPHA, level)

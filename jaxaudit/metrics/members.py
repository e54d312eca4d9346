"""How much of a query set was used, measured by what the target itself remembers of records that it did use.

Outputs on a query set and a holdout show that a target remembers, never that it did not use: a model that used
everything and remembers nothing shows no difference. *Known members* are records that the target is known to have used,
drawn like the query set. They tell how much this target remembers, whatever its network, library and recipe:

    a = mean score of the query set - mean score of the holdout
    b = mean score of the members   - mean score of the holdout
    fraction = a / b

A query set of which the share f was used, at the time when the members were, is a mixture of records like the members
and records like the holdout. So its mean score is f times the members' and 1 - f times the holdout's, whatever the
score is. The limits are those of the ratio of two means (Fieller 1954). Where b is not clearly above 0, the target
shows no memory of records that it did use, and there is no limit.

The score (`residual_scores`) is what is left of the outputs after a least-squares fit on what makes records difficult:
their class, their neighbours, and what shadow models say of them, if there are any (`jaxaudit.metrics.difficulty`). The
fit is blind to the three sets, so `p_never` stays exact.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.metrics.difficulty import residual_scores
from jaxaudit.metrics.effect import ALPHA, LEVEL, POWER
from jaxaudit.metrics.holdout import mean_variance, swapped
from jaxaudit.metrics.permutation import PERMUTATIONS, permutation_test
from jaxaudit.metrics.usage import (
    STATED_FRACTION,
    UNKNOWN,
    WORDING,
    Limits,
    Question,
    Usage,
    conclude,
    without_fraction,
)
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
    """A mean score of each set, with its sampling variance.

    Attributes:
        query, holdout, members: the means.
        query_variance, holdout_variance, members_variance: their variances.
        freedom: degrees of freedom of the variances.
    """

    query: float
    holdout: float
    members: float
    query_variance: float
    holdout_variance: float
    members_variance: float
    freedom: int

    @property
    def memory(self) -> float:
        """The mean score of the members minus that of the holdout, in its standard errors."""
        error = np.sqrt(self.members_variance + self.holdout_variance)
        return float((self.members - self.holdout) / error) if error > 0 else 0.0


class MembersAnswer(NamedTuple):
    """What the test says.

    Attributes:
        usage: the answer; its `fraction` is how much of the target's memory of the members it has of the query set.
        memory: the difference between members and holdout, in its standard errors.
        p_memory: p-value of "the target shows no memory of the members".
    """

    usage: Usage
    memory: float
    p_memory: float


def members_test(
    key: Key[Array, ""],
    target: Float[Array | np.ndarray, " n"],
    sizes: tuple[int, int, int],
    predictors: Float[np.ndarray, "n kinds"],
    *,
    groups: Int[Array | np.ndarray, " n"] | None = None,
    p_never: float | None = None,
    permutations: int = PERMUTATIONS,
    alpha: float = ALPHA,
    level: float = LEVEL,
    stated: float = STATED_FRACTION,
    question: Question = "used",
) -> MembersAnswer:
    """Did the target use the query set, and how much of its memory of known members does it have of it?

    - `p_never`: a permutation test of the mean score of query against holdout records, exact as in `holdout_test`.
    - `p_fully`: the same of query records against members: exact under "all of the query set was used as they were".
    - `fraction` and its limits: see the module. They assume that query records, if used, were used like the members.
    - The verdict is never `forgotten` if the target shows no memory of the members, and `inconclusive` if the holdout
      looks more used than the members: then files are swapped, or not what they are said to be.

    Args:
        key: random key of the permutations.
        target: its log-odds of each record's own class: of the query set, the holdout, and then the members.
        sizes: their numbers of records.
        predictors: of how difficult each record is, see `difficulty`; made without knowledge of the sets.
        groups: the group of each record, where whole groups were dealt.
        p_never: of another exact test of the same target, which then takes the place of this one's.
        permutations: random permutations.
        alpha: the level of all tests.
        level: confidence level of the interval.
        stated: `forgotten` requires an upper limit of at most this.
        question: whether reasons speak of what was used or of what is left; changes no number.

    Raises:
        InputError: there are fewer than 50 members, shapes disagree, an output is NaN, or as `permutation_test`.
    """
    found = residual_scores(target, predictors)
    query, holdout, members = np.split(found, np.cumsum(sizes)[:2])
    if len(members) < LEAST_MEMBERS or len(found) != sum(sizes):
        raise InputError(
            f"there are outputs on {len(found)} records for sets of {sizes[0]}, {sizes[1]} and {sizes[2]}, the last "
            f"the known members: at least {LEAST_MEMBERS} members are needed to tell what the target remembers."
        )
    parts = (None,) * 3 if groups is None else tuple(np.split(np.asarray(groups), np.cumsum(sizes)[:2]))
    of_query, of_holdout, of_members = parts

    def compared(name: str, first: np.ndarray, second: np.ndarray, *owners: np.ndarray | None) -> tuple[float, float]:
        own = None if groups is None else np.concatenate([each for each in owners if each is not None])
        test = permutation_test(stream(key, name), first, second, groups=own, permutations=permutations, alpha=alpha)
        return test.p_larger, test.p_smaller

    p_larger, p_smaller = compared("query and holdout", query, holdout, of_query, of_holdout)
    p_never = p_larger if p_never is None else p_never
    p_fully = compared("members and query", members, query, of_members, of_query)[0]
    p_memory, p_reversed = compared("members and holdout", members, holdout, of_members, of_holdout)
    means = sides(query, holdout, members, parts)
    limits = limits_by_members(means, alpha, level) if p_memory <= alpha else UNKNOWN
    invalid = _reversed(p_reversed, alpha, question)
    doubts = swapped(p_smaller, alpha, question)
    usage = conclude(
        *("members", p_never, p_fully, limits, doubts, invalid), alpha=alpha, stated=stated, question=question
    )
    if p_memory > alpha:
        usage = without_fraction(usage, (NO_MEMORY if question == "used" else NO_MEMORY_LEFT,), alpha)
    return MembersAnswer(usage._replace(design="none"), means.memory, p_memory)


def sides(
    query: Float[np.ndarray, " n"],
    holdout: Float[np.ndarray, " m"],
    members: Float[np.ndarray, " k"],
    groups: tuple[Int[np.ndarray, " _"] | None, ...] = (None, None, None),
) -> Sides:
    """The mean score of each set; with groups, variances are those of means over groups."""
    sets = tuple(zip((query, holdout, members), groups, strict=True))
    of_query, of_holdout, of_members = (
        mean_variance(each, own, np.ones(len(each), bool)) / len(each) for each, own in sets
    )
    units = [len(each) if own is None else len(np.unique(own)) for each, own in sets]
    means = float(query.mean()), float(holdout.mean()), float(members.mean())
    return Sides(*means, of_query, of_holdout, of_members, max(1, min(units) - 1))


def limits_by_members(found: Sides, alpha: float = ALPHA, level: float = LEVEL) -> Limits:
    """The used fraction and its limits: all f in [0, 1] that a t-test does not reject (Fieller 1954).

    At f the query set's mean is f times the members' and 1 - f times the holdout's:

        |query - f members - (1 - f) holdout| <= t sqrt(v_query + f^2 v_members + (1 - f)^2 v_holdout)

    The upper limit is the upper end of the interval at 1 - 2 alpha, as in `upper_limit`. Where it holds for every f
    (the members' difference is not told from 0), the limits are 0 and 1. `detectable` takes the variances as they are.

    >>> known = Sides(0.1, 0.0, 1.0, 0.001, 0.001, 0.001, 999)
    >>> [round(each, 2) for each in limits_by_members(known)[:4]]
    [0.1, 0.01, 0.18, 0.17]
    """
    a, b = found.query - found.holdout, found.members - found.holdout
    if not b > 0:
        return UNKNOWN
    estimate = float(np.clip(a / b, 0, 1))

    def interval(confidence: float) -> tuple[float, float]:
        squared = float(special.stdtrit(found.freedom, (1 + confidence) / 2)) ** 2
        # (a - f b)^2 <= squared (v_query + f^2 v_members + (1 - f)^2 v_holdout), a parabola in f.
        leading = b**2 - squared * (found.members_variance + found.holdout_variance)
        middle = squared * found.holdout_variance - a * b
        rest = a**2 - squared * (found.query_variance + found.holdout_variance)
        if leading <= 0:
            return 0.0, 1.0
        root = float(np.sqrt(max(middle**2 - leading * rest, 0.0)))
        low, high = (float(np.clip((-middle + sign * root) / leading, 0, 1)) for sign in (-1, 1))
        return min(low, estimate), max(high, estimate)

    error = float(np.sqrt(found.query_variance + found.holdout_variance))
    least = (float(-special.ndtri(ALPHA)) + float(special.ndtri(POWER))) * error / b
    return Limits(estimate, *interval(level), interval(1 - 2 * alpha)[1], least if least <= 1 else None)


def _reversed(p_reversed: float, alpha: float, question: Question) -> tuple[str, ...]:
    """Why nothing follows if the holdout looks more used than the members."""
    if p_reversed > alpha / 2:
        return ()
    return (
        f"the holdout {WORDING[question].more} the members (p = {p_reversed:.3g}): their files may be swapped, or the "
        "members were not used, or their outputs are of another model",
    )

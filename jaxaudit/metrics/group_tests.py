"""Which groups of the query set were used: one test for each group, such as an author or a patient.

What is exchangeable depends on what was dealt.

*Whole groups were dealt.* If a group of the query set was never used, nothing tells it from a group of the holdout: its
standardised mean score (`standard_means`) is equally likely to take every rank among theirs. The p-value is this rank
(`among_groups`), which is a conformal p-value, and with G groups in the holdout never below 1 / (G + 1). What
standardises the means is computed from both sets alike. So the p-values of several groups, which share one holdout,
keep the rate of Benjamini and Hochberg (Bates et al. 2023; Marandon et al. 2024). Groups whose records are dependent
change nothing, as a group is one number.

A rank is exact only if the sizes of groups were dealt with the groups. Otherwise the standard deviation of a small
group's mean rests on the model of random effects, and a group whose size is outside those of the holdout has nobody to
be compared with (`unlike_in_size`). Groups of 30 to 40 records beside a holdout of mostly 2 to 7 had p at most 5% in
10% to 12% of deals where scores are skewed, have heavy tails, or vary in some groups more: there is no rank where sizes
of the two sets differ beyond chance (`sizes_apart`).

*Records were dealt, and a group has some in both sets.* Its own records are then exchangeable if none of it was used,
whatever was used of other groups, and p-values of several groups are independent (`within_group`). Records of a group
and of other groups are not exchangeable, even then: whose records they are is known.
"""

from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int, Key
from scipy import special

from jaxaudit.metrics.permutation import PERMUTATIONS, shuffled
from jaxaudit.randomness import generator_of

SOURCE = "Bates et al. 2023; Marandon et al. 2024; Besag & Clifford 1991; Holm 1979; Benjamini & Hochberg 1995"
ENUMERATED = 5_000
"""Up to so many deals of a group's records are all computed."""
LARGEST_SIDE = 100
"""Of larger sides there are more deals than any p-value needs, and so many are counted."""
ENOUGH = 30
"""Random deals end when so many were as extreme as the one that was made (Besag & Clifford 1991)."""
BLOCK = 2_000
MEDIAN_SQUARE = float(special.ndtri(0.75)) ** 2
"""The median of the square of a standard normal number."""
SMALLEST, HALVINGS = 1e-18, 60
MIDDLE = (0.025, 0.975)


class GroupTest(NamedTuple):
    """The test of one group.

    Attributes:
        p_never: p-value of "no record of the group was used"; at most u with probability at most u.
        least: the smallest p-value that the counts of records or groups allow, whatever the scores are.
        effect: how much higher the group's scores are than those of what it is compared with, on average.
        low, high: the middle 95% of the effect of a group that was not used.
    """

    p_never: float
    least: float
    effect: float
    low: float
    high: float


class StandardMeans(NamedTuple):
    """The mean score of each group, in the order of `np.unique`; what is in the middle; and a mean's deviation from it.

    Attributes:
        means: the mean score of each group.
        centre: the median of the means.
        deviations: the standard deviation of each mean, in a model of random effects.
        in_query: whether the group is in the query set.
    """

    means: Float[np.ndarray, " groups"]
    centre: float
    deviations: Float[np.ndarray, " groups"]
    in_query: np.ndarray

    @property
    def standard(self) -> Float[np.ndarray, " groups"]:
        """How far the means are above the middle, in standard deviations.

        Small groups are then no more extreme than large ones, as far as the model of random effects holds.
        """
        return (self.means - self.centre) / self.deviations


def standard_means(scores: Float[np.ndarray, " n"], groups: Int[np.ndarray, " n"], size: int) -> StandardMeans:
    """The mean score of each group, and its standard deviation in a model of random effects.

    Groups differ by one variance, records within a group by another; both are estimated from all groups alike. That
    between groups makes the median of the squared standard means what it is for normal ones. By medians, groups that
    were used move neither the middle nor the variance much, unless they are half of all. The first `size` records are
    of the query set.
    """
    names, unit_of_record = np.unique(groups, return_inverse=True)
    sizes = np.bincount(unit_of_record).astype(np.float64)
    means = np.bincount(unit_of_record, scores) / sizes
    free = len(scores) - len(names)
    within = float(((scores - means[unit_of_record]) ** 2).sum()) / free if free else 0.0
    centre = float(np.median(means))
    squares = (means - centre) ** 2
    # The median falls as the variance grows, and is small enough at the upper end.
    low, high = 0.0, float(squares.max()) / MEDIAN_SQUARE
    for _ in range(HALVINGS):
        between = (low + high) / 2
        is_low = np.median(squares / np.maximum(between + within / sizes, SMALLEST)) > MEDIAN_SQUARE
        low, high = (between, high) if is_low else (low, between)
    deviations = np.sqrt(np.maximum(high + within / sizes, SMALLEST))
    return StandardMeans(means, centre, deviations, np.isin(np.arange(len(names)), unit_of_record[:size]))


def one_sided_groups(counts: Int[np.ndarray, "2 groups"]) -> tuple[int, float]:
    """How many groups have several records, all on one of two sides; and how many a random deal of records may leave.

    `counts` are a group's records on either side. The bound is three standard deviations, and one group, above what
    independent draws of records would give.

    >>> count, most = one_sided_groups(np.array([[2, 2, 3, 0], [2, 2, 1, 1]]))
    >>> count, round(most, 1)
    (0, 3.1)
    """
    sizes, several = counts.sum(axis=0), counts.sum(axis=0) > 1
    share = counts[0].sum() / max(int(sizes.sum()), 1)
    alone = (share**sizes + (1 - share) ** sizes)[several]
    one_sided = int(((counts > 0).sum(axis=0) == 1)[several].sum())
    return one_sided, float(1 + alone.sum() + 3 * np.sqrt((alone * (1 - alone)).sum()))


def unlike_in_size(groups: Int[np.ndarray, " n"], size: int) -> Bool[np.ndarray, " groups"]:
    """Whether each group of the query set has fewer records than all groups of the holdout, or more, by `np.unique`.

    The first `size` records are of the query set. At least one is of the holdout.
    """
    sizes, of_holdout = (np.unique(part, return_counts=True)[1] for part in (groups[:size], groups[size:]))
    return (sizes < of_holdout.min()) | (sizes > of_holdout.max())


def sizes_apart(groups: Int[np.ndarray, " n"], size: int) -> float:
    """The p-value of "both sets have groups of the same sizes", by the test of Kolmogorov and Smirnov.

    The first `size` records are of the query set. Sizes that are dealt with their groups have p at most u in at most
    about u of deals; ties make it larger.

    >>> groups = np.repeat(np.arange(16), [9] * 6 + [1] * 10)
    >>> round(sizes_apart(groups, 56), 3), sizes_apart(np.arange(16), 8)
    (0.008, 1.0)
    """
    sizes, of_holdout = (np.unique(part, return_counts=True)[1] for part in (groups[:size], groups[size:]))
    return float(np.asarray(scipy.stats.ks_2samp(sizes, of_holdout, method="asymp"))[1])


def among_groups(scores: Float[np.ndarray, " n"], groups: Int[np.ndarray, " n"], size: int) -> list[GroupTest]:
    """The test of each group of the query set by its rank among the groups of the holdout.

    Args:
        scores: higher for records that were used; of `size` query records, and then of the holdout records.
        groups: the group of each record; none has records of both sets.
        size: the number of query records.

    Returns:
        A test for each group of the query set, in the order of `np.unique`. `p_never` is
        (1 + #{holdout groups with a standard mean at least as large}) / (1 + #{holdout groups}).

    >>> groups = np.arange(8)
    >>> [test.p_never for test in among_groups(np.array([9.0, 2.5, 1, 2, 3, 4, 5, 6]), groups, 2)]
    [0.14285714285714285, 0.7142857142857143]
    """
    sample = standard_means(scores, groups, size)
    in_holdout = ~sample.in_query
    holdout = np.sort(sample.standard[in_holdout])
    slack = 1e-9 * (1 + np.abs(sample.standard).max())
    low, high = np.quantile(holdout, MIDDLE).tolist()
    centre, tests = float(sample.means[in_holdout].mean()), []
    from_centre = sample.centre - centre
    for mean, deviation in zip(sample.means[sample.in_query], sample.deviations[sample.in_query], strict=True):
        above = len(holdout) - int(np.searchsorted(holdout, (mean - sample.centre) / deviation - slack))
        chance = low * deviation + from_centre, high * deviation + from_centre
        tests.append(
            GroupTest(
                (1 + above) / (1 + len(holdout)), 1 / (1 + len(holdout)), float(mean - centre), *map(float, chance)
            )
        )
    return tests


def beyond_groups(
    scores: Float[np.ndarray, " n"], groups: Int[np.ndarray, " n"], size: int
) -> Float[np.ndarray, " groups"]:
    """The p-value of each group of the query set by Student's t, if standard means of groups are normal.

    A group is compared with the mean and the spread of at least two holdout groups, as a further one of them. No rank
    bounds these p-values, and nothing but the assumption carries those that are smaller than ranks could be.
    """
    sample = standard_means(scores, groups, size)
    holdout = sample.standard[~sample.in_query]
    count = len(holdout)
    reach = max(float(holdout.std(ddof=1)), 1e-12) * np.sqrt(1 + 1 / count)
    return special.stdtr(count - 1, -(sample.standard[sample.in_query] - holdout.mean()) / reach)


def counted_deals(query: int, holdout: int, permutations: int) -> float:
    """How many deals of so many records of a group its test can surely tell apart: 1 / this is the p-value of the best.

    Where random deals stand for all, half of all: they draw the observed one again.

    >>> counted_deals(3, 3, 1999), counted_deals(8, 8, 199_999), counted_deals(1000, 1000, 1999)
    (20.0, 6435.0, 2000.0)
    """
    deals = comb(query + holdout, min(query, holdout, LARGEST_SIDE))
    return float(deals if deals <= ENUMERATED else min(deals / 2, permutations + 1))


def within_group(
    key: Key[Array, ""], scores: Float[np.ndarray, " n"], size: int, permutations: int = PERMUTATIONS
) -> GroupTest:
    """The test of one group by its own records, of which the first `size` are in the query set.

    All deals of the records are computed, or random ones: `permutations` at most, fewer where `ENOUGH` of them are as
    extreme. Either p-value is exact (Besag & Clifford 1991).

    >>> import jax
    >>> test = within_group(jax.random.key(1), np.array([5.0, 4, 6, 1, 2, 3]), 3)
    >>> test.p_never, test.least, test.effect
    (0.05, 0.05, 3.0)
    """
    n = len(scores)
    if not 0 < size < n:
        return GroupTest(1.0, 1.0, 0.0, 0.0, 0.0)
    centred = scores - scores.mean()
    per_sum = 1 / size + 1 / (n - size)
    observed = float(centred[:size].sum())
    least_sum = observed - 1e-9 * (1e-12 + float(np.abs(centred).sum()))
    # Not more than all deals, and known at once for any number of records.
    if comb(n, min(size, n - size, 6)) <= ENUMERATED:
        sums = centred[np.array(list(combinations(range(n), size)))].sum(axis=1)
        p_never, least = float((sums >= least_sum).mean()), 1 / len(sums)
    else:
        p_never, sums = _by_random_deals(key, centred, size, least_sum, permutations)
        # Random deals draw the observed one again.
        least = max(1 / (1 + permutations), 1 / comb(n, min(size, n - size, LARGEST_SIDE)))
    low, high = (per_sum * np.quantile(sums, MIDDLE)).tolist()
    return GroupTest(p_never, least, per_sum * observed, low, high)


def _by_random_deals(
    key: Key[Array, ""], centred: np.ndarray, size: int, least_sum: float, permutations: int
) -> tuple[float, np.ndarray]:
    """The sequential p-value by random deals, and the sums of the first ones."""
    generator, extreme, first = generator_of(key), 0, np.zeros(0)
    for start in range(0, permutations, BLOCK):
        count = min(BLOCK, permutations - start)
        sums = np.concatenate([rows[:, :size].sum(axis=1) for rows in shuffled(generator, centred, count)])
        first = first if start else sums
        places = np.flatnonzero(sums >= least_sum)
        if extreme + len(places) >= ENOUGH:
            return ENOUGH / (start + int(places[ENOUGH - extreme - 1]) + 1), first
        extreme += len(places)
    return (1 + extreme) / (1 + permutations), first

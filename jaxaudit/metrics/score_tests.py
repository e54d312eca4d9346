"""Tests of use from any number a record, from any kind of model: of the whole query set, and of each of its groups.

If query set and holdout were dealt at random and the target never used the query set, any statistic of the scores and
the sets has an exact permutation p-value (`score_test`). Its power comes from what is blind to the sets (`residuals`),
from weights by what shows use (`combined`), and from two scales: ranks find a small change of all records
(`normal_scores`), numbers a large one of few (`cut_scores`). Of a group: `among_groups` where whole groups were dealt,
`within_group` where records were, `drift_test` without either. The first `size` records are of the query set.
"""

from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int
from scipy import special

from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.arrays import Deals, Integers, Kinds, Numbers, OneKey
from jaxaudit.metrics.holdout import freedom_of_means, mean_variance
from jaxaudit.metrics.permutation import PERMUTATIONS, permuted_differences, set_effects, share_as_large, shuffled
from jaxaudit.metrics.usage import ALPHA, UNKNOWN, Limits, Parabola, Ratio
from jaxaudit.randomness import generator_of

PerGroup = Float[np.ndarray, " groups"]
OfGroups = Bool[np.ndarray, " groups"]

PENALTIES = 10.0 ** np.arange(-6, 3)
LEAST_FREE = 0.2
"""The least share of the records' degrees of freedom that a fit leaves, if some penalty leaves as many."""
SHRINKAGE = 0.05
"""Added to the correlations of scores on their diagonal, so that two nearly equal scores cannot cancel each other."""
CUT = 0.01
"""The share of the lowest and of the highest numbers that `cut_scores` brings to the next one."""
SWEEPS, CONVERGED = 1_000, 1e-9
"""Coordinate descent ends when no weight changes more, or after so many sweeps: the same number for all deals."""


class ScoreTest(NamedTuple):
    """The result of the exact test of use; `p_smaller` is of a query set that looks *less* used. If no score has a
    known direction (`directed`), any difference counts.
    """

    p_never: float
    p_smaller: float
    directed: bool


def score_test(
    key: OneKey,
    scores: Float[np.ndarray, "scales n kinds"],
    directions: Int[np.ndarray, " kinds"],
    size: int,
    *,
    groups: Integers | None = None,
    pairs: Integers | None = None,
    strata: Integers | None = None,
    permutations: int = PERMUTATIONS,
) -> ScoreTest:
    """Was the query set used? A permutation test of the scores' differences between query set and holdout (`combined`).

    A direction is 1 if scores are higher for records that were used, -1 if lower, 0 if unknown. Other arguments are as
    for `permuted_differences`.
    """
    columns = np.concatenate(scores, axis=1)
    differences = permuted_differences(
        key, columns, size, groups=groups, pairs=pairs, strata=strata, permutations=permutations
    )

    def share(differences: Float[np.ndarray, "deals columns"]) -> float:
        scales = np.split(differences, len(scores), axis=1)
        return share_as_large(np.max([combined(scale, directions) for scale in scales], axis=0))

    return ScoreTest(share(differences), share(-differences) if directions.any() else 1.0, bool(directions.any()))


def combined(differences: Deals, directions: Int[np.ndarray, " kinds"]) -> Float[np.ndarray, " deals"]:
    """One statistic for each deal, from the differences of several kinds of scores; larger means more likely used.

    It is the largest weighted mean of those in their known directions (Roy 1953), which a difference against its
    direction never raises; without any known direction, a norm that finds any difference.
    """
    has_direction = directions != 0
    toward = differences[:, has_direction] * directions[has_direction] if has_direction.any() else differences
    deviation = np.sqrt((toward**2).mean(axis=0))
    z = toward[:, deviation > 0] / deviation[deviation > 0]
    if not z.shape[1]:
        return np.zeros(len(z))
    if z.shape[1] == 1 and has_direction.any():
        return z[:, 0]
    correlations = (z.T @ z / len(z) + SHRINKAGE * np.eye(z.shape[1])) / (1 + SHRINKAGE)
    if not has_direction.any():
        return np.einsum("dk,kl,dl->d", z, np.linalg.inv(correlations), z)
    weights = nonnegative_weights(z, correlations)
    spread = np.sqrt(np.einsum("dk,kl,dl->d", weights, correlations, weights))
    along = (weights * z).sum(axis=1) / np.where(spread > 0, spread, 1)
    # Without a positive difference, the best weights are those of the largest difference alone.
    return np.where(spread > 0, along, z.max(axis=1))


def nonnegative_weights(z: Deals, correlations: Float[np.ndarray, "kinds kinds"]) -> Deals:
    """The weights w >= 0 with the largest w' z - w' R w / 2 for each deal, by coordinate descent on all at once."""
    weights = np.zeros_like(z)
    for _ in range(SWEEPS):
        change = 0.0
        for kind, row in enumerate(correlations):
            after = np.maximum(weights[:, kind] + z[:, kind] - weights @ row, 0)
            change = max(change, float(np.abs(after - weights[:, kind]).max()))
            weights[:, kind] = after
        if change < CONVERGED:
            break
    return weights


def normal_scores(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The normal quantiles of the ranks of numbers (van der Waerden), ties by mean ranks: no outlier decides a mean."""
    ranks = mid_ranks(values.reshape(-1)).reshape(values.shape)
    return special.ndtri(ranks / (values.size + 1))


def cut_scores(values: Numbers) -> Numbers:
    """Numbers in standard deviations, the lowest and the highest 1% (one at least) cut to the next one.

    >>> cut_scores(np.array([1.0, 2.0, 3.0, 2.0, 1e9])).round(2)
    array([-0.82, -0.82,  1.22, -0.82,  1.22])
    """
    count = min(int(np.ceil(CUT * len(values))), (len(values) - 1) // 2)
    low, high = np.partition(values, (count, len(values) - 1 - count))[[count, -1 - count]]
    if not high > low:
        return np.zeros(len(values))
    # From 0 to 1 first, so that no square is too large or too small.
    cut_values = (np.clip(values, low, high) - low) / (high - low)
    return (cut_values - cut_values.mean()) / cut_values.std()


def residuals(scores: Kinds, predictors: Float[np.ndarray, "n columns"]) -> Kinds:
    """What ridge regression on the predictors and a constant leaves of each kind of scores, in standard deviations.

    The penalty is chosen by generalised cross-validation (Golub, Heath & Wahba 1979).
    """
    centred = scores - scores.mean(axis=0)
    design = predictors - predictors.mean(axis=0)
    deviation = design.std(axis=0)
    design = design[:, deviation > 1e-12] / deviation[deviation > 1e-12]
    n = len(scores)
    values, vectors = np.linalg.eigh(design.T @ design / n)
    values = np.maximum(values, 0)
    along = vectors.T @ (design.T @ centred) / n
    # By penalty, how much of each direction is kept; (penalties, directions).
    kept = values / (values + PENALTIES[:, None])
    explained = (along**2 / np.maximum(values, 1e-12)[:, None])[None] * (2 * kept - kept**2)[:, :, None]
    free = 1 - (1 + kept.sum(axis=1)) / n
    errors = ((centred**2).mean(axis=0) - explained.sum(axis=1)) / np.maximum(free, 1e-12)[:, None] ** 2
    # Where nearly as many numbers are fitted as there are records, nothing is left to judge a penalty by.
    errors[(free < LEAST_FREE) & (free < free.max())] = np.inf
    penalty = PENALTIES[np.argmin(errors, axis=0)]
    left = centred - design @ (vectors @ (along / (values[:, None] + penalty)))
    return left / np.maximum(left.std(axis=0), 1e-9)


class ShareLeft(NamedTuple):
    """The position of a target between models of known truth. `effect` is the difference between both kinds of models,
    in its standard errors; up to `chance` it may be chance, and the limits are unknown. `p_unused` and `p_used` are of
    "the target is a model like those of that kind".
    """

    limits: Limits
    p_unused: float | None
    p_used: float | None
    effect: float
    chance: float = np.inf


def share_left(
    target: Numbers,
    unused: Float[np.ndarray, "unused n"],
    used: Float[np.ndarray, "used n"],
    size: int,
    *,
    groups: Integers | None = None,
    strata: Integers | None = None,
    alpha: float = ALPHA,
) -> ShareLeft:
    """The share (T - U) / (V - U) of the effect of use that is left in a target, and its limits (Fieller 1954), with T,
    U and V the mean scores of the query set, minus that of the holdout, of target, `unused` and `used` models. In 300
    made-up tables of each of 18 settings, with 2, 3 and 8 models of each kind, the 95% limit was below the share in at
    most 2.3%, 2.0% and 3.0%.
    """
    is_query = np.arange(len(target)) < size
    sides = [is_query] if is_query.all() else [is_query, ~is_query]

    def compared(scores: np.ndarray) -> tuple[float, float, int]:
        """Query set minus holdout, the variance of that, and its degrees of freedom."""
        if strata is not None:
            effects, covariance, freedom = set_effects(scores, is_query.astype(int), strata)
            return float(effects[0]), float(covariance[0, 0]), freedom
        difference = float(scores[:size].mean() - (scores[size:].mean() if len(sides) > 1 else 0))
        variance = sum(mean_variance(scores, groups, side) / int(side.sum()) for side in sides)
        return difference, variance, freedom_of_means(sides, groups)

    low = unused.mean(axis=0) if len(unused) else np.zeros_like(target)
    a = target - low
    difference, of_a, freedom_records = compared(a)
    of_seeds = {
        kind: (float(np.var([compared(scores)[0] for scores in models], ddof=1)), len(models) - 1)
        for kind, models in enumerate((unused, used))
        if len(models) > 1
    }
    # Models of one kind lend the other their spread, if it has a single model.
    variances = [*of_seeds.values()] or [(0.0, 0)]
    (v_unused, free_unused), (v_used, free_used) = (of_seeds.get(kind, variances[0]) for kind in range(2))
    more_unused = 1 / len(unused) if len(unused) else 0.0
    p_unused = None
    if len(unused) > 1:
        v_none = of_a + v_unused * (1 + more_unused)
        # Where models agree by chance, even `_freedom` has nearly those of the records: the smaller ones are safe.
        freedom = min(freedom_records, len(unused) - 1)
        p_unused = float(special.stdtr(freedom, -difference / np.sqrt(max(v_none, 1e-300))))
    if not len(used):
        return ShareLeft(UNKNOWN, p_unused, None, 0.0)
    # Two models of a kind may agree by chance: their variance is at least that of both kinds together.
    pooled = sum(value * free for value, free in variances) / max(sum(free for _, free in variances), 1)
    v_unused, v_used = max(v_unused, pooled), max(v_used, pooled)
    b = used.mean(axis=0) - low
    full, of_b, _ = compared(b)
    between = (compared(a + b)[1] - of_a - of_b) / 2
    # The target's own seed, and those of the means of both kinds, at the share f.
    seeds = (
        v_unused * (1 + more_unused),
        v_used - v_unused - 2 * v_unused * more_unused,
        v_unused * more_unused + v_used / len(used),
    )
    variance = (of_a + seeds[0], -2 * between + seeds[1], of_b + seeds[2])
    of_means = (of_b, v_unused * more_unused, v_used / len(used))
    free = (freedom_records, free_unused, free_used)
    error = float(np.sqrt(sum(of_means)))
    effect = full / error if error > 0 else 0.0
    chance = float(special.stdtrit(_freedom(of_means, free), 1 - alpha))
    if not effect > chance:
        return ShareLeft(UNKNOWN, p_unused, None, effect, chance)

    def freedom_at(share: float) -> float:
        of_unused = v_unused * (1 - share + (1 - share) ** 2 * more_unused)
        of_used = v_used * (share + share**2 / len(used))
        return _freedom((_at(variance, share) - of_unused - of_used, of_unused, of_used), free)

    freedom = freedom_at(float(np.clip(difference / full, 0, 1)))
    limits = Ratio(difference, full, variance, freedom).limits(alpha)
    of_full_use = np.sqrt(max(_at(variance, 1.0), 1e-300))
    p_used = float(special.stdtr(freedom_at(1.0), (difference - full) / of_full_use))
    return ShareLeft(limits, p_unused, p_used, effect, chance)


def _at(parabola: Parabola, share: float) -> float:
    return parabola[0] + parabola[1] * share + parabola[2] * share**2


def _freedom(variances: tuple[float, ...], free: tuple[int, ...]) -> float:
    """Harmonic mean, weighed by variance: at worst 7% of 95% intervals missed, by Satterthwaite (1946) up to 20%."""
    parts = [(max(value, 0.0), count) for value, count in zip(variances, free, strict=True) if count > 0]
    below = sum(value / count for value, count in parts)
    return sum(value for value, _ in parts) / below if below > 0 else float(free[0])


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


class GroupTest(NamedTuple):
    """The test of one group: `p_never` of "no record of the group was used", at most u with probability at most u;
    `least` is the smallest p-value that the counts allow.
    """

    p_never: float
    least: float
    effect: float


def standard_means(scores: Numbers, groups: Integers, size: int) -> tuple[PerGroup, PerGroup, OfGroups]:
    """The mean score of each group, in the order of `np.unique`; how far it is above the middle, in standard deviations
    of a model of random effects, so that small groups are no more extreme; and whether the group is of the query set.
    Medians estimate both variances, so groups that were used hardly move them, unless they are half of all.
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
    return means, (means - centre) / deviations, np.isin(np.arange(len(names)), unit_of_record[:size])


def one_sided_groups(counts: Int[np.ndarray, "2 groups"]) -> tuple[int, float]:
    """How many groups have several records, all on one of two sides; and how many a random deal of records may leave.

    `counts` are a group's records on either side. The bound is above the mean by three standard deviations and one.

    >>> count, most = one_sided_groups(np.array([[2, 2, 3, 0], [2, 2, 1, 1]]))
    >>> count, round(most, 1)
    (0, 3.1)
    """
    sizes, several = counts.sum(axis=0), counts.sum(axis=0) > 1
    share = counts[0].sum() / max(int(sizes.sum()), 1)
    alone = (share**sizes + (1 - share) ** sizes)[several]
    one_sided = int(((counts > 0).sum(axis=0) == 1)[several].sum())
    return one_sided, float(1 + alone.sum() + 3 * np.sqrt((alone * (1 - alone)).sum()))


def unlike_in_size(groups: Integers, size: int) -> OfGroups:
    """Whether each group of the query set has fewer records than all groups of the holdout, or more, by `np.unique`."""
    sizes, of_holdout = (np.unique(part, return_counts=True)[1] for part in (groups[:size], groups[size:]))
    return (sizes < of_holdout.min()) | (sizes > of_holdout.max())


def sizes_apart(groups: Integers, size: int) -> float:
    """The p-value of "both sets have groups of the same sizes" (Kolmogorov and Smirnov): groups of 30 to 40 records
    beside a holdout of mostly 2 to 7 had p at most 5% in 10 to 12% of deals.
    """
    sizes, of_holdout = (np.unique(part, return_counts=True)[1] for part in (groups[:size], groups[size:]))
    return float(np.asarray(scipy.stats.ks_2samp(sizes, of_holdout, method="asymp"))[1])


def among_groups(scores: Numbers, groups: Integers, size: int) -> list[GroupTest]:
    """The test of each group of the query set (by `np.unique`) by its rank among the groups of the holdout.

    `p_never` is (1 + #{holdout groups with a standard mean at least as large}) / (1 + #{holdout groups}).
    """
    means, standard, in_query = standard_means(scores, groups, size)
    holdout = np.sort(standard[~in_query])
    slack, count = 1e-9 * (1 + np.abs(standard).max()), len(holdout)
    above = count - np.searchsorted(holdout, standard[in_query] - slack)
    effects = means[in_query] - float(means[~in_query].mean())
    ranked = zip(above.tolist(), effects.tolist(), strict=True)
    return [GroupTest((1 + larger) / (1 + count), 1 / (1 + count), effect) for larger, effect in ranked]


def beyond_groups(scores: Numbers, groups: Integers, size: int) -> PerGroup:
    """The p-value of each group of the query set by Student's t, as a further one of at least two holdout groups: it
    may be smaller than ranks could be, and rests on normal means.
    """
    _, standard, in_query = standard_means(scores, groups, size)
    holdout = standard[~in_query]
    count = len(holdout)
    reach = max(float(holdout.std(ddof=1)), 1e-12) * np.sqrt(1 + 1 / count)
    return special.stdtr(count - 1, -(standard[in_query] - holdout.mean()) / reach)


def counted_deals(query: int, holdout: int, permutations: int) -> float:
    """How many deals of so many records of a group its test can surely tell apart: 1 / this is the p-value of the best.
    Where random deals stand for all, half of all: they draw the observed one again.

    >>> counted_deals(3, 3, 1999), counted_deals(8, 8, 199_999), counted_deals(1000, 1000, 1999)
    (20.0, 6435.0, 2000.0)
    """
    deals = comb(query + holdout, min(query, holdout, LARGEST_SIDE))
    return float(deals if deals <= ENUMERATED else min(deals / 2, permutations + 1))


def within_group(key: OneKey, scores: Numbers, size: int, permutations: int = PERMUTATIONS) -> GroupTest:
    """The test of one group by its own records, of which the first `size` are in the query set. Random deals end where
    `ENOUGH` of them are as extreme; the p-value is exact (Besag & Clifford 1991).
    """
    n = len(scores)
    if not 0 < size < n:
        return GroupTest(1.0, 1.0, 0.0)
    centred = scores - scores.mean()
    per_sum = 1 / size + 1 / (n - size)
    observed = float(centred[:size].sum())
    least_sum = observed - 1e-9 * (1e-12 + float(np.abs(centred).sum()))
    # Not more than all deals, and known at once for any number of records.
    if comb(n, min(size, n - size, 6)) <= ENUMERATED:
        sums = centred[np.array(list(combinations(range(n), size)))].sum(axis=1)
        p_never, least = float((sums >= least_sum).mean()), 1 / len(sums)
    else:
        p_never = _by_random_deals(key, centred, size, least_sum, permutations)
        # Random deals draw the observed one again.
        least = max(1 / (1 + permutations), 1 / comb(n, min(size, n - size, LARGEST_SIDE)))
    return GroupTest(p_never, least, per_sum * observed)


def _by_random_deals(key: OneKey, centred: np.ndarray, size: int, least_sum: float, permutations: int) -> float:
    """The sequential p-value by random deals."""
    generator, extreme = generator_of(key), 0
    for start in range(0, permutations, BLOCK):
        count = min(BLOCK, permutations - start)
        sums = np.concatenate([rows[:, :size].sum(axis=1) for rows in shuffled(generator, centred, count)])
        places = np.flatnonzero(sums >= least_sum)
        if extreme + len(places) >= ENOUGH:
            return ENOUGH / (start + int(places[ENOUGH - extreme - 1]) + 1)
        extreme += len(places)
    return (1 + extreme) / (1 + permutations)


DRIFT_SOURCE = "Smyth 2004"
PRIOR = 2
"""The degrees of freedom that the mean variance of all groups has in that of each. Estimated from the groups, as Smyth
does, they were so many by chance that 11 to 19% of tables with a few groups of much larger drift accused one."""
MOST_FREE = 5
"""Drifts of heavier tails do no harm then (Student's t with 3 of them)."""
FEWEST_MODELS, FEWEST_HOLDOUT, FEWEST_QUERY = 3, 3, 7
"""Models, groups of a holdout, and groups of a query set without such a holdout. With two models, a group that drifts
far more than all others was accused in up to 8% of tables."""
OF_CENTRE = 2.0
"""The variance of the lower third's reading of the centre of n normal numbers is at most this over n of theirs."""


def drift_test(
    target: PerGroup,
    unused: Float[np.ndarray, "models groups"],
    in_holdout: OfGroups,
) -> tuple[PerGroup, PerGroup]:
    """How much higher the target scores each group than models without the query set do, and p-values of "not used".

    A shift of all groups, read in the holdout or the lower third, is taken off. Variances are pooled (Smyth 2004,
    equation 6): without, eight models accused an innocent patient in 25% of tables.
    """
    models, count = unused.shape
    of_target = target - unused.mean(axis=0)
    drifts = unused - unused.mean(axis=0)
    drifts = drifts - drifts.mean(axis=1, keepdims=True)
    of_group = (drifts**2).sum(axis=0) / (models - 1) * count / (count - 1)
    # Of the target's drift from the mean of the models.
    pooled = float(of_group.mean()) * (1 + 1 / models)
    variance = (PRIOR * pooled + (models - 1) * of_group * (1 + 1 / models)) / (PRIOR + models - 1)
    if in_holdout.any():
        centre, of_centre, widening = float(of_target[in_holdout].mean()), 1 / int(in_holdout.sum()), 1.0
    else:
        lower = np.sort(of_target)[: -(-count // 3)]
        normal = special.ndtri((np.arange(1, len(lower) + 1) - 0.375) / (count + 0.25))
        slope = float(np.polyfit(normal, lower, 1)[0])
        centre, of_centre = float(lower.mean() - normal.mean() * np.sqrt(pooled)), OF_CENTRE / count
        widening = max(1.0, slope**2 / max(pooled, 1e-300))
    effects = of_target - centre
    errors = np.sqrt(np.maximum(widening * (variance + of_centre * pooled), 1e-300))
    return effects, special.stdtr(min(PRIOR + models - 1, MOST_FREE), -effects / errors)

"""Tests of use from any number a record: a loss, a likelihood, a squared error, from any kind of model.

If query set and holdout were dealt at random and the target never used the query set, any statistic of the scores and
the sets has an exact permutation p-value (`score_test`). Its power comes from three steps. Ridge regression, which does
not look at the sets, takes out what covariates and other models show of difficulty (`residuals`). One statistic weighs
several scores by what they show of use (`combined`). The larger of two scales counts: ranks find a small change of all
records (`normal_scores`), numbers a large one of few (`cut_scores`).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.arrays import Integers, Kinds, Numbers, OneKey
from jaxaudit.metrics.holdout import mean_variance
from jaxaudit.metrics.permutation import PERMUTATIONS, permuted_differences, set_effects, share_as_large
from jaxaudit.metrics.usage import ALPHA, LEVEL, UNKNOWN, Limits, Ratio

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
    """The result of the exact test of use; `p_smaller` is of a query set that looks *less* used.

    If no score has a known direction (`directed`), any difference counts.
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


def combined(
    differences: Float[np.ndarray, "deals kinds"], directions: Int[np.ndarray, " kinds"]
) -> Float[np.ndarray, " deals"]:
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


def nonnegative_weights(
    z: Float[np.ndarray, "deals kinds"], correlations: Float[np.ndarray, "kinds kinds"]
) -> Float[np.ndarray, "deals kinds"]:
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
    """The position of a target between models of known truth.

    `effect` is the difference between both kinds of models, in its standard errors; up to `chance` it may be chance,
    and the limits are unknown. `p_unused` and `p_used` are of "the target is a model like those of that kind".
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
    level: float = LEVEL,
) -> ShareLeft:
    """The share (T - U) / (V - U) of the effect of use that is left in a target, and its limits (Fieller 1954).

    T, U and V are mean scores of the query set, minus that of the holdout, of target, `unused` and `used` models. In
    300 made-up tables of each of 18 settings, with 2, 3 and 8 models of each kind, the 95% limit was below the share in
    at most 2.3%, 2.0% and 3.0%.
    """
    is_query = np.arange(len(target)) < size
    sides = [is_query] if is_query.all() else [is_query, ~is_query]

    def mean(scores: np.ndarray) -> float:
        if strata is not None:
            return float(set_effects(scores, is_query.astype(int), strata).effects[0])
        return float(scores[:size].mean() - (scores[size:].mean() if len(sides) > 1 else 0))

    def variance_of(scores: np.ndarray) -> float:
        if strata is not None:
            return float(set_effects(scores, is_query.astype(int), strata).covariance[0, 0])
        return sum(mean_variance(scores, groups, side) / int(side.sum()) for side in sides)

    low = unused.mean(axis=0) if len(unused) else np.zeros_like(target)
    a = target - low
    difference, of_a = mean(a), variance_of(a)
    of_seeds = [
        (float(np.var([mean(side) for side in models], ddof=1)), len(models) - 1) if len(models) > 1 else None
        for models in (unused, used)
    ]
    # Models of one kind lend the other their spread, if it has a single model.
    variances = [of_side for of_side in of_seeds if of_side is not None] or [(0.0, 0)]
    (v_unused, free_unused), (v_used, free_used) = (of_side or variances[0] for of_side in of_seeds)
    units = min(int(side.sum()) if groups is None else len(np.unique(groups[side])) for side in sides)
    freedom_records = max(1, units - 1)
    if strata is not None:
        freedom_records = set_effects(target, is_query.astype(int), strata).freedom
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
    full, of_b = mean(b), variance_of(b)
    between = (variance_of(a + b) - of_a - of_b) / 2
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
    limits = Ratio(difference, full, variance, freedom).limits(alpha, level)
    of_full_use = np.sqrt(max(_at(variance, 1.0), 1e-300))
    p_used = float(special.stdtr(freedom_at(1.0), (difference - full) / of_full_use))
    return ShareLeft(limits, p_unused, p_used, effect, chance)


def _at(parabola: tuple[float, float, float], share: float) -> float:
    return parabola[0] + parabola[1] * share + parabola[2] * share**2


def _freedom(variances: tuple[float, ...], free: tuple[int, ...]) -> float:
    """Degrees of freedom of a sum of estimated variances: their harmonic mean, weighed by the variances.

    Satterthwaite's (1946) are more: with two models of each kind, 13% to 20% of intervals at 95% missed the share in
    the worst worlds, 7% by these.
    """
    parts = [(max(value, 0.0), count) for value, count in zip(variances, free, strict=True) if count > 0]
    below = sum(value / count for value, count in parts)
    return sum(value for value, _ in parts) / below if below > 0 else float(free[0])

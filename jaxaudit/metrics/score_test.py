"""An exact test of use from any number a record: a loss, a likelihood, a squared error, from any kind of model.

If query set and holdout were dealt at random and the target never used the query set, which record is in which set is
exchangeable given all scores. So any statistic of the scores and the sets has an exact permutation p-value. Its power
comes from two steps that do not look at the sets: the difficulty of a record, as covariates and other models show it,
is taken out of each score by ridge regression; and several scores are combined by a statistic that weighs them by what
they show (`combined`), which is computed anew for every random deal.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy import special

from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.permutation import PERMUTATIONS, permuted_differences, share_as_large

PENALTIES = 10.0 ** np.arange(-6, 3)
LEAST_FREE = 0.2
"""The least share of the records' degrees of freedom that a fit leaves, if some penalty leaves as many."""
SHRINKAGE = 0.05
"""Added to the correlations of scores on their diagonal, so that two nearly equal scores cannot cancel each other."""


class ScoreTest(NamedTuple):
    """The result of the exact test of use.

    Attributes:
        p_never: p-value of "the target never used the query set"; at most u with probability at most u.
        p_smaller: p-value of a query set that looks *less* used than the holdout; 1 if no score has a known direction.
        difference: the mean of the oriented scores of the query set minus that of the holdout, in standard deviations.
        critical: `p_never` is at most 5% if `difference` is above this, as far as one number can say.
    """

    p_never: float
    p_smaller: float
    difference: float
    critical: float


def score_test(
    key: Key[Array, ""],
    scores: Float[np.ndarray, "n kinds"],
    directions: Int[np.ndarray, " kinds"],
    size: int,
    *,
    groups: Int[np.ndarray, " n"] | None = None,
    pairs: Int[np.ndarray, " n"] | None = None,
    permutations: int = PERMUTATIONS,
    alpha: float = 0.05,
) -> ScoreTest:
    """Was the query set used? A permutation test of the scores' differences between query set and holdout.

    Args:
        key: random key of the deals.
        scores: of the query records, and then of the holdout records, as from `residuals`.
        directions: by kind of scores, 1 if scores are higher for records that were used, -1 if they are lower, 0 if it
            is not known: then both directions count.
        size: the number of query records.
        groups, pairs, permutations: as for `permuted_differences`.
        alpha: the level of `critical`.

    >>> import jax
    >>> random = np.random.default_rng(1)
    >>> scores = random.normal(size=(200, 2)) + 0.8 * (np.arange(200) < 100)[:, None]
    >>> score_test(jax.random.key(1), scores, np.array([1, 0]), 100).p_never
    0.0005
    """
    found = permuted_differences(key, scores, size, groups=groups, pairs=pairs, permutations=permutations)
    known = directions != 0
    oriented = (found * directions)[:, known].mean(axis=1) if known.any() else np.zeros(len(found))
    return ScoreTest(
        share_as_large(combined(found, directions)),
        share_as_large(-oriented) if known.any() else 1.0,
        float(oriented[0]),
        float(np.quantile(oriented, 1 - alpha, method="higher")),
    )


def combined(
    differences: Float[np.ndarray, "deals kinds"], directions: Int[np.ndarray, " kinds"]
) -> Float[np.ndarray, " deals"]:
    """One statistic for each deal, from the differences of several kinds of scores; larger means more likely used.

    With z the differences in standard deviations over deals, and A the inverse of their (shrunken) correlations:

        z' A z + 2 z' A d / sqrt(d' A d)

    The first term finds any difference, the second one in the known directions d; the factor weighs a difference of one
    standard deviation in direction d like the first term. A single score of known direction is its own statistic. The
    standard deviations and correlations are those of all deals, the observed one among them, so the statistic treats
    all deals alike and its p-value stays exact.

    >>> combined(np.array([[1.0], [-1.0]]), np.array([-1]))
    array([-1.,  1.])
    """
    deviation = np.sqrt((differences**2).mean(axis=0))
    z = differences / np.where(deviation > 0, deviation, 1)
    if len(directions) == 1 and directions[0]:
        return z[:, 0] * directions[0]
    inverse = np.linalg.inv(z.T @ z / len(z) + SHRINKAGE * np.eye(len(directions)))
    weights = inverse @ directions
    along = float(directions @ weights)
    return np.einsum("dk,kl,dl->d", z, inverse, z) + (2 * z @ weights / np.sqrt(along) if along > 0 else 0)


def normal_scores(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Numbers replaced by the normal quantiles of their ranks among all of them (van der Waerden), ties by mean ranks.

    A monotone function of a score then changes nothing, and no outlier decides a mean.

    >>> normal_scores(np.array([3.0, 1.0, 1000.0])).round(2)
    array([ 0.  , -0.67,  0.67])
    """
    ranks = mid_ranks(values.reshape(-1)).reshape(values.shape)
    return special.ndtri(ranks / (values.size + 1))


def residuals(
    scores: Float[np.ndarray, "n kinds"], predictors: Float[np.ndarray, "n columns"]
) -> Float[np.ndarray, "n kinds"]:
    """What ridge regression on the predictors and a constant leaves of each kind of scores, in standard deviations.

    The penalty of each kind is the one of `PENALTIES` with the least generalised cross-validation error (Golub, Heath &
    Wahba 1979). Nothing here knows which set a record is in.

    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> noise = np.cos(40 * x)
    >>> bool(np.abs(np.corrcoef(residuals(2 * x + noise, x)[:, 0], x[:, 0])[0, 1]) < 0.05)
    True
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

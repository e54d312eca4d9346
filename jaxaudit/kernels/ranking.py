"""How well scores put one group above another: ROC curves and the area under them, exact with ties, and resampled.

On the host. A resample changes how often a score occurs, never its rank: scores are sorted once, and a replicate is a
running sum of counts in that order.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxaudit.errors import InputError


class Ranking(NamedTuple):
    """Scores in descending order, cut where their value changes.

    Attributes:
        order: indices of the scores, the highest first.
        ends: position of the last of each distinct value in that order.
        truth: which are of the group that should rank high, in that order.
    """

    order: Int[np.ndarray, " n"]
    ends: Int[np.ndarray, " distinct"]
    truth: Bool[np.ndarray, " n"]


class ROC(NamedTuple):
    """The points of a ROC curve, from (0, 0) to (1, 1); equal scores enter together.

    Attributes:
        false_positive_rates: share of the others at or above each threshold.
        true_positive_rates: share of the group at or above each threshold.
        thresholds: infinity, then every distinct score, descending.
    """

    false_positive_rates: Float[np.ndarray, " points"]
    true_positive_rates: Float[np.ndarray, " points"]
    thresholds: Float[np.ndarray, " points"]


def rank(scores: Float[Array | np.ndarray, " n"], truth: Bool[Array | np.ndarray, " n"]) -> Ranking:
    """Sorts the scores, once for all that is asked of them.

    Raises:
        InputError: lengths differ, a score is NaN, or all records are of one group.
    """
    scores, truth = np.asarray(scores), np.asarray(truth)
    if scores.shape != truth.shape:
        raise InputError(
            f"there are {scores.size} scores and {truth.size} truths: give one of each for every attacked record."
        )
    if np.isnan(scores).any():
        raise InputError(f"{int(np.isnan(scores).sum())} scores are NaN, which have no rank; did training diverge?")
    if truth.all() or not truth.any():
        raise InputError(
            f"{int(truth.sum())} of {truth.size} records are members: an attack is judged on members and non-members; "
            "attack some of both."
        )
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    return Ranking(order, np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)), truth[order])


def running_counts(
    ranking: Ranking, counts: Int[np.ndarray, "replicates n"]
) -> tuple[Int[np.ndarray, "replicates distinct"], Int[np.ndarray, "replicates distinct"]]:
    """How many of the group and of the others lie at or above each distinct score, record i occurring `counts[:, i]`.

    The last column is how many there are.
    """
    ordered = counts[:, ranking.order]
    group = np.cumsum(ordered * ranking.truth, axis=1)[:, ranking.ends]
    return group, np.cumsum(ordered, axis=1)[:, ranking.ends] - group


def area(
    group: Int[np.ndarray, "replicates distinct"], others: Int[np.ndarray, "replicates distinct"]
) -> Float[np.ndarray, " replicates"]:
    """The area under the ROC curve from `running_counts`: P(group > other) + P(group = other) / 2.

    Mann & Whitney (1947). Counted in integers, so it is exact but for one rounding; NaN where either group is empty.
    """
    here = np.diff(group, axis=1, prepend=0)
    above = np.concatenate([np.zeros((len(others), 1), others.dtype), others[:, :-1]], axis=1)
    twice = (here * (2 * others[:, -1:] - others - above)).sum(axis=1)
    pairs = group[:, -1] * others[:, -1]
    return np.divide(twice, 2 * pairs, out=np.full(len(group), np.nan), where=pairs > 0)


def power(
    group: Int[np.ndarray, "replicates distinct"], others: Int[np.ndarray, "replicates distinct"], level: float
) -> Float[np.ndarray, "2 replicates"]:
    """The largest true positive rate of a threshold whose false positive rate is at most `level`, and that rate.

    Thresholds lie between distinct scores, so ties are called alike, and nothing is interpolated: never more than an
    attacker could attain on these records. NaN where either group is empty.
    """
    # 1e-9: a level such as 0.07 times 100 is 7, not the 7.000000000000001 or 6.999999999999999 of the product.
    allowed = np.floor(level * others[:, -1:] + 1e-9)
    kept = others <= allowed
    hits, alarms = np.where(kept, group, 0).max(axis=1), np.where(kept, others, 0).max(axis=1)
    rates = np.stack([hits, alarms]) / np.maximum(np.stack([group[:, -1], others[:, -1]]), 1)
    return np.where((group[:, -1] > 0) & (others[:, -1] > 0), rates, np.nan)


def auc(scores: Float[Array | np.ndarray, " n"], truth: Bool[Array | np.ndarray, " n"]) -> float:
    """The chance that a random record of the group scores above a random other, ties half; larger ranks better.

    Scores that are all equal give 0.5. Infinite scores are scores like any.

    Raises:
        InputError: lengths differ, a score is NaN, or all records are of one group.

    >>> auc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    ranking = rank(scores, truth)
    return float(area(*running_counts(ranking, np.ones((1, len(ranking.order)), np.int64)))[0])


def roc(scores: Float[Array | np.ndarray, " n"], truth: Bool[Array | np.ndarray, " n"]) -> ROC:
    """The ROC curve: true against false positive rate as the threshold falls.

    Raises:
        InputError: as for `auc`.

    >>> roc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([True, True, False, False])).true_positive_rates
    array([0. , 0.5, 1. , 1. ])
    """
    ranking = rank(scores, truth)
    group, others = (c[0] for c in running_counts(ranking, np.ones((1, len(ranking.order)), np.int64)))
    thresholds = np.append(np.inf, np.asarray(scores, np.float64)[ranking.order[ranking.ends]])
    return ROC(np.append(0, others) / others[-1], np.append(0, group) / group[-1], thresholds)


def cluster_counts(
    random: np.random.Generator, clusters: int, replicates: int
) -> Int[np.ndarray, "replicates clusters"]:
    """How often each cluster is drawn, when as many as there are are drawn with replacement.

    >>> cluster_counts(np.random.default_rng(3), 4, 2).sum(axis=1)
    array([4, 4])
    """
    draws = random.integers(0, clusters, (replicates, clusters))
    draws += clusters * np.arange(replicates)[:, None]
    return np.bincount(draws.reshape(-1), minlength=replicates * clusters).reshape(replicates, clusters)

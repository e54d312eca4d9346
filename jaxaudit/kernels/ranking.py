"""Areas under ROC curves and rates on them, exact with ties, also for bootstrap replicates. Computed on the host.

Scores are sorted once: a bootstrap replicate is a running sum of counts in that order.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxaudit.errors import InputError, check_ranges, check_shapes

Counts = Int[np.ndarray, "replicates distinct"]


class Ranking(NamedTuple):
    """The order of scores from high to low; `ends` are the positions of the last occurrence of each distinct score;
    `truth`, in that order, whether a record is positive (of the group that should score high).
    """

    order: Int[np.ndarray, " n"]
    ends: Int[np.ndarray, " distinct"]
    truth: Bool[np.ndarray, " n"]


def rank(scores: Float[Array | np.ndarray, " n"], truth: Bool[Array | np.ndarray, " n"]) -> Ranking:
    """Sorts the scores, for use in the functions below.

    Raises:
        InputError: a score is NaN, or all records are positive, or all negative.
    """
    scores, truth = np.asarray(scores), np.asarray(truth)
    check_shapes(scores.shape, truth=truth)
    check_ranges("[-inf, inf]", scores=scores)
    if truth.all() or not truth.any():
        raise InputError(
            f"{int(truth.sum())} of {truth.size} records are members: an attack is judged on members and non-members; "
            "attack some of both."
        )
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    return Ranking(order, np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)), truth[order])


def running_counts(ranking: Ranking, counts: Int[np.ndarray, "replicates n"]) -> tuple[Counts, Counts]:
    """How many positive, and how many negative, records, counted `counts` times, have at least each distinct score."""
    ordered = counts[:, ranking.order]
    group = np.cumsum(ordered * ranking.truth, axis=1)[:, ranking.ends]
    return group, np.cumsum(ordered, axis=1)[:, ranking.ends] - group


def area(group: Counts, others_below: Counts) -> Float[np.ndarray, " replicates"]:
    """The area under the ROC curve from `running_counts`: P(positive > negative) + P(positive = negative) / 2.

    Mann & Whitney (1947). Counted in integers, so it is exact up to one rounding; NaN if either group is empty.
    """
    group_here = np.diff(group, axis=1, prepend=0)
    above = np.concatenate([np.zeros((len(others_below), 1), others_below.dtype), others_below[:, :-1]], axis=1)
    twice = (group_here * (2 * others_below[:, -1:] - others_below - above)).sum(axis=1)
    pairs = group[:, -1] * others_below[:, -1]
    return np.divide(twice, 2 * pairs, out=np.full(len(group), np.nan), where=pairs > 0)


def power(group: Counts, others_below: Counts, level: float) -> Float[np.ndarray, "2 replicates"]:
    """The largest true positive rate at a false positive rate of at most `level`, and the latter rate.

    Counts are those of `running_counts`. Nothing is interpolated: an attacker could attain it. NaN without a group.
    """
    # 1e-9 corrects rounding: 0.07 * 100 must count as 7, not as 7.000000000000001 or 6.999999999999999.
    allowed = np.floor(level * others_below[:, -1:] + 1e-9)
    kept = others_below <= allowed
    hits, alarms = np.where(kept, group, 0).max(axis=1), np.where(kept, others_below, 0).max(axis=1)
    rates = np.stack([hits, alarms]) / np.maximum(np.stack([group[:, -1], others_below[:, -1]]), 1)
    return np.where((group[:, -1] > 0) & (others_below[:, -1] > 0), rates, np.nan)


def auc(scores: Float[Array | np.ndarray, " n"], truth: Bool[Array | np.ndarray, " n"]) -> float:
    """The area under the ROC curve: the probability that a random positive record scores above a random negative one.

    Ties count half, so equal scores give 0.5. Infinite scores are allowed. Errors are those of `rank`.

    >>> auc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    ranking = rank(scores, truth)
    return float(area(*running_counts(ranking, np.ones((1, len(ranking.order)), np.int64)))[0])


def mid_ranks(values: Float[np.ndarray, "n *columns"]) -> Float[np.ndarray, "n *columns"]:
    """Ranks from 1 within each column, ties shared, as `scipy.stats.rankdata`, whose import takes half a second."""
    order = np.argsort(values, axis=0)
    ordered = np.take_along_axis(values, order, 0)
    places = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    differs = ordered[1:] != ordered[:-1]
    edge = np.ones((1, *values.shape[1:]), bool)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, differs]), places, 0))
    last = np.minimum.accumulate(np.where(np.concatenate([differs, edge]), places, len(values))[::-1])[::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, 0)
    return np.where(np.isnan(values).any(axis=0), np.nan, ranks)


def cluster_counts(
    random: np.random.Generator, clusters: int, replicates: int
) -> Int[np.ndarray, "replicates clusters"]:
    """How often each cluster occurs in bootstrap replicates: as many clusters are drawn, with replacement."""
    draws = random.integers(0, clusters, (replicates, clusters))
    draws += clusters * np.arange(replicates)[:, None]
    return np.bincount(draws.reshape(-1), minlength=replicates * clusters).reshape(replicates, clusters)

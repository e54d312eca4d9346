"""How well a membership attack performs, over all attacked records and on each one.

Long, Bindschaedler & Gunter (2017), section 5.4. Computed on the host, from scores.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.json_types import NumberOrNaN, StrictStruct
from jaxaudit.kernels.ranking import area, cluster_counts, rank, running_counts
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.metrics.over_models import Estimate

SOURCE = "Long, Bindschaedler & Gunter 2017; Efron 1979; Pearson 1895"
BOOTSTRAP_REPLICATES = 1000

_CHUNK_VALUES = 2**21  # counts in memory at a time, about 60 bytes each


class AttackMetrics(StrictStruct, frozen=True):
    """How well an attack distinguishes members from non-members; see `attack_metrics`."""

    accuracy: Estimate
    precision: Estimate
    recall: Estimate
    f1: Estimate
    auc: Estimate


class Correlation(StrictStruct, frozen=True):
    """Pearson's correlation `coefficient` of `count` pairs; NaN with a `reason` if it is not available.

    The p-value is two-sided, under the null hypothesis of uncorrelated normal variables.
    """

    coefficient: NumberOrNaN
    p_value: NumberOrNaN
    count: int
    reason: str | None


def attack_metrics(
    key: OneKey,
    scores: Float[Array | np.ndarray, " attacks"],
    truth: Bool[Array | np.ndarray, " attacks"],
    targets: Int[Array | np.ndarray, " attacks"] | None = None,
    *,
    level: float = 0.95,
    bootstrap: int = BOOTSTRAP_REPLICATES,
) -> AttackMetrics:
    """Accuracy, precision, recall, F1 and the area under the ROC curve (AUC), with intervals.

    The attack answers `in` if its score is above 0. With tp, fp, fn, tn the counts of the four outcomes: accuracy is
    (tp + tn) / all, precision tp / (tp + fp), recall tp / (tp + fn), F1 2 tp / (2 tp + fp + fn), and NaN for 0/0. The AUC
    is the probability that the score of a member is above that of a non-member, and half of that that both are equal.

    Intervals are percentile bootstrap intervals (Efron 1979). Attacks on one target are not independent, so whole
    targets are drawn with replacement. An interval leaves out replicates in which its number is 0/0; it is NaN if these
    are more than half, or if there is a single target.

    Args:
        key: random key of the bootstrap; 128 bits of it seed NumPy's SFC64 generator.
        scores, truth: of each attack; and whether its target was in the training set.
        targets: the index of each attack's record, from 0; None: every attack has a target of its own.

    >>> import jax
    >>> scores, truth = np.array([2.0, 1.0, -1.0, 0.5]), np.array([True, True, False, False])
    >>> answer = attack_metrics(jax.random.key(1), scores, truth)
    >>> answer.accuracy.value, round(answer.precision.value, 3), answer.auc.value
    (0.75, 0.667, 1.0)
    """
    check_ranges("[1, inf)", bootstrap=bootstrap)
    check_ranges("(0, 1)", level=level)
    ranking = rank(scores, truth)
    check_shapes(ranking.order.shape, targets=targets)
    check_ranges("[0, inf)", targets=targets)
    of_attacks = np.arange(len(ranking.order)) if targets is None else np.asarray(targets)
    distinct, cluster = np.unique(of_attacks, return_inverse=True)
    clusters, called, members = len(distinct), np.asarray(scores) > 0, np.asarray(truth)
    # tp, fp, fn and tn of every cluster.
    kinds = called & members, called & ~members, ~called & members, ~called & ~members
    outcomes = np.stack([np.bincount(cluster[kind], minlength=clusters) for kind in kinds], axis=1)

    def numbers(drawn: Int[np.ndarray, "replicates clusters"]) -> Float[np.ndarray, "replicates numbers"]:
        running = running_counts(ranking, drawn[:, cluster])
        return np.concatenate([_rates(drawn @ outcomes), area(*running)[:, None]], axis=1)

    values = numbers(np.ones((1, clusters), np.int64))[0]
    low, high = np.full((2, len(values)), np.nan)
    if clusters > 1:
        words = np.asarray(jax.random.bits(key, (4,), jnp.uint32))
        random = np.random.Generator(np.random.SFC64(np.random.SeedSequence(words.tolist())))
        size = max(1, _CHUNK_VALUES // len(cluster))
        parts = [min(size, bootstrap - start) for start in range(0, bootstrap, size)]
        draws = np.concatenate([numbers(cluster_counts(random, clusters, part)) for part in parts])
        low, high = _interval(draws, level)
    return AttackMetrics(*(Estimate(*map(float, estimate)) for estimate in zip(values, low, high, strict=True)))


def _rates(outcomes: Int[np.ndarray, "replicates 4"]) -> Float[np.ndarray, "replicates 4"]:
    """Accuracy, precision, recall and F1; NaN for 0/0."""
    tp, fp, fn, tn = outcomes.T
    above = np.stack([tp + tn, tp, tp, 2 * tp], axis=1)
    below = np.stack([tp + tn + fp + fn, tp + fp, tp + fn, 2 * tp + fp + fn], axis=1)
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)


def _interval(draws: np.ndarray, level: float) -> np.ndarray:
    is_finite = ~np.isnan(draws)
    enough = 2 * is_finite.sum(axis=0) >= len(draws)
    ends = np.full((2, draws.shape[1]), np.nan)
    for i in np.flatnonzero(enough):
        ends[:, i] = np.quantile(draws[is_finite[:, i], i], [(1 - level) / 2, (1 + level) / 2])
    return ends


def per_target_accuracy(
    scores: Float[Array | np.ndarray, " attacks"],
    truth: Bool[Array | np.ndarray, " attacks"],
    targets: Int[Array | np.ndarray, " attacks"],
    count: int,
) -> Float[np.ndarray, " count"]:
    """The share of right answers among the attacks on each target (section 5.4); NaN for a target without attacks.

    `targets` has each attack's target, from 0 to `count` - 1. An attack that always answers `in` (a score above 0)
    reaches 0.5 if each target was in half of the training sets.

    >>> truth = np.array([True, False, True])
    >>> per_target_accuracy(np.array([1.0, 1.0, 1.0]), truth, np.array([0, 0, 2]), 3)
    array([0.5, nan, 1. ])
    """
    scores, truth, targets = np.asarray(scores), np.asarray(truth), np.asarray(targets)
    check_shapes(scores.shape, truth=truth, targets=targets)
    check_ranges("[-inf, inf]", scores=scores)
    check_ranges(f"[0, {count})", targets=targets)
    right = np.bincount(targets[(scores > 0) == truth], minlength=count)
    attacks = np.bincount(targets, minlength=count)
    return np.divide(right, attacks, out=np.full(count, np.nan), where=attacks > 0)


def strongest_attack(
    accuracies: Float[Array | np.ndarray, "attacks targets"],
) -> tuple[Float[np.ndarray, " targets"], Int[np.ndarray, " targets"]]:
    """The largest per-target accuracy over attacks (figure 2), and the index of that attack (the first if tied).

    A target that was not attacked has NaN and -1. The largest of several accuracies is above chance even if no attack
    is: by about 0.03 for 200 attacks per target and 3 kinds of attack.

    >>> strongest_attack(np.array([[0.5, 0.9, np.nan], [0.7, 0.6, np.nan]]))
    (array([0.7, 0.9, nan]), array([ 1,  0, -1]))
    """
    values = np.asarray(accuracies, np.float64)
    comparable = np.where(np.isnan(values), -np.inf, values)
    check_ranges("[1, inf)", attacks=len(comparable))
    largest, which = comparable.max(axis=0), comparable.argmax(axis=0)
    none = np.isneginf(largest)
    return np.where(none, np.nan, largest), np.where(none, -1, which)


def correlation(
    first: Float[Array | np.ndarray, " targets"], second: Float[Array | np.ndarray, " targets"]
) -> Correlation:
    """Pearson's correlation of two numbers per target, such as accuracy and mean PDTP, and its p-value (SciPy's).

    Targets with a NaN (not attacked, or not measured) are left out. The correlation is NaN, with a reason, for fewer
    than 3 targets, if one side is constant (to 11 digits), or if a value is infinite (as exact PDTP).

    >>> correlation(np.array([0.5, 0.6, 0.9, 0.8]), np.array([0.1, 1.0, 3.0, 2.0])).coefficient
    0.991...
    >>> correlation(np.array([0.5, 0.5, 0.5]), np.array([0.1, 1.0, 3.0])).reason
    'one side is constant'
    """
    check_shapes(np.shape(first), second=second)
    pairs = np.stack([np.asarray(first, np.float64), np.asarray(second, np.float64)])
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    count, reason = pairs.shape[1], None
    if count < 3:
        reason = "fewer than 3 targets"
    elif np.isinf(pairs).any():
        reason = "a value is infinite"
    elif (np.ptp(pairs, axis=1) <= 1e-11 * np.abs(pairs).max(axis=1)).any():
        reason = "one side is constant"
    if reason is not None:
        return Correlation(np.nan, np.nan, count, reason)
    result: Any = scipy.stats.pearsonr(*pairs)
    return Correlation(float(result.statistic), float(result.pvalue), count, None)

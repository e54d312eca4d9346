"""How well a membership attack performs, over all attacked records and on each one.

Long, Bindschaedler & Gunter (2017), section 5.4. Computed on the host, from scores.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.errors import InputError
from jaxaudit.json_types import NumberOrNaN, StrictStruct
from jaxaudit.kernels.ranking import area, cluster_counts, power, rank, running_counts
from jaxaudit.metrics.over_models import Estimate

SOURCE = "Long, Bindschaedler & Gunter 2017; Efron 1979; Pearson 1895"
BOOTSTRAP_REPLICATES = 1000

FALSE_POSITIVE_RATES = (0.01, 0.001)

_CHUNK_VALUES = 2**21  # counts in memory at a time, about 60 bytes each


class TruePositiveRate(StrictStruct, frozen=True):
    """The true positive rate at a bounded false positive rate.

    Attributes:
        limit: the largest false positive rate that is allowed.
        rate: the largest true positive rate over all thresholds within the limit.
        false_positive_rate: the false positive rate of that threshold.
        resolvable: whether there are enough non-members (1 / limit) to allow one false positive; if not, the rate is
            the true positive rate without any false positive.
    """

    limit: float
    rate: Estimate
    false_positive_rate: NumberOrNaN
    resolvable: bool


class AttackMetrics(StrictStruct, frozen=True):
    """How well an attack distinguishes members from non-members, each number with its interval. Larger: more exposed.

    The formulas are those of `attack_metrics`. `auc` is the area under the ROC curve.
    """

    accuracy: Estimate
    precision: Estimate
    recall: Estimate
    f1: Estimate
    auc: Estimate
    true_positive_rates: tuple[TruePositiveRate, ...]


class Correlation(StrictStruct, frozen=True):
    """Pearson's correlation `coefficient` of `count` pairs; NaN with a `reason` if it is not available.

    The p-value is two-sided, under the null hypothesis of uncorrelated normal variables.
    """

    coefficient: NumberOrNaN
    p_value: NumberOrNaN
    count: int
    reason: str | None


def attack_metrics(
    key: Key[Array, ""],
    scores: Float[Array | np.ndarray, " attacks"],
    truth: Bool[Array | np.ndarray, " attacks"],
    targets: Int[Array | np.ndarray, " attacks"] | None = None,
    *,
    false_positive_rates: Sequence[float] = FALSE_POSITIVE_RATES,
    level: float = 0.95,
    bootstrap: int = BOOTSTRAP_REPLICATES,
) -> AttackMetrics:
    """Accuracy, precision, recall, F1, AUC and true positive rates at low false positive rates, with intervals.

    The attack answers `in` if its score is above 0. With tp, fp, fn, tn the counts of the four outcomes:

    | metric | formula | value if 0/0 |
    |---|---|---|
    | accuracy | (tp + tn) / all | - |
    | precision | tp / (tp + fp) | NaN: no answer was `in` |
    | recall | tp / (tp + fn) | - |
    | F1 | 2 tp / (2 tp + fp + fn) | - |
    | AUC | P(score of a member > that of a non-member) + P(equal) / 2 | - |

    A true positive rate is the largest over thresholds with a false positive rate of at most the limit. Tied scores get
    the same answer, and nothing is interpolated.

    Intervals are percentile bootstrap intervals (Efron 1979). Several attacks on one target are not independent, so
    whole targets are drawn with replacement. Replicates in which a number is 0/0 are left out of its interval, which is
    NaN if more than half are, or with a single target. An interval of a rate at a very low false positive rate depends
    on a handful of non-members and is rough.

    Args:
        key: random key of the bootstrap; 128 bits of it seed NumPy's SFC64 generator.
        scores, truth: of each attack; and whether its target was in the training set.
        targets: the index of the attacked record of each attack, from 0; None: every attack is on a target of its own.
        false_positive_rates: limits, each in [0, 1].
        level, bootstrap: confidence level of the intervals, and number of replicates.

    Raises:
        InputError: lengths differ, a score is NaN, all attacks are on members or all on non-members, a target is
            negative, a limit or the level is out of range, or `bootstrap` is below 1.

    >>> import jax
    >>> scores, truth = np.array([2.0, 1.0, -1.0, 0.5]), np.array([True, True, False, False])
    >>> answer = attack_metrics(jax.random.key(1), scores, truth)
    >>> answer.accuracy.value, round(answer.precision.value, 3), answer.auc.value
    (0.75, 0.667, 1.0)
    """
    if bootstrap < 1 or not 0 < level < 1 or not all(0 <= limit <= 1 for limit in false_positive_rates):
        raise InputError(
            f"intervals need at least 1 bootstrap replicate, and a level and limits between 0 and 1; got {bootstrap}, "
            f"{level} and {tuple(false_positive_rates)}."
        )
    ranking = rank(scores, truth)
    if targets is not None:
        _check_targets(targets, len(ranking.order))
    of_attacks = np.arange(len(ranking.order)) if targets is None else np.asarray(targets)
    distinct, cluster = np.unique(of_attacks, return_inverse=True)
    clusters, called, members = len(distinct), np.asarray(scores) > 0, np.asarray(truth)
    # tp, fp, fn and tn of every cluster.
    kinds = called & members, called & ~members, ~called & members, ~called & ~members
    outcomes = np.stack([np.bincount(cluster[kind], minlength=clusters) for kind in kinds], axis=1)

    def numbers(drawn: Int[np.ndarray, "replicates clusters"]) -> Float[np.ndarray, "replicates numbers"]:
        running = running_counts(ranking, drawn[:, cluster])
        powers = [power(*running, limit).T for limit in false_positive_rates]
        return np.concatenate([_rates(drawn @ outcomes), area(*running)[:, None], *powers], axis=1)

    values = numbers(np.ones((1, clusters), np.int64))[0]
    low, high = np.full((2, len(values)), np.nan)
    if clusters > 1:
        words = np.asarray(jax.random.bits(key, (4,), jnp.uint32))
        random = np.random.Generator(np.random.SFC64(np.random.SeedSequence(words.tolist())))
        size = max(1, _CHUNK_VALUES // len(cluster))
        parts = [min(size, bootstrap - start) for start in range(0, bootstrap, size)]
        draws = np.concatenate([numbers(cluster_counts(random, clusters, part)) for part in parts])
        low, high = _interval(draws, level)
    accuracy, precision, recall, f1, area_under, *powers = (
        Estimate(*map(float, estimate)) for estimate in zip(values, low, high, strict=True)
    )
    non_members = int((~ranking.truth).sum())
    rates = tuple(
        TruePositiveRate(limit, rate, attained.value, limit * non_members >= 1 - 1e-9)
        for limit, rate, attained in zip(false_positive_rates, powers[::2], powers[1::2], strict=True)
    )
    return AttackMetrics(accuracy, precision, recall, f1, area_under, rates)


def _check_targets(targets: Array | np.ndarray, attacks: int) -> None:
    if len(targets) != attacks or (attacks and int(targets.min()) < 0):
        raise InputError(
            f"{len(targets)} targets were given for {attacks} attacks: give the index of the attacked record, from 0, "
            "for each attack."
        )


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

    An attack that always answers `in` (a score above 0) reaches 0.5 if each target was in half of the training sets.
    `targets` says which target, from 0 to `count` - 1, each attack was on.

    Raises:
        InputError: lengths differ, a score is NaN, or a target is out of range.

    >>> truth = np.array([True, False, True])
    >>> per_target_accuracy(np.array([1.0, 1.0, 1.0]), truth, np.array([0, 0, 2]), 3)
    array([0.5, nan, 1. ])
    """
    scores, truth, targets = np.asarray(scores), np.asarray(truth), np.asarray(targets)
    _check_targets(targets, len(scores))
    if scores.shape != truth.shape or np.isnan(scores).any() or (len(targets) and targets.max() >= count):
        raise InputError(
            f"per-target accuracy needs a score that is not NaN, a truth and a target below {count} for every attack; "
            f"got {scores.size} scores ({int(np.isnan(scores).sum())} NaN), {truth.size} truths and targets up to "
            f"{targets.max(initial=0)}."
        )
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
    if not len(comparable):
        raise InputError("there is no attack to choose from: give one row of accuracies per attack.")
    largest, which = comparable.max(axis=0), comparable.argmax(axis=0)
    none = np.isneginf(largest)
    return np.where(none, np.nan, largest), np.where(none, -1, which)


def correlation(
    first: Float[Array | np.ndarray, " targets"], second: Float[Array | np.ndarray, " targets"]
) -> Correlation:
    """Pearson's correlation of two numbers per target, such as accuracy and mean PDTP, and its p-value (SciPy's).

    Targets for which either is NaN (not attacked, or not measured) are left out. The correlation is not available, with
    a reason, for fewer than 3 targets, if one side is constant (to 11 digits), or if a value is infinite (as exact
    PDTP).

    Raises:
        InputError: lengths differ.

    >>> correlation(np.array([0.5, 0.6, 0.9, 0.8]), np.array([0.1, 1.0, 3.0, 2.0])).coefficient
    0.991...
    >>> correlation(np.array([0.5, 0.5, 0.5]), np.array([0.1, 1.0, 3.0])).reason
    'one side is constant'
    """
    if len(first) != len(second):
        raise InputError(
            f"a correlation needs pairs; got {len(first)} and {len(second)} values: give one of each per target."
        )
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

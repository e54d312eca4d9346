"""How well a membership attack performs, over all attacked records and on each one, and how exposed each record is.

Long, Bindschaedler & Gunter (2017), section 5.4. Computed on the host, from scores.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Bool, Float, Int
from scipy import special

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.json_types import NumberOrNaN, StrictStruct
from jaxaudit.kernels.ranking import area, cluster_counts, mid_ranks, rank, running_counts
from jaxaudit.metrics.arrays import Integers, Members, Numbers, OneKey, Scores
from jaxaudit.metrics.over_models import Estimate, exact_shares
from jaxaudit.metrics.scores import Profile, profile, profiles_of_others

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
    """Pearson's correlation; NaN where there is none.

    The p-value is two-sided, under the null hypothesis of uncorrelated normal variables.
    """

    coefficient: NumberOrNaN
    p_value: NumberOrNaN


def attack_metrics(
    key: OneKey,
    scores: Float[np.ndarray, "models targets"],
    truth: Bool[np.ndarray, "models targets"],
    *,
    level: float = 0.95,
    bootstrap: int = BOOTSTRAP_REPLICATES,
) -> AttackMetrics:
    """Accuracy, precision, recall, F1 and the area under the ROC curve (AUC), with intervals.

    The attack answers `in` if its score is above 0. With tp, fp, fn, tn the counts of the four outcomes: accuracy is
    (tp + tn) / all, precision tp / (tp + fp), recall tp / (tp + fn), F1 2 tp / (2 tp + fp + fn), and NaN for 0/0. The
    AUC is the probability that the score of a member is above that of a non-member, and half of that of equal ones.

    Intervals are percentile bootstrap intervals (Efron 1979). Attacks on one target are not independent, so whole
    targets are drawn with replacement. An interval leaves out replicates in which its number is 0/0; it is NaN if these
    are more than half, or if there is a single target.

    Args:
        key: random key of the bootstrap; 128 bits of it seed NumPy's SFC64 generator.
        scores, truth: of each attack on a target; and whether the target was in the model's training set.

    >>> import jax
    >>> scores, truth = np.array([[2.0, 1.0, -1.0, 0.5]]), np.array([[True, True, False, False]])
    >>> answer = attack_metrics(jax.random.key(1), scores, truth)
    >>> answer.accuracy.value, round(answer.precision.value, 3), answer.auc.value
    (0.75, 0.667, 1.0)
    """
    check_ranges("[1, inf)", bootstrap=bootstrap)
    check_ranges("(0, 1)", level=level)
    check_shapes(scores.shape, truth=truth)
    models, clusters = scores.shape
    ranking, called = rank(scores.ravel(), truth.ravel()), scores > 0
    # tp, fp, fn and tn of every target.
    kinds = called & truth, called & ~truth, ~called & truth, ~called & ~truth
    outcomes = np.stack([kind.sum(axis=0) for kind in kinds], axis=1)

    def numbers(drawn: Int[np.ndarray, "replicates targets"]) -> Float[np.ndarray, "replicates numbers"]:
        running = running_counts(ranking, np.tile(drawn, models))
        return np.concatenate([_rates(drawn @ outcomes), area(*running)[:, None]], axis=1)

    values = numbers(np.ones((1, clusters), np.int64))[0]
    low, high = np.full((2, len(values)), np.nan)
    if clusters > 1:
        words = np.asarray(jax.random.bits(key, (4,), jnp.uint32))
        random = np.random.Generator(np.random.SFC64(np.random.SeedSequence(words.tolist())))
        size = max(1, _CHUNK_VALUES // scores.size)
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


def correlation(first: Float[np.ndarray, " targets"], second: Float[np.ndarray, " targets"]) -> Correlation:
    """Pearson's correlation of two numbers per target, such as accuracy and mean PDTP, and its p-value (SciPy's).

    NaN for fewer than 3 targets, if a value is not finite, or if one side is constant (to 11 digits).

    >>> correlation(np.array([0.5, 0.6, 0.9, 0.8]), np.array([0.1, 1.0, 3.0, 2.0])).coefficient
    0.991...
    """
    check_shapes(first.shape, second=second)
    pairs = np.stack([first, second])
    if pairs.shape[1] < 3 or not np.isfinite(pairs).all():
        return Correlation(np.nan, np.nan)
    if (np.ptp(pairs, axis=1) <= 1e-11 * np.abs(pairs).max(axis=1)).any():
        return Correlation(np.nan, np.nan)
    result: Any = scipy.stats.pearsonr(*pairs)
    return Correlation(float(result.statistic), float(result.pvalue))


STRANGE = 1e-3
"""The level at which `likeness` rejects that a target is like its shadow models."""


class Vulnerability(NamedTuple):
    """The exposure of each record, over shadow models; intervals hold for a record chosen in advance.

    `separation` is the probability that log-odds of a model with the record are higher than those of one without it,
    and `named` and `wrongly` are the shares of either kind that an attack calls members.
    """

    inside: Integers
    outside: Integers
    separation: Numbers
    named: Numbers
    named_low: Numbers
    named_high: Numbers
    wrongly: Numbers


class Likeness(NamedTuple):
    """Whether a target's outputs are like those of shadow models, by a two-sided p-value of one more shadow model.

    `strangeness` is the mean squared distance, in variances, from models with or without the record, the nearer ones.
    """

    strangeness: float
    p_value: float
    usual: float

    @property
    def is_like(self) -> bool:
        """Whether the target does not differ significantly from the shadow models, at level `STRANGE`."""
        return self.p_value >= STRANGE


def vulnerability(
    log_odds: Scores,
    membership: Members,
    called: Members,
    judged: Members,
    *,
    level: float = 0.95,
) -> Vulnerability:
    """The exposure of each record, from log-odds (nats), what an attack calls members, and what it scores."""
    inside, outside = membership.sum(axis=0), (~membership).sum(axis=0)
    times, times_outside = (membership & judged).sum(axis=0), (~membership & judged).sum(axis=0)
    hits, alarms = (called & membership & judged).sum(axis=0), (called & ~membership & judged).sum(axis=0)
    ends = exact_shares(hits, times, level)
    named_share, wrongly = (
        hits / np.where(times > 0, times, np.nan),
        alarms / np.where(times_outside > 0, times_outside, np.nan),
    )
    low, high = (np.where(np.isfinite(named_share), end, np.nan) for end in ends)
    # The Mann-Whitney statistic as a probability.
    ranks = np.where(membership, mid_ranks(log_odds), 0.0).sum(axis=0)
    wins = (ranks - inside * (inside + 1) / 2) / np.maximum(inside * outside, 1)
    separation = np.where((inside > 0) & (outside > 0), wins, np.nan)
    return Vulnerability(inside, outside, separation, named_share, low, high, wrongly)


def same_outputs(log_odds: Scores, labels: Integers) -> Integers:
    """Numbers groups of records of one class that have the same output in every model; -1 for a record without such.

    >>> same_outputs(np.array([[1.0, 2.0, 1.0], [3.0, 4.0, 3.0]]), np.array([0, 0, 0]))
    array([ 0, -1,  0])
    """
    rows = np.ascontiguousarray(np.concatenate([log_odds.T, labels[:, None].astype(np.float64)], axis=1))
    _, group, counts = np.unique(
        rows.view(f"V{rows.itemsize * rows.shape[1]}")[:, 0], return_inverse=True, return_counts=True
    )
    several = counts[group] > 1
    groups_of_copies = np.full(len(labels), -1)
    groups_of_copies[several] = np.unique(group[several], return_inverse=True)[1]
    return groups_of_copies


def likeness(target: Numbers, log_odds: Scores, membership: Members) -> Likeness:
    """Tests whether a target's outputs are like those of shadow models, for any membership of its records.

    The p-value is the largest of those over all records, a shadow model's members, and its non-members.
    """
    check_ranges("[4, inf)", "train more, preferably 32", finished_models=len(log_odds))
    profiles = profiles_of_others(log_odds, membership)
    model_squares = np.stack([_squares(outputs, rest) for outputs, rest in zip(log_odds, profiles, strict=True)])
    target_strangeness = np.log(_squares(target, profile(log_odds, membership)).mean())
    p_value = 0.0
    for side in (np.ones_like(membership), membership, ~membership):
        kept = side.any(axis=1)
        if kept.sum() < 4:
            continue
        shadow_strangeness = np.log((model_squares * side)[kept].sum(axis=1) / side[kept].sum(axis=1))
        error = shadow_strangeness.std(ddof=1) * np.sqrt(1 + 1 / len(shadow_strangeness))
        distance = (
            abs(target_strangeness - shadow_strangeness.mean()) / error
            if error > 0
            else (0.0 if target_strangeness == shadow_strangeness.mean() else np.inf)
        )
        p_value = max(p_value, float(2 * special.stdtr(len(shadow_strangeness) - 1, -distance)))
    return Likeness(
        float(np.exp(target_strangeness)), p_value, float(np.exp(np.log(model_squares.mean(axis=1)).mean()))
    )


def _squares(outputs: np.ndarray, shadow_profile: Profile) -> np.ndarray:
    """The squared distance of each record's output from the nearer of in and out models, divided by their variance."""
    inside = (outputs - shadow_profile.inside) ** 2 / shadow_profile.inside_variance
    outside = (outputs - shadow_profile.outside) ** 2 / shadow_profile.outside_variance
    return np.minimum(inside, outside) + 1e-12

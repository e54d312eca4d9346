"""How well a membership attack performs: over all attacked records, at stated false positive rates, and on each record.

An attacker does not know a model's own non-members. So its threshold is a quantile of other models' non-members, and
the *realised* false positive rate may differ from the stated one. Both are reported (Jebreel et al. 2026). Accuracies
are those of Long, Bindschaedler & Gunter (2017), section 5.4. All is computed on the host, from scores.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Bool, Float, Int
from scipy import special

from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.json_types import NumberOrNaN, StrictStruct
from jaxaudit.kernels.ranking import area, auc, cluster_counts, mid_ranks, power, rank, running_counts
from jaxaudit.metrics.arrays import Integers, Members, Numbers, OneKey, Scores
from jaxaudit.metrics.over_models import LEAST_EXPECTED, NONE, Estimate, clopper_pearson, exact_shares, mean_of_models
from jaxaudit.metrics.scores import Profile, profile, profiles_of_others
from jaxaudit.metrics.usage import LEVEL

RATES_SOURCE = "DeLong, DeLong & Clarke-Pearson 1988; Clopper & Pearson 1934"
FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001, 0.0001)
BY_CHANCE, MARGIN = 0.001, 1.1
"""Thresholds are rejected if the false positive rate is above `MARGIN` times the stated one, significantly at level
`BY_CHANCE`."""
ROC_POINTS = 61
ScoredModels = tuple[Float[np.ndarray, "others n"], Bool[np.ndarray, "others n"]]
"""Scores of each record under some models (NaN if the attack gives none), and the membership masks of the models."""


class RateAt(StrictStruct, frozen=True):
    """The true positive rate of an attack at the stated false positive rate `fpr`; NaN unless `resolvable` and `holds`.

    Attributes:
        value, low, high: share of members that are called members, and its interval.
        realised: the share of non-members that are called members; NaN unless `resolvable`.
        on_curve: the point of the ROC curve that papers print, of one threshold chosen with the true membership.
        spread: standard deviation of the true positive rate over models; NaN for one model.
        resolvable: whether at least `LEAST_EXPECTED` false positives are expected.
        holds: whether the realised false positive rate is at most the stated one, up to chance and `MARGIN`.
    """

    fpr: float
    value: NumberOrNaN
    low: NumberOrNaN
    high: NumberOrNaN
    realised: Estimate
    on_curve: NumberOrNaN
    spread: NumberOrNaN
    resolvable: bool
    holds: bool


class Curve(StrictStruct, frozen=True):
    """The ROC curve of all models together: at most `ROC_POINTS` points, with Clopper-Pearson intervals of the TPR."""

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class AttackRates(StrictStruct, frozen=True):
    """How well an attack separates members from non-members of the models that it attacks.

    Attributes:
        auc: mean area under the ROC curve over models, with Student's t; DeLong et al. (1988) for a single model.
        unjudged: share of pairs of a record and a model without a score.
        tied: share of a model's scored records that have its commonest score; mean over models.
    """

    auc: Estimate
    tpr_at_fpr: tuple[RateAt, ...]
    roc: Curve
    members: int
    non_members: int
    unjudged: float
    tied: float
    auc_of_models: tuple[NumberOrNaN, ...]


def attack_rates(
    scores: Scores,
    truth: Members,
    *,
    false_positive_rates: Sequence[float] = FALSE_POSITIVE_RATES,
    thresholds_of: Sequence[ScoredModels] | None = None,
) -> AttackRates:
    """The error rates of an attack over models of known membership (`truth`); a score is larger for a member, or NaN.

    By default all other models set a model's thresholds (`thresholds_of`).
    """
    check_shapes(scores.shape, truth=truth)
    check_ranges("(0, 1)", false_positive_rates=false_positive_rates)
    judged = ~np.isnan(scores)
    split = [(split_scores[seen], row[seen]) for split_scores, row, seen in zip(scores, truth, judged, strict=True)]
    is_mixed = [0 < row.sum() < len(row) for _, row in split]
    areas = np.array([auc(*answers) if mixed else np.nan for answers, mixed in zip(split, is_mixed, strict=True)])
    if not any(is_mixed):
        raise InputError("no model has a record that it was trained on and one that it was not, both judged.")
    if thresholds_of is None:
        check_ranges("[2, inf)", models=len(scores))
    own_scores, own_truth = (np.concatenate(all_of) for all_of in zip(*split, strict=True))
    non_members, members = int((~own_truth).sum()), int(own_truth.sum())
    running = running_counts(rank(own_scores, own_truth), np.ones((1, len(own_scores)), np.int64))
    own_members = (truth & judged).sum(axis=1)
    rates = []
    called = called_at(scores, truth, false_positive_rates, thresholds_of)
    for limit, of_rate in zip(false_positive_rates, called, strict=True):
        enough = limit * non_members >= LEAST_EXPECTED - 1e-9
        hits, alarms = (of_rate & truth & judged).sum(axis=1), int((of_rate & ~truth & judged).sum())
        shares = hits[own_members > 0] / own_members[own_members > 0]
        holds = clopper_pearson(alarms, non_members, 1 - 2 * BY_CHANCE).low <= MARGIN * limit
        is_resolved = enough and holds
        right = clopper_pearson(int(hits.sum()), members, LEVEL) if is_resolved else NONE
        rates.append(
            RateAt(
                limit,
                right.value,
                right.low,
                right.high,
                realised=clopper_pearson(alarms, non_members, LEVEL) if enough else NONE,
                on_curve=float(power(*running, limit)[0, 0]) if enough else np.nan,
                spread=float(shares.std(ddof=1)) if is_resolved and len(shares) > 1 else np.nan,
                resolvable=enough,
                holds=bool(holds),
            )
        )
    return AttackRates(
        auc=mean_of_models(areas) if sum(is_mixed) > 1 else _delong(*split[is_mixed.index(True)]),
        tpr_at_fpr=tuple(rates),
        roc=_curve(running[0][0], running[1][0], non_members),
        members=members,
        non_members=non_members,
        unjudged=float(1 - judged.mean()),
        tied=float(
            np.mean(
                [
                    np.unique(split_scores, return_counts=True)[1].max() / len(split_scores)
                    for split_scores, _ in split
                    if len(split_scores)
                ]
            )
        ),
        auc_of_models=tuple(areas.tolist()),
    )


def called_at(
    scores: Scores,
    truth: Members,
    false_positive_rates: Sequence[float],
    thresholds_of: Sequence[ScoredModels] | None = None,
) -> Bool[np.ndarray, "rates models n"]:
    """Which records the attack calls members of each model, at each stated rate; the arguments are `attack_rates`'.

    A member's score is above the (a + 1)-th highest of other models' non-members, of which the rate allows a.
    """
    called_members = np.zeros((len(false_positive_rates), *scores.shape), bool)
    for rows, threshold_source in _by_thresholds(len(scores), thresholds_of):
        of_scores, of_truth = threshold_source or (scores, truth)
        outside = np.where(of_truth | np.isnan(of_scores), -np.inf, of_scores)
        flat = outside.ravel()
        order = np.argsort(-flat, kind="stable")[: int((flat > -np.inf).sum())]
        falling, model_of = flat[order], order // outside.shape[1]
        for model in rows:
            # The ranks of the model's own non-members, if it is among those that set the thresholds.
            own_places = np.flatnonzero(model_of == model) if threshold_source is None else np.zeros(0, int)
            total = len(falling) - len(own_places)
            for called, limit in zip(called_members, false_positive_rates, strict=True):
                allowed = int(np.floor(limit * total + 1e-9))
                if allowed >= total:
                    continue
                # The rank, among all non-members, of the (allowed + 1)-th that is not the model's own.
                rank_of_all = allowed + int(
                    np.searchsorted(own_places - np.arange(len(own_places)), allowed, side="right")
                )
                with np.errstate(invalid="ignore"):
                    called[model] = scores[model] > falling[rank_of_all]
    return called_members


def _by_thresholds(
    models: int, thresholds_of: Sequence[ScoredModels] | None
) -> list[tuple[Int[np.ndarray, " rows"], ScoredModels | None]]:
    """Groups of models with the same threshold-setting models: their indices, and those models (None: each other)."""
    if thresholds_of is None:
        return [(np.arange(models), None)]
    of_scores = {id(scores): (scores, truth) for scores, truth in thresholds_of}
    setters = np.array([id(scores) for scores, _ in thresholds_of])
    return [(np.flatnonzero(setters == identity), threshold_source) for identity, threshold_source in of_scores.items()]


def _delong(scores: np.ndarray, truth: np.ndarray) -> Estimate:
    """The area under the ROC curve of one model, with the interval of DeLong, DeLong & Clarke-Pearson (1988)."""
    members, non_member_scores = scores[truth], scores[~truth]
    of_members = (mid_ranks(scores)[truth] - mid_ranks(members)) / len(non_member_scores)
    of_others = 1 - (mid_ranks(scores)[~truth] - mid_ranks(non_member_scores)) / len(members)
    area = float(of_members.mean())
    if min(len(members), len(non_member_scores)) < 2:
        return Estimate(area, np.nan, np.nan)
    error = np.sqrt(of_members.var(ddof=1) / len(members) + of_others.var(ddof=1) / len(non_member_scores))
    reach = special.ndtri((1 + LEVEL) / 2) * error
    return Estimate(area, max(0.0, float(area - reach)), min(1.0, float(area + reach)))


def _curve(group: np.ndarray, alarm_counts: np.ndarray, count: int) -> Curve:
    """At most `ROC_POINTS` points of the ROC curve, evenly spaced in log FPR, and the interval of each TPR."""
    at = np.geomspace(1e-5, 1, ROC_POINTS)
    kept = np.unique(np.searchsorted(alarm_counts, np.floor(at * count + 1e-9), side="right") - 1)
    kept = kept[kept >= 0]
    members = int(group[-1])
    hits, alarms = np.append(0, group[kept]), np.append(0, alarm_counts[kept])
    low, high = exact_shares(hits, members, LEVEL)
    return Curve(*(tuple(column.tolist()) for column in (alarms / count, hits / members, low, high)))


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
        low, high = _interval(draws)
    return AttackMetrics(*(Estimate(*map(float, estimate)) for estimate in zip(values, low, high, strict=True)))


def _rates(outcomes: Int[np.ndarray, "replicates 4"]) -> Float[np.ndarray, "replicates 4"]:
    """Accuracy, precision, recall and F1; NaN for 0/0."""
    tp, fp, fn, tn = outcomes.T
    above = np.stack([tp + tn, tp, tp, 2 * tp], axis=1)
    below = np.stack([tp + tn + fp + fn, tp + fp, tp + fn, 2 * tp + fp + fn], axis=1)
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)


def _interval(draws: np.ndarray) -> np.ndarray:
    is_finite = ~np.isnan(draws)
    enough = 2 * is_finite.sum(axis=0) >= len(draws)
    ends = np.full((2, draws.shape[1]), np.nan)
    for i in np.flatnonzero(enough):
        ends[:, i] = np.quantile(draws[is_finite[:, i], i], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
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
) -> Vulnerability:
    """The exposure of each record, from log-odds (nats), what an attack calls members, and what it scores."""
    inside, outside = membership.sum(axis=0), (~membership).sum(axis=0)
    times, times_outside = (membership & judged).sum(axis=0), (~membership & judged).sum(axis=0)
    hits, alarms = (called & membership & judged).sum(axis=0), (called & ~membership & judged).sum(axis=0)
    ends = exact_shares(hits, times, LEVEL)
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

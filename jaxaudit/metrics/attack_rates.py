"""True positive rates of an attack at stated false positive rates, with thresholds that come from other models.

An attacker does not know a model's own non-members. So its threshold is a quantile of other models' non-members, and
the *realised* false positive rate may differ from the stated one. Both are reported (Jebreel et al. 2026).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.json_types import NumberOrNaN, StrictStruct
from jaxaudit.kernels.ranking import auc, mid_ranks, power, rank, running_counts
from jaxaudit.metrics.arrays import Members, Scores
from jaxaudit.metrics.over_models import LEAST_EXPECTED, NONE, Estimate, clopper_pearson, exact_shares, mean_of_models

SOURCE = "DeLong, DeLong & Clarke-Pearson 1988; Clopper & Pearson 1934"
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
        on_curve: the point of the ROC curve that papers print, of one threshold chosen with the true membership.
        spread: standard deviation of the true positive rate over models; NaN for one model.
        resolvable: whether at least `LEAST_EXPECTED` false positives are expected.
        holds: whether the realised false positive rate is at most the stated one, up to chance and `MARGIN`.
    """

    fpr: float
    value: NumberOrNaN
    low: NumberOrNaN
    high: NumberOrNaN
    on_curve: NumberOrNaN
    spread: NumberOrNaN
    resolvable: bool
    holds: bool


class Realised(StrictStruct, frozen=True):
    """The share of non-members that are called members (`value`) at the stated rate `fpr`; NaN if few are expected."""

    fpr: float
    value: NumberOrNaN
    low: NumberOrNaN
    high: NumberOrNaN


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
    realised_fpr: tuple[Realised, ...]
    roc: Curve
    members: int
    non_members: int
    unjudged: float
    tied: float
    auc_of_models: tuple[NumberOrNaN, ...]

    @property
    def rates(self) -> tuple[tuple[RateAt, Realised], ...]:
        """Pairs of the true positive rate and the realised false positive rate, one for each stated rate."""
        return tuple(zip(self.tpr_at_fpr, self.realised_fpr, strict=True))


def attack_rates(
    scores: Scores,
    truth: Members,
    *,
    false_positive_rates: Sequence[float] = FALSE_POSITIVE_RATES,
    level: float = 0.95,
    thresholds_of: Sequence[ScoredModels] | None = None,
) -> AttackRates:
    """The error rates of an attack over models of known membership (`truth`); a score is larger for a member, or NaN.

    By default all other models set a model's thresholds (`thresholds_of`).
    """
    check_shapes(scores.shape, truth=truth)
    check_ranges("(0, 1)", false_positive_rates=false_positive_rates, level=level)
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
    rates, realised = [], []
    called = called_at(scores, truth, false_positive_rates, thresholds_of)
    for limit, of_rate in zip(false_positive_rates, called, strict=True):
        enough = limit * non_members >= LEAST_EXPECTED - 1e-9
        hits, alarms = (of_rate & truth & judged).sum(axis=1), int((of_rate & ~truth & judged).sum())
        shares = hits[own_members > 0] / own_members[own_members > 0]
        holds = clopper_pearson(alarms, non_members, 1 - 2 * BY_CHANCE).low <= MARGIN * limit
        is_resolved = enough and holds
        right = clopper_pearson(int(hits.sum()), members, level) if is_resolved else NONE
        wrong = clopper_pearson(alarms, non_members, level) if enough else NONE
        rates.append(
            RateAt(
                limit,
                right.value,
                right.low,
                right.high,
                on_curve=float(power(*running, limit)[0, 0]) if enough else np.nan,
                spread=float(shares.std(ddof=1)) if is_resolved and len(shares) > 1 else np.nan,
                resolvable=enough,
                holds=bool(holds),
            )
        )
        realised.append(Realised(limit, wrong.value, wrong.low, wrong.high))
    return AttackRates(
        auc=mean_of_models(areas, level) if sum(is_mixed) > 1 else _delong(*split[is_mixed.index(True)], level),
        tpr_at_fpr=tuple(rates),
        realised_fpr=tuple(realised),
        roc=_curve(running[0][0], running[1][0], non_members, level),
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


def _delong(scores: np.ndarray, truth: np.ndarray, level: float) -> Estimate:
    """The area under the ROC curve of one model, with the interval of DeLong, DeLong & Clarke-Pearson (1988)."""
    members, non_member_scores = scores[truth], scores[~truth]
    of_members = (mid_ranks(scores)[truth] - mid_ranks(members)) / len(non_member_scores)
    of_others = 1 - (mid_ranks(scores)[~truth] - mid_ranks(non_member_scores)) / len(members)
    area = float(of_members.mean())
    if min(len(members), len(non_member_scores)) < 2:
        return Estimate(area, np.nan, np.nan)
    error = np.sqrt(of_members.var(ddof=1) / len(members) + of_others.var(ddof=1) / len(non_member_scores))
    reach = special.ndtri((1 + level) / 2) * error
    return Estimate(area, max(0.0, float(area - reach)), min(1.0, float(area + reach)))


def _curve(group: np.ndarray, alarm_counts: np.ndarray, count: int, level: float) -> Curve:
    """At most `ROC_POINTS` points of the ROC curve, evenly spaced in log FPR, and the interval of each TPR."""
    at = np.geomspace(1e-5, 1, ROC_POINTS)
    kept = np.unique(np.searchsorted(alarm_counts, np.floor(at * count + 1e-9), side="right") - 1)
    kept = kept[kept >= 0]
    members = int(group[-1])
    hits, alarms = np.append(0, group[kept]), np.append(0, alarm_counts[kept])
    low, high = exact_shares(hits, members, level)
    return Curve(*(tuple(column.tolist()) for column in (alarms / count, hits / members, low, high)))

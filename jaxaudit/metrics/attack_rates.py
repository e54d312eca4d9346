"""How often an attack is right at a stated false positive rate, when its thresholds come from other models.

Scores of every record under every model in, with the truth; rates out. A threshold for a model is read from the scores
of all other models' non-members, as an attacker reads it who never sees the model's own. So the *realised* false
positive rate of the model may differ from the stated one, and is told beside it (Jebreel et al. 2026).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special
from scipy.stats import rankdata

from jaxaudit.errors import InputError
from jaxaudit.json_types import NumberOrNaN, StrictStruct
from jaxaudit.kernels.ranking import auc, power, rank, running_counts
from jaxaudit.metrics.balanced_accuracy import balanced_accuracy
from jaxaudit.metrics.over_models import NONE, Estimate, mean_of_models

SOURCE = "DeLong, DeLong & Clarke-Pearson 1988; Clopper & Pearson 1934"
FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001, 0.0001)
LEAST_EXPECTED = 10.0
"""False positives that must be expected at a stated rate for the rate to be shown."""
BY_CHANCE, MARGIN = 0.001, 1.1
"""Thresholds hold unless more than `MARGIN` times as many non-members are called as stated, and chance explains no
such share more often than this."""
MEMBER_SHARES = (0.01, 0.1, 0.5)
"""Of all records, for which the share of right calls is given."""
ROC_POINTS = 61
ScoredModels = tuple[Float[np.ndarray, "others n"], Bool[np.ndarray, "others n"]]
"""The scores of each record under some models, NaN where an attack says nothing, and which they were trained on."""


class RateAt(StrictStruct, frozen=True):
    """What an attack reaches at a stated false positive rate.

    Attributes:
        fpr: the stated rate, that thresholds were set for on other models.
        value, low, high: share of members that are called members, and its interval; NaN unless the thresholds hold,
            for then it is the rate at another false positive rate.
        on_curve: the largest true positive rate of one threshold for all models, chosen with the truth, whose false
            positive rate is at most the stated one: what papers print.
        spread: standard deviation of the true positive rate over models; NaN of one, and unless the thresholds hold.
        predictive_value: the share of calls that are right, by the share of members among all records
            (`MEMBER_SHARES`).
        resolvable: whether at least `LEAST_EXPECTED` false positives are expected; if not, all numbers are NaN.
        holds: whether the thresholds call no more non-members than stated, but for chance. They call more where many
            scores of a model are equal and lie just above the threshold.
    """

    fpr: float
    value: NumberOrNaN
    low: NumberOrNaN
    high: NumberOrNaN
    on_curve: NumberOrNaN
    spread: NumberOrNaN
    predictive_value: dict[str, NumberOrNaN]
    resolvable: bool
    holds: bool


class Realised(StrictStruct, frozen=True):
    """The share of non-members that are called members, and the false positive rate that was stated.

    NaN where the stated rate cannot be resolved.
    """

    fpr: float
    value: NumberOrNaN
    low: NumberOrNaN
    high: NumberOrNaN


class Curve(StrictStruct, frozen=True):
    """The ROC curve of all models together: at most `ROC_POINTS` points, with their Clopper-Pearson band."""

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class AttackRates(StrictStruct, frozen=True):
    """How well an attack separates members from non-members of the models that it attacks.

    Attributes:
        auc: mean over models of the area under the ROC curve, ties half; its interval is Student's t over models, and
            of one model DeLong's (1988).
        balanced_accuracy: mean of true positive and true negative rate, with the threshold that is best on the others.
        tpr_at_fpr: at each stated false positive rate.
        realised_fpr: the false positive rates that the same thresholds led to.
        roc: of all models together.
        members, non_members: records that were judged, over all models.
        unjudged: share of records and models of which the attack says nothing.
        tied: share of a model's judged records that have its commonest score, mean over models.
        auc_of_models: of each model; NaN where all its records are members, or none.
    """

    auc: Estimate
    balanced_accuracy: Estimate
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
        """At each stated false positive rate, the true and the realised false positive rate."""
        return tuple(zip(self.tpr_at_fpr, self.realised_fpr, strict=True))


def attack_rates(
    scores: Float[np.ndarray, "models n"],
    truth: Bool[np.ndarray, "models n"],
    *,
    false_positive_rates: Sequence[float] = FALSE_POSITIVE_RATES,
    level: float = 0.95,
    thresholds_of: Sequence[ScoredModels] | None = None,
) -> AttackRates:
    """The rates of an attack over models of known membership.

    Estimates of rates are Clopper & Pearson's (1934), over records and models as if all were independent; `spread` says
    how far models differ.

    Args:
        scores: of each record under each model, larger for a member; NaN where the attack says nothing.
        truth: which records each model was trained on.
        false_positive_rates: the stated ones.
        level: confidence level of the intervals.
        thresholds_of: for each model the other models that set its thresholds; by default all others of `scores`.

    Raises:
        InputError: shapes disagree, no model has a member and a non-member that are judged, or one model is to set its
            own threshold.

    >>> truth = np.arange(400).reshape(4, 100) % 2 == 0
    >>> rates = attack_rates(np.where(truth, 1.0, 0.0) + np.arange(100) / 1000, truth)
    >>> rates.auc.value, rates.tpr_at_fpr[0].value, rates.tpr_at_fpr[1].resolvable
    (1.0, 1.0, False)
    """
    if scores.shape != truth.shape or not all(0 < each < 1 for each in (*false_positive_rates, level)):
        raise InputError(
            "attacks are judged by as many scores as truths, at rates and a level between 0 and 1; got "
            f"{scores.shape}, {truth.shape}, {tuple(false_positive_rates)} and {level:g}."
        )
    judged = ~np.isnan(scores)
    each = [(own[seen], row[seen]) for own, row, seen in zip(scores, truth, judged, strict=True)]
    areas = np.array([auc(own, row) if 0 < row.sum() < len(row) else np.nan for own, row in each])
    if np.isnan(areas).all():
        raise InputError("no model has a record that it was trained on and one that it was not, both judged.")
    if thresholds_of is None and len(scores) < 2:
        raise InputError("one model cannot set its own threshold; give the scores of others.")
    own_scores, own_truth = np.concatenate([a for a, _ in each]), np.concatenate([b for _, b in each])
    others, members = int((~own_truth).sum()), int(own_truth.sum())
    called = called_at(scores, truth, false_positive_rates, thresholds_of)
    ranking = rank(own_scores, own_truth)
    running = running_counts(ranking, np.ones((1, len(own_scores)), np.int64))
    rates, realised = [], []
    for limit, of_rate in zip(false_positive_rates, called, strict=True):
        enough = limit * others >= LEAST_EXPECTED - 1e-9
        hits, alarms = (of_rate & truth & judged).sum(axis=1), (of_rate & ~truth & judged).sum(axis=1)
        own_members = (truth & judged).sum(axis=1)
        shares = hits[own_members > 0] / own_members[own_members > 0]
        holds = clopper_pearson(int(alarms.sum()), others, 1 - 2 * BY_CHANCE).low <= MARGIN * limit
        told = enough and holds
        right = clopper_pearson(int(hits.sum()), members, level) if told else NONE
        wrong = clopper_pearson(int(alarms.sum()), others, level) if enough else NONE
        rates.append(
            RateAt(
                *(limit, right.value, right.low, right.high),
                on_curve=float(power(*running, limit)[0, 0]) if enough else np.nan,
                spread=float(shares.std(ddof=1)) if told and len(shares) > 1 else np.nan,
                predictive_value={
                    f"{share:g}": positive_predictive_value(right.value, wrong.value, share) for share in MEMBER_SHARES
                },
                resolvable=enough,
                holds=bool(holds),
            )
        )
        realised.append(Realised(limit, wrong.value, wrong.low, wrong.high))
    return AttackRates(
        auc=mean_of_models(areas, level) if np.isfinite(areas).sum() > 1 else _delong(*_both(each, areas), level),
        balanced_accuracy=mean_of_models(_balanced(scores, truth, thresholds_of), level),
        tpr_at_fpr=tuple(rates),
        realised_fpr=tuple(realised),
        roc=_curve(running[0][0], running[1][0], others, level),
        members=members,
        non_members=others,
        unjudged=float(1 - judged.mean()),
        tied=float(np.mean([np.unique(own, return_counts=True)[1].max() / len(own) for own, _ in each if len(own)])),
        auc_of_models=tuple(areas.tolist()),
    )


def called_at(
    scores: Float[np.ndarray, "models n"],
    truth: Bool[np.ndarray, "models n"],
    false_positive_rates: Sequence[float],
    thresholds_of: Sequence[ScoredModels] | None = None,
) -> Bool[np.ndarray, "rates models n"]:
    """Which records are called members of each model, at each stated false positive rate; see `attack_rates`.

    A record is called a member if its score is above that of the (a + 1)-th highest non-member of the other models, a
    being as many false positives as the rate allows. Equal scores are not called, so of the other models' non-members
    no more than stated would be. On the model itself ties may add false positives: see `RateAt.holds`.
    """
    found = np.zeros((len(false_positive_rates), *scores.shape), bool)
    for rows, others in _by_thresholds(len(scores), thresholds_of):
        found[:, rows] = _called(scores[rows], truth[rows], false_positive_rates, others)
    return found


def _by_thresholds(
    models: int, thresholds_of: Sequence[ScoredModels] | None
) -> list[tuple[Int[np.ndarray, " rows"], ScoredModels | None]]:
    """The models whose thresholds are set by the same others."""
    if thresholds_of is None:
        return [(np.arange(models), None)]
    of_scores = {id(scores): (scores, truth) for scores, truth in thresholds_of}
    whose = np.array([id(scores) for scores, _ in thresholds_of])
    return [(np.flatnonzero(whose == place), others) for place, others in of_scores.items()]


def _called(
    scores: np.ndarray, truth: np.ndarray, false_positive_rates: Sequence[float], others: ScoredModels | None
) -> Bool[np.ndarray, "rates models n"]:
    """The calls with thresholds of these other models; None: of each other in turn."""
    of_scores, of_truth = others or (scores, truth)
    outside = np.where(of_truth | np.isnan(of_scores), -np.inf, of_scores)
    flat = outside.ravel()
    order = np.argsort(-flat, kind="stable")[: int((flat > -np.inf).sum())]
    falling, whose = flat[order], order // outside.shape[1]
    found = np.zeros((len(false_positive_rates), *scores.shape), bool)
    for model, own in enumerate(scores):
        places = np.flatnonzero(whose == model) if others is None else np.zeros(0, int)
        total = len(falling) - len(places)
        for called, limit in zip(found, false_positive_rates, strict=True):
            allowed = int(np.floor(limit * total + 1e-9))
            if allowed >= total:
                continue
            # The place, among all, of the (allowed + 1)-th that is not the model's own.
            place = allowed + int(np.searchsorted(places - np.arange(len(places)), allowed, side="right"))
            with np.errstate(invalid="ignore"):
                called[model] = own > falling[place]
    return found


def _balanced(
    scores: np.ndarray, truth: np.ndarray, thresholds_of: Sequence[ScoredModels] | None
) -> Float[np.ndarray, " models"]:
    """The balanced accuracy of each model with the threshold that is best on the others."""
    found = np.full(len(scores), np.nan)
    for rows, others in _by_thresholds(len(scores), thresholds_of):
        found[rows] = balanced_accuracy(scores[rows], truth[rows], others)
    return found


def clopper_pearson(count: int, total: int, level: float) -> Estimate:
    """The share `count / total` and its exact interval; NaN of nothing. Clopper & Pearson (1934).

    >>> round(clopper_pearson(0, 10, 0.95).high, 3)
    0.308
    """
    if not total:
        return NONE
    (low,), (high,) = exact_shares(np.array([count]), total, level)
    return Estimate(count / total, float(low), float(high))


def exact_shares(
    count: Int[np.ndarray, "*shape"], total: Int[np.ndarray, "*shape"] | int, level: float
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """The ends of Clopper and Pearson's interval of each share `count / total`."""
    tail = (1 - level) / 2
    low = np.where(count > 0, special.betaincinv(np.maximum(count, 1), total - count + 1, tail), 0.0)
    high = np.where(count < total, special.betaincinv(count + 1, np.maximum(total - count, 1), 1 - tail), 1.0)
    return low, high


def positive_predictive_value(true_positive: float, false_positive: float, share: float) -> float:
    """The share of records called members that are members, where this share of all records are. NaN of nothing called.

    >>> positive_predictive_value(0.2, 0.01, 0.01).__round__(3)
    0.168
    """
    members, others = share * true_positive, (1 - share) * false_positive
    return members / (members + others) if members + others > 0 else float("nan")


def _both(each: list[tuple[np.ndarray, np.ndarray]], areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return each[int(np.flatnonzero(np.isfinite(areas))[0])]


def _delong(scores: np.ndarray, truth: np.ndarray, level: float) -> Estimate:
    """The area under the ROC curve of one model, with the interval of DeLong, DeLong & Clarke-Pearson (1988)."""
    members, others = scores[truth], scores[~truth]
    of_members = (rankdata(scores)[truth] - rankdata(members)) / len(others)
    of_others = 1 - (rankdata(scores)[~truth] - rankdata(others)) / len(members)
    area = float(of_members.mean())
    if min(len(members), len(others)) < 2:
        return Estimate(area, np.nan, np.nan)
    error = np.sqrt(of_members.var(ddof=1) / len(members) + of_others.var(ddof=1) / len(others))
    reach = special.ndtri((1 + level) / 2) * error
    return Estimate(area, max(0.0, float(area - reach)), min(1.0, float(area + reach)))


def _curve(group: np.ndarray, others: np.ndarray, count: int, level: float) -> Curve:
    """At most `ROC_POINTS` points of the curve, spread along a logarithmic axis, and the band of each."""
    at = np.geomspace(1e-5, 1, ROC_POINTS)
    kept = np.unique(np.searchsorted(others, np.floor(at * count + 1e-9), side="right") - 1)
    kept = kept[kept >= 0]
    members = int(group[-1])
    hits, alarms = np.append(0, group[kept]), np.append(0, others[kept])
    low, high = exact_shares(hits, members, level)
    return Curve(*(tuple(each.tolist()) for each in (alarms / count, hits / members, low, high)))

"""Estimators of the used share of a query set, each made once for a bank of shadow models and then asked of targets.

DUCI, dataset usage cardinality inference (Tong et al. 2025, ICLR), is the adjusted count of Rogan & Gladen (1978).
QuaPy's are general quantifiers: `pip install quapy`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float
from sklearn.linear_model import LogisticRegression

from jaxaudit.attacks.records import RMIA, ShadowScores
from jaxaudit.errors import InputError
from jaxaudit.kernels.ranking import rank, running_counts
from jaxaudit.metrics import holdout_test
from jaxaudit.metrics.scores import cut, profile
from jaxaudit.metrics.shadow import linear_share


class AdjustedCount(NamedTuple):
    """A used share, and the numbers from which it was computed.

    Attributes:
        share: the used share of the records. It may lie outside [0, 1]; see `adjusted_count`.
        called: share of the records that are called members, by a score of at least `threshold`.
        true_positive, false_positive: share of the shadow models' members, and of their non-members, that are called.
    """

    share: float
    called: float
    threshold: float
    true_positive: float
    false_positive: float


def adjusted_count(
    target: Float[Array | np.ndarray, " n"],
    shadows: Float[Array | np.ndarray, "models n"],
    membership: Bool[Array | np.ndarray, "models n"],
) -> AdjustedCount:
    """The used share of some records by DUCI's estimator: the mean of (called - FPR) / (TPR - FPR).

    A record's score must not depend on how many *other* records were used: RMIA's records z must be in no training set.
    The threshold maximises TPR - FPR over the scores of all shadow models together; if several do, it is the highest.
    The share is unbiased if the attack has the same TPR and FPR on the target as on the shadow models, and is not cut
    to [0, 1]. A score equal to the threshold is a call, as in TPR and FPR; a score of NaN is left out. Scores are
    larger for a member; those of a shadow model are computed with the other shadow models.

    Raises:
        InputError: shapes disagree; no score of the target, of a shadow model's member or of a non-member is known; or
            no threshold has TPR above FPR.
    """
    target, shadows, membership = np.asarray(target), np.asarray(shadows), np.asarray(membership)
    if shadows.shape != membership.shape or target.shape != shadows.shape[1:]:
        raise InputError(
            f"the target has scores of shape {target.shape}, the shadow models {shadows.shape} and their membership "
            f"{membership.shape}: give one row per model and one column per record, the same records in each."
        )
    target_scores, is_finite = target[~np.isnan(target)], ~np.isnan(shadows)
    members, non_members = int((is_finite & membership).sum()), int((is_finite & ~membership).sum())
    if not (len(target_scores) and members and non_members):
        raise InputError(
            f"scores are known of {len(target_scores)} records of the target, {members} members and {non_members} "
            "non-members of the shadow models, but some of each are needed: too few shadow models for this attack? "
            "Train more."
        )
    ranking = rank(shadows[is_finite], membership[is_finite])
    hits, alarms = (counts[0] for counts in running_counts(ranking, np.ones((1, members + non_members), np.int64)))
    # TPR - FPR times the numbers of both: integers, in which equal thresholds are equal.
    gain = hits * non_members - alarms * members
    best = int(gain.argmax())
    if gain[best] <= 0:
        raise InputError(
            f"TPR = FPR: no threshold calls more of the shadow models' {members} members than of their {non_members} "
            "non-members, so a count of calls says nothing of the used share. Does `membership` belong to these "
            "models? If so, take another attack; these models may not remember their records."
        )
    threshold = float(shadows[is_finite][ranking.order[ranking.ends[best]]])
    rate, alarm = float(hits[best]) / members, float(alarms[best]) / non_members
    called = float(np.mean(target_scores >= threshold))
    return AdjustedCount((called - alarm) / (rate - alarm), called, threshold, rate, alarm)


GAMMA = 1.0
LEAST_RMIA, LEAST_LINEAR, LEAST_HOLDOUT = 2, 2, 4
PERMUTATIONS = 99
"""The p-value is not asked for here."""


class ModelOutputs(NamedTuple):
    """Log-odds of some models on records in this order: query set, holdout, and a population that no model has."""

    odds: np.ndarray
    query: int
    held: int

    @property
    def asked(self) -> np.ndarray:
        return self.odds[:, : self.query]

    @property
    def dealt(self) -> np.ndarray:
        return self.odds[:, : self.held]


class Answer(NamedTuple):
    """A used share as the method gives it, perhaps outside [0, 1] or unknown (NaN), and its interval, if it has one."""

    share: float
    low: float = np.nan
    high: float = np.nan


Answers = list[Answer]
Method = Callable[[ModelOutputs, np.ndarray, ModelOutputs], Answers | None]
"""Shadow models, their membership of query set and holdout, targets -> an answer a target; None: too few models."""


def rmia(shadows: ModelOutputs, membership: np.ndarray, targets: ModelOutputs) -> tuple[np.ndarray, np.ndarray]:
    """RMIA of the query records: of the targets, and of each shadow model by the others.

    The records z are the population, so that no score depends on how many other records were used. One shadow model has
    none to be attacked by: then the score is the log-odds itself (attack-P).
    """
    if len(shadows.odds) < LEAST_RMIA:
        return targets.asked, shadows.asked
    population = np.arange(shadows.odds.shape[1]) >= shadows.held
    rows = np.concatenate([membership, np.zeros((len(membership), population.sum()), bool)], axis=1)
    shadowed = ShadowScores(shadows.odds[:, None], rows, unused=population)
    of = (targets.odds[:, None], None)
    found = [RMIA(gamma=GAMMA).scores(shadowed._replace(targets=each))[:, : shadows.query] for each in of]
    return found[0], found[1]


def duci(shadows: ModelOutputs, membership: np.ndarray, targets: ModelOutputs) -> Answers | None:
    """DUCI on RMIA's scores."""
    own, among = rmia(shadows, membership, targets)
    try:
        return [Answer(adjusted_count(scores, among, membership[:, : shadows.query]).share) for scores in own]
    except InputError:
        return [Answer(np.nan)] * len(own)


def quantifier(kind: str) -> Method:
    """One of QuaPy's, whose classifier is a logistic regression on the RMIA score, fitted to the shadow models'."""

    def answers(shadows: ModelOutputs, membership: np.ndarray, targets: ModelOutputs) -> Answers | None:
        make = getattr(import_module("quapy.method.aggregative"), kind)
        own, among = rmia(shadows, membership, targets)
        truth = membership[:, : shadows.query].ravel().astype(int)
        fitted = make(LogisticRegression()).fit(among.reshape(-1, 1), truth)
        return [Answer(float(fitted.predict(row[:, None])[1])) for row in own]

    return answers


def holdout(shadows: ModelOutputs, membership: np.ndarray, targets: ModelOutputs) -> Answers | None:
    """Ours: the used fraction of the holdout test, with its interval."""
    if len(shadows.odds) < LEAST_HOLDOUT:
        return None
    found = []
    for place, row in enumerate(targets.dealt):
        key = jax.random.fold_in(jax.random.key(0), place)
        halves = row[: shadows.query], row[shadows.query :]
        usage = holdout_test(key, *halves, shadows.dealt, membership, permutations=PERMUTATIONS)
        found.append(Answer(usage.fraction, usage.fraction_low, usage.fraction_high))
    return found


def linear(shadows: ModelOutputs, membership: np.ndarray, targets: ModelOutputs) -> Answers | None:
    """Ours without a holdout: the estimate that the shadow test rests on."""
    if len(shadows.odds) < LEAST_LINEAR:
        return None
    others = profile(cut(shadows.asked), membership[:, : shadows.query])
    return [Answer(linear_share(cut(row), others, np.ones(shadows.query, bool))) for row in targets.asked]


METHODS: dict[str, Method] = {
    "DUCI": duci,
    "EMQ": quantifier("EMQ"),
    "DyS": quantifier("DyS"),
    "ours, no holdout": linear,
    "ours, holdout": holdout,
}

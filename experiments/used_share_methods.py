"""Estimators of the used share of a query set, each made once for a bank of shadow models and then asked of targets.

QuaPy's are general quantifiers: `pip install quapy`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from quapy.method.aggregative import EMQ, DyS
from sklearn.linear_model import LogisticRegression

from experiments.adjusted_count import adjusted_count
from jaxaudit.attacks.records import RMIA, AttackP, RecordAttack, ShadowScores
from jaxaudit.errors import InputError
from jaxaudit.metrics import holdout_test
from jaxaudit.metrics.profile import profile
from jaxaudit.metrics.scores import cut
from jaxaudit.metrics.shares import linear_share

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
Scores = tuple[np.ndarray, np.ndarray]


def rmia(shadows: ModelOutputs, membership: np.ndarray, targets: ModelOutputs) -> Scores:
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


def rmia_of_bank(shadows: ModelOutputs, membership: np.ndarray, targets: ModelOutputs) -> Scores:
    """RMIA as `jaxaudit attack` has it without a population: the records z are query set and holdout."""
    attack: RecordAttack = RMIA(gamma=GAMMA) if len(shadows.odds) >= LEAST_RMIA else AttackP()
    of = (targets.dealt[:, None], None)
    found = [attack.scores(ShadowScores(shadows.dealt[:, None], membership, each))[:, : shadows.query] for each in of]
    return found[0], found[1]


def duci(scores: Callable[[ModelOutputs, np.ndarray, ModelOutputs], Scores], *, ties: bool = True) -> Method:
    """DUCI on an attack's scores; without `ties` as Privacy Meter's code has it: the threshold itself is not called."""

    def answers(shadows: ModelOutputs, membership: np.ndarray, targets: ModelOutputs) -> Answers | None:
        own, among = scores(shadows, membership, targets)
        try:
            found = [adjusted_count(each, among, membership[:, : shadows.query]) for each in own]
        except InputError:
            return [Answer(np.nan)] * len(own)
        if ties:
            return [Answer(each.share) for each in found]
        called = [float(np.mean(row > each.threshold)) for row, each in zip(own, found, strict=True)]
        return [
            Answer((part - each.false_positive) / (each.true_positive - each.false_positive))
            for part, each in zip(called, found, strict=True)
        ]

    return answers


def quantifier(make: Callable[[], EMQ | DyS]) -> Method:
    """One of QuaPy's, whose classifier is a logistic regression on the RMIA score, fitted to the shadow models'."""

    def answers(shadows: ModelOutputs, membership: np.ndarray, targets: ModelOutputs) -> Answers | None:
        own, among = rmia(shadows, membership, targets)
        truth = membership[:, : shadows.query].ravel().astype(int)
        fitted = make().fit(among.reshape(-1, 1), truth)
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
    """Ours without a holdout: the estimate that the reference and the shadow test rest on."""
    if len(shadows.odds) < LEAST_LINEAR:
        return None
    others = profile(cut(shadows.asked), membership[:, : shadows.query])
    return [Answer(linear_share(cut(row), others, np.ones(shadows.query, bool))) for row in targets.asked]


METHODS: dict[str, Method] = {
    "DUCI": duci(rmia),
    "DUCI, ties not called": duci(rmia, ties=False),
    "DUCI, z of the bank": duci(rmia_of_bank),
    "EMQ": quantifier(lambda: EMQ(LogisticRegression())),
    "DyS": quantifier(lambda: DyS(LogisticRegression())),
    "ours, no holdout": linear,
    "ours, holdout": holdout,
}

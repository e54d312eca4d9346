"""The outputs of the shadow models and of one target at the same resolution: the input of every test."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from jaxaudit.audits.bank_odds import Coarsening, all_logits, resolution_of, rounded
from jaxaudit.audits.ks.result import Truth
from jaxaudit.data.labels import number_groups
from jaxaudit.data.outputs.outputs import Outputs, confidence_of, logit_step, match_logits, match_precision
from jaxaudit.ensemble import Progress
from jaxaudit.metrics.arrays import Indices, Integers, ModelMask, Numbers, PerModel, Scores
from jaxaudit.metrics.checks import Check, models_of_test
from jaxaudit.metrics.scores import log_odds
from jaxaudit.shadow_models import OF_RHO, Pool, ShadowModels

Value = TypeVar("Value")
AskedMask = Bool[np.ndarray, " asked"]
"""Which of the compared records (`Pool.compared`)."""


class TargetOutputs(NamedTuple):
    """Outputs of one target on query and holdout records.

    Attributes:
        truth: its training data; None for a file of outputs.
        log_odds: nats, of each record's own class, for the records at `Pool.compared`.
        at_resolution: rounds models' log-odds to the target's resolution.
        printed: whether the target's file has rounded probabilities.
        confidences: of the query records' own classes, at the resolution of the target's file.
        checks: of the outputs themselves.
        unseen: which of these records are calibration records that it is known not to have used; none if no outputs on
            the calibration set are compared.
        before: log-odds (nats) of the same target before a deletion, on query and holdout records, and what rounds
            others like them; if known.
        trained_here: whether this audit trained it like the shadow models.
        file: its outputs on the query set; None of a model without a file.
    """

    name: str
    truth: Truth | None
    log_odds: Float[np.ndarray, " asked"]
    at_resolution: Coarsening
    printed: bool
    confidences: Float[np.ndarray, "1 n"]
    checks: tuple[Check, ...] = ()
    unseen: AskedMask = np.zeros(0, bool)
    before: tuple[Float[np.ndarray, " dealt"], Coarsening] | None = None
    trained_here: bool = False
    file: Outputs | None = None


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence by which the tests of an audit judge targets.

    `own_recipe` is whether the user states that the shadow models have the targets' own recipe, `reduced` how they
    differ from those that were requested, in words; `limitations` are further ones, in sentences. `targets` is the
    number of targets that are judged together; `progress` is called while records teach their difficulty.
    """

    models: ShadowModels
    own_recipe: bool = False
    reduced: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    targets: int = 1
    progress: Progress | None = None
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def pool(self) -> Pool:
        """The records."""
        return self.models.pool

    @property
    def queries(self) -> int:
        """The number of query records."""
        return self.pool.query.stop - self.pool.query.start

    @property
    def dealt_records(self) -> slice:
        """Indices of query set and holdout among the compared records (`Pool.compared`)."""
        return slice(0, self.pool.holdout.stop)

    @property
    def in_calibration(self) -> AskedMask:
        """Marks the calibration set among the compared records; no record if no outputs on it are compared."""
        first, compared = self.pool.calibration.start, self.pool.compared
        return (compared >= first) & (compared < self.pool.calibration.stop) & self.pool.compares_calibration

    @property
    def known_members(self) -> slice:
        """Indices of the known members among the compared records."""
        compared = len(self.pool.compared)
        return slice(compared - (self.pool.members.stop - self.pool.members.start), compared)

    def groups(self, compared: slice | Indices) -> Indices | None:
        """The group of each of these compared records, numbered from 0; None if records were dealt one by one."""
        groups = self.pool.examples.groups
        return None if groups is None else number_groups(groups[self.pool.compared[compared]])

    def count(self, *kinds: str) -> int:
        """The number of models of these kinds."""
        return sum(self.models.kinds.count(kind) for kind in kinds)

    def members(self, *kinds: str) -> Bool[np.ndarray, "models asked"]:
        """Which of the compared records (`Pool.compared`) the models of these kinds were trained on."""
        indices = self.models.of(*kinds)
        return self.once(
            f"members {kinds}", lambda: np.take(self.models.membership[indices], self.pool.compared, axis=1)
        )

    def log_odds(self, *kinds: str) -> Float[np.ndarray, "models asked"]:
        """Log-odds of the models of these kinds, in the same order; NaN for records without outputs."""
        indices = self.models.of(*kinds)
        return self.once(
            f"log-odds {kinds}", lambda: np.take(self.models.log_odds[indices], self.pool.compared, axis=1)
        )

    def own_accuracy(self, *kinds: str) -> PerModel:
        """The accuracy of each model of these kinds on its own training records, in the same order."""
        return self.models.own_accuracy[self.models.of(*kinds)]

    def fit(self, name: str, *kinds: str) -> Check:
        """The check of this name: whether the models of these kinds fit their own training data."""
        if self.pool.classless:
            return Check(name, True, None, None, False, "models of records without classes have no accuracy")
        return models_of_test(name, self.own_accuracy(*kinds))

    def among(self, models: ModelMask) -> "Evidence":
        """The same evidence, from only some of the models."""
        return replace(self, models=self.models.take(np.flatnonzero(models)), _known={})

    def once(self, name: str, make: Callable[[], Value]) -> Value:
        """A value that all targets share, computed once."""
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]


def of_rho(
    models: ShadowModels, values: Scores
) -> tuple[Float[np.ndarray, "replicates n"], Float[np.ndarray, "replicates n"], Float[np.ndarray, "controls n"]]:
    """These values of the query, calibration and control models; no rows where there is no such model."""
    query, calibration, controls = (values[models.of(kind)] for kind in OF_RHO)
    return query, calibration, controls


def of_file(
    files: tuple[Outputs, ...],
    labels: tuple[Int[np.ndarray, " _"], ...],
    models: ShadowModels,
) -> tuple[Float[np.ndarray, " asked"], Coarsening, Float[np.ndarray, "1 n"]]:
    """A target's log-odds from its files on the compared sets, their resolution, and its confidences on the first set.
    Models' outputs are rounded like the files, the target's like stored outputs; scores get the models' scale.
    """
    pairs, grids = list(zip(files, labels, strict=True)), (*files, *models.resolutions)
    if models.scale is not None:
        models.scale.refuse_coarse(max(map(logit_step, files)), files[0].name)
        odds = models.scale(np.concatenate([own_log_odds(*pair) for pair in pairs]))
        return odds, lambda odds: odds, special.expit(odds[None, : len(labels[0])]).astype(np.float32)
    confidences = confidence_of(*pairs[0])[None]
    if files[0].kind != "logits":
        confidences = match_precision(confidences, files[0])
    if all_logits(grids):
        odds = match_logits(np.concatenate([own_log_odds(*pair) for pair in pairs]), *grids)
    else:
        odds = rounded(np.concatenate([confidence_of(*pair) for pair in pairs]), grids)
    return odds, resolution_of(grids), confidences


def own_log_odds(file: Outputs, labels: Integers) -> Numbers:
    """The log-odds (nats) of each record's own class from a file of logits, precise near a probability of 1."""
    with np.errstate(over="ignore"):
        return log_odds(file.logits.astype(np.float64), file.columns(labels))

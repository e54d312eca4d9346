"""The outputs of the shadow models and of one target at the same resolution: the input of every test."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.audits.ks.advice import TRAINED, Advice
from jaxaudit.audits.ks.models import OF_RHO, Designs, Roles, Trained
from jaxaudit.audits.pool import Pool
from jaxaudit.audits.resolution import Brought, as_logits, resolution_of, rounded
from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs, confidence_of, match_logits, match_precision
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import Signals
from jaxaudit.metrics.exchangeability import Alike
from jaxaudit.metrics.scores import log_odds

Made = TypeVar("Made")


class Compared(NamedTuple):
    """The numbers that rho compares on the query set, all of one kind and at the target's resolution.

    Confidences, or log-odds of each record's own class if the target's logits are known. Distances between samples are
    the same for both, except for the rounding of confidences near 1.

    Attributes:
        query, calibration: of the shadow models, one row per replicate; no row without models of rho.
        controls: of the models trained on both sets.
        target: of the target, one row.
        confidences: the target's as probabilities, to be shown.
    """

    query: Float[np.ndarray, "replicates n"]
    calibration: Float[np.ndarray, "replicates n"]
    controls: Float[np.ndarray, "controls n"]
    target: Float[np.ndarray, "1 n"]
    confidences: Float[np.ndarray, "1 n"]


class Truth(NamedTuple):
    """What a simulated target was trained on.

    Attributes:
        used_fraction: the share of the query records among its training data.
        records: the size of its training set.
        expected: the correct verdict: `not forgotten` if any query record was used, else `forgotten`.
    """

    used_fraction: float
    records: int
    expected: str


class Before(NamedTuple):
    """Outputs of a target before a deletion, on query and holdout records.

    Attributes:
        log_odds: nats, of each record's own class, of the query set and then the holdout.
        at_resolution: converts models' log-odds to the resolution of these outputs.
    """

    log_odds: Float[np.ndarray, " asked"]
    at_resolution: Brought


class Said(NamedTuple):
    """Outputs of one target on query and holdout records.

    Attributes:
        name: the name of the target.
        truth: its training data; None for a file of outputs.
        log_odds: nats, of each record's own class, of the records that `Pool.asked` names.
        at_resolution: converts models' log-odds to the target's resolution.
        printed: whether the target's file has rounded probabilities.
        compared: the numbers that rho compares.
        signals: EMA's signals on query records; None without EMA.
        checks: checks of the outputs themselves.
        unseen: which of these records it is known not to have used; None without outputs on a reference.
        before: outputs of the same target before a deletion, if they are known.
        trained_here: whether it was trained like the shadow models, by this audit.
    """

    name: str
    truth: Truth | None
    log_odds: Float[np.ndarray, " asked"]
    at_resolution: Brought
    printed: bool
    compared: Compared
    signals: Signals | None
    checks: tuple[Check, ...] = ()
    unseen: Bool[np.ndarray, " asked"] | None = None
    before: Before | None = None
    trained_here: bool = False


@dataclass(frozen=True, eq=False)
class Evidence:
    """Outputs and training sets of all models of an audit.

    Attributes:
        trained: the models, by role; those of rho may be missing.
        roles: their training sets, by role.
        pool: the records.
        query: the query set.
        min_accuracy: minimum training accuracy of a model that fits its data.
        designs: the place of each model's design, by role.
        sampled_alike: whether query set and holdout were sampled alike, where it was measured before and their inputs
            are not at hand.
        at_hand: the known members, the query set and the holdout with their inputs, in this order, where the pool has
            none; what they tell of how alike the sets are changes no other number.
        stored: outputs of some models as they were stored, one for each resolution that files have: these may be
            coarser than a target's.
        design_names: of the designs; none where there is one.
        advice: what to do about a verdict.
        own_recipe: whether the shadow models are said to be trained by the targets' own recipe.
        reduced: how the shadow models differ from those that were asked for, in words.
        limitations: what else is to be said of them, in sentences.
        targets: how many targets are judged by them.
        content_hash: of the bank whose models they are; empty where they were trained here.
    """

    trained: Mapping[str, Trained]
    roles: Roles
    pool: Pool
    query: Examples
    min_accuracy: float
    designs: Designs = field(default_factory=dict)
    sampled_alike: Alike | None = None
    at_hand: Examples | None = None
    stored: tuple[Outputs, ...] = ()
    design_names: tuple[str, ...] = ()
    advice: Advice = TRAINED
    own_recipe: bool = False
    reduced: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    targets: int = 1
    content_hash: str = ""
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def queries(self) -> int:
        """The number of query records."""
        return len(self.query)

    @property
    def calibration_labels(self) -> Int[np.ndarray, " calibration"]:
        """Classes of the calibration records."""
        return self.pool.examples.labels[self.pool.calibration]

    @property
    def dealt(self) -> slice:
        """The places of query set and holdout among the records whose outputs are compared."""
        pool = self.pool
        return slice(0, self.queries + pool.holdout.stop - pool.holdout.start)

    @property
    def referred(self) -> slice:
        """The places of the reference among these records."""
        return slice(self.dealt.stop, self.dealt.stop + self.pool.reference.stop - self.pool.reference.start)

    @property
    def known(self) -> slice:
        """The places of the known members among these records."""
        return slice(self.referred.stop, len(self.pool.asked))

    @property
    def design(self) -> str:
        """Of the shadow models of the tests of use: `guessed`, or `mixed` where there are several."""
        return "mixed" if any(places.any() for places in self.designs.values()) else "guessed"

    def has(self, role: str) -> bool:
        """Whether there is a model of this role."""
        return role in self.trained and len(self.trained[role].confidences) > 0

    def members(self, *roles: str) -> Bool[np.ndarray, "models asked"]:
        """Which query, holdout and reference records the models of these roles were trained on."""
        none = np.zeros((0, len(self.pool.examples)), bool)
        return np.concatenate([none, *(row for role in roles for row in self.roles[role])])[:, self.pool.asked]

    def design_of(self, *roles: str) -> Int[np.ndarray, " models"]:
        """The place of the design of each model of these roles, in the same order."""
        return np.concatenate([self.designs.get(role, np.zeros(len(self.roles[role]), int)) for role in roles])

    def log_odds(self, *roles: str) -> Float[np.ndarray, "models asked"]:
        """Log-odds of the models of these roles, in the same order."""
        return np.concatenate([self.trained[role].log_odds for role in roles])

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What is the same for all targets; it is made once."""
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]


def of_rho(
    trained: Mapping[str, Trained], read: Callable[[Trained], Float[np.ndarray, "models n"]], records: int
) -> tuple[Float[np.ndarray, "replicates n"], Float[np.ndarray, "replicates n"], Float[np.ndarray, "controls n"]]:
    """`read` of the query, calibration and control models; no row of those that there are not."""
    none = np.zeros((0, records), np.float32)
    query, calibration, controls = (read(trained[role]) if role in trained else none for role in OF_RHO)
    return query, calibration, controls


def of_file(
    files: tuple[Outputs, ...],
    labels: tuple[Int[np.ndarray, " _"], ...],
    trained: Mapping[str, Trained],
    stored: tuple[Outputs, ...] = (),
) -> tuple[Float[np.ndarray, " asked"], Brought, Compared]:
    """A target's log-odds from its files on the query set and the holdout, if any, and the numbers that rho compares.

    Logits give log-odds directly. Probabilities near 1 have little information on log-odds: if a file contains
    probabilities, the outputs of all models are rounded like them; where the models' outputs were stored, the target's
    are rounded like those. A value that is rounded to 0 or 1 counts as half a step away from it.
    """
    compared = _compared(files[0], labels[0], trained)
    grids = (*files, *stored)
    if as_logits(grids):
        target = np.concatenate([_log_odds(*each) for each in zip(files, labels, strict=True)])
        return match_logits(target, *grids), resolution_of(grids), compared
    said = np.concatenate([confidence_of(*each) for each in zip(files, labels, strict=True)])
    return rounded(said, grids), resolution_of(grids), compared


def _compared(file: Outputs, labels: Int[np.ndarray, " n"], trained: Mapping[str, Trained]) -> Compared:
    own, n = confidence_of(file, labels)[None], len(labels)
    if file.kind == "logits":
        models = of_rho(trained, lambda each: each.log_odds[:, :n], n)
        query, calibration, controls = (match_logits(each, file) for each in models)
        return Compared(query, calibration, controls, match_logits(_log_odds(file, labels)[None], file), own)
    models = of_rho(trained, lambda each: each.confidences, n)
    query, calibration, controls = (match_precision(each, file) for each in models)
    own = match_precision(own, file)
    return Compared(query, calibration, controls, own, own)


def _log_odds(file: Outputs, labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The log-odds (nats) of each record's own class from a file of logits, in float64.

    A constant added to all logits of a record cancels, and no precision is lost near a probability of 1.
    """
    with np.errstate(over="ignore"):
        return log_odds(file.logits.astype(np.float64), file.columns(labels))

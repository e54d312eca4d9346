"""What the models of a `ks` audit say, and what one target says, at one resolution: what every test judges by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from jaxaudit.audits.ks.models import Roles, Trained
from jaxaudit.audits.pool import Pool
from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs, confidence_of, match_logits, match_precision
from jaxaudit.data.outputs.precision import MOST_DECIMALS, step_near
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import Signals
from jaxaudit.metrics.scores import log_odds

Brought = Callable[[Float[np.ndarray, "models asked"]], Float[np.ndarray, "models asked"]]


class Compared(NamedTuple):
    """What rho compares on the query set, all of it in one quantity and at the target's resolution.

    Confidences, or where the target's logits are known the log-odds of each record's own class: a distance between
    samples is the same of both, but for what rounding takes from confidences near 1.

    Attributes:
        query, calibration: of the shadow models, a row a replicate.
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
        expected: the right verdict: `not forgotten` where any query record was used, else `forgotten`.
    """

    used_fraction: float
    records: int
    expected: str


class Said(NamedTuple):
    """What one target says of query and holdout records.

    Attributes:
        name: the target's.
        truth: what is known of it; None for a file of outputs.
        log_odds: nats, of each record's own class, of the query set and then the holdout.
        at_resolution: brings models' log-odds to the target's resolution.
        printed: whether the target's file rounds probabilities.
        compared: what rho compares.
        signals: what EMA asks of query records; None where it is not made.
        checks: what was checked of the outputs themselves.
    """

    name: str
    truth: Truth | None
    log_odds: Float[np.ndarray, " asked"]
    at_resolution: Brought
    printed: bool
    compared: Compared
    signals: Signals | None
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, eq=False)
class Evidence:
    """What all models of an audit say, and what they were trained on.

    Attributes:
        trained: the models, by role.
        roles: their training sets, by role.
        pool: the records.
        query, calibration: the sets.
        min_accuracy: a model fits its data where it gets so much of them right.
    """

    trained: Mapping[str, Trained]
    roles: Roles
    pool: Pool
    query: Examples
    calibration: Examples
    min_accuracy: float
    _known: dict[str, Check] = field(default_factory=dict, repr=False)

    @property
    def queries(self) -> int:
        """How many records the query set has."""
        return len(self.query)

    def members(self, *roles: str) -> Bool[np.ndarray, "models asked"]:
        """Which query and holdout records the models of these roles were trained on."""
        asked = np.r_[self.pool.query, self.pool.holdout]
        none = np.zeros((0, len(self.pool.examples)), bool)
        return np.concatenate([none, *(row for role in roles for row in self.roles[role])])[:, asked]

    def log_odds(self, *roles: str) -> Float[np.ndarray, "models asked"]:
        """What the models of these roles say, in the same order."""
        return np.concatenate([self.trained[role].log_odds for role in roles])

    def once(self, name: str, make: Callable[[], Check]) -> Check:
        """A check that is the same for all targets, made for the first one."""
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]


def of_file(
    files: tuple[Outputs, ...], labels: tuple[Int[np.ndarray, " records"], ...], trained: Mapping[str, Trained]
) -> tuple[Float[np.ndarray, " asked"], Brought, Compared]:
    """A target's log-odds from its files on the query set and the holdout, if any, and what rho compares.

    Logits give log-odds as they are. Probabilities near 1 say little of log-odds: where a file holds them, those of all
    models go through probabilities rounded alike. Where one is rounded to 0 or 1 it counts as half a step away from it.
    """
    compared = _compared(files[0], labels[0], trained)
    if all(file.kind == "logits" for file in files):
        target = np.concatenate([_log_odds(*each) for each in zip(files, labels, strict=True)])
        return match_logits(target, *files), lambda odds: match_logits(odds, *files), compared
    step = max(map(_step, files))

    def rounded(confidences: np.ndarray) -> np.ndarray:
        for file in files:
            confidences = match_precision(confidences, file)
        return special.logit(np.clip(confidences.astype(np.float64), step / 2, 1 - step / 2))

    said = np.concatenate([confidence_of(*each) for each in zip(files, labels, strict=True)])
    return rounded(said), lambda odds: rounded(special.expit(odds.astype(np.float64)).astype(np.float32)), compared


def _compared(file: Outputs, labels: Int[np.ndarray, " n"], trained: Mapping[str, Trained]) -> Compared:
    own = confidence_of(file, labels)[None]
    models = [trained[role] for role in ("query", "calibration", "control")]
    if file.kind == "logits":
        query, calibration, controls = (match_logits(each.log_odds[:, : len(labels)], file) for each in models)
        return Compared(query, calibration, controls, match_logits(_log_odds(file, labels)[None], file), own)
    query, calibration, controls = (match_precision(each.confidences, file) for each in models)
    own = match_precision(own, file)
    return Compared(query, calibration, controls, own, own)


def _log_odds(file: Outputs, labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The log-odds (nats) of each record's own class that a file of logits gives, in float64.

    What was added to all logits of a record cancels, and nothing is lost near a probability of 1.
    """
    with np.errstate(over="ignore"):
        return log_odds(file.logits.astype(np.float64), labels)


def _step(file: Outputs) -> float:
    """Between two neighbouring probabilities of a file, near 1."""
    if file.kind == "logits":
        return 10.0**-MOST_DECIMALS
    return max(10.0**-MOST_DECIMALS, step_near(1.0, file.decimals, file.significant, file.dtype))

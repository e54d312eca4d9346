"""What the `ks` audit answers."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.ks.evidence import Truth
from jaxaudit.audits.ks.tests.test import Judgement
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import EMA
from jaxaudit.metrics.ks import Rho, Verdict
from jaxaudit.metrics.usage import Usage

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class TargetResult:
    """The answer for one target.

    Attributes:
        name: the target's name.
        truth: what is known of it; None for a file of outputs.
        finding: the verdict, by the first test that was asked for.
        judgements: what each test says, the deciding one first; rho is always among them.
        checks: everything that was checked, on the numbers that were compared.
        paper_rule: the paper's own verdict from one number, the median of rho.
        confidences: `float32[1, n]`, the target's probability of each query record's ground-truth class.
    """

    name: str
    truth: Truth | None
    finding: Finding
    judgements: tuple[Judgement, ...]
    checks: tuple[Check, ...]
    paper_rule: Verdict
    confidences: Float[np.ndarray, "1 n"]

    @property
    def verdict(self) -> str:
        """`forgotten`, `not forgotten` or `inconclusive`."""
        return self.finding.verdict

    @property
    def because(self) -> str:
        """What it rests on, in one line."""
        return "; ".join(self.finding.reasons)

    @property
    def method(self) -> str:
        """The name of the test that decided."""
        return self.judgements[0].test

    @property
    def rho(self) -> Rho:
        """The ratio over replicates, whatever decided."""
        return next(each.rho for each in self.judgements if each.rho is not None)

    @property
    def rho_verdict(self) -> str:
        """The verdict of rho's interval and its checks, whatever decided."""
        return next(each.finding.verdict for each in self.judgements if each.rho is not None)

    @property
    def controls(self) -> tuple[Rho, ...]:
        """rho of the models trained on the calibration and the whole query set, compared in the same way."""
        return next(each.controls for each in self.judgements if each.rho is not None)

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What each test of use says, the deciding one first."""
        return tuple(each.usage for each in self.judgements if each.usage is not None)

    @property
    def ema(self) -> tuple[EMA, ...]:
        """What EMA says with each replicate's calibration model; empty where it was not made."""
        return next((each.ema for each in self.judgements if each.ema), ())


@dataclass(frozen=True, eq=False)
class KSAudit:
    """The answers for all targets, and the shadow models' side of the evidence.

    Attributes:
        targets: one answer a target, in the order they were given.
        noise_floor: KS distances between query models that differ by their seed.
        query_confidences, calibration_confidences: `float32[replicates, n]`, in full precision.
        control_confidences: `float32[controls, n]`, of the models trained on both sets.
        labels: the query set's labels.
        level: confidence level of the intervals.
        models_per_batch: how many models were trained at the same time.
        shadow_log_odds: `float32[models, query and holdout records]` by role, of the models of the tests of use.
    """

    targets: tuple[TargetResult, ...]
    noise_floor: Float[np.ndarray, " pairs"]
    query_confidences: Float[np.ndarray, "replicates n"]
    calibration_confidences: Float[np.ndarray, "replicates n"]
    control_confidences: Float[np.ndarray, "controls n"]
    labels: np.ndarray
    level: float
    models_per_batch: int
    shadow_log_odds: dict[str, Float[np.ndarray, "models asked"]] = field(default_factory=dict)

    def plot(self, target: int = 0) -> "Figure":
        """Confidences of one target on two axes, and rho of all of them against 1, as a Matplotlib figure."""
        from jaxaudit.audits.ks.figure import plot_ks

        return plot_ks(self, target)

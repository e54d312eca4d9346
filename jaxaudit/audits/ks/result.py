"""What the `ks` audit answers."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float

from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import EMA
from jaxaudit.metrics.ks import Rho, Verdict
from jaxaudit.metrics.usage import Usage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Method = Literal["rho", "ema", "holdout", "shadow"]


@dataclass(frozen=True)
class Truth:
    """What a simulated target was trained on.

    Attributes:
        used_fraction: the share of the query records among its training data.
        records: the size of its training set.
        expected: the right verdict: `not forgotten` where any query record was used, else `forgotten`.
    """

    used_fraction: float
    records: int
    expected: Verdict


@dataclass(frozen=True, eq=False)
class TargetResult:
    """The answer for one target.

    Attributes:
        name: the target's name.
        truth: what is known of it; None for a file of outputs.
        rho: the ratio over replicates.
        verdict: `forgotten`, `not forgotten` or `inconclusive`, by `method`.
        because: why, in one sentence.
        paper_rule: the paper's own verdict from one number, the median of rho.
        checks: everything that was checked, on the numbers that were compared.
        controls: rho of the models trained on the calibration and the whole query set, compared in the same way.
        confidences: `float32[1, n]`, the target's probability of each query record's ground-truth class.
        method: what the verdict is by: the holdout test where there is a holdout, else the shadow test where shadow
            models were trained for it, else rho.
        rho_verdict: the verdict of rho's interval and its checks, whatever the method.
        rho_because: why.
        usage: what each test of use says, the verdict's own first.
        ema: what ensembled membership auditing says with each replicate's calibration model; empty where not asked.
    """

    name: str
    truth: Truth | None
    rho: Rho
    verdict: Verdict
    because: str
    paper_rule: Verdict
    checks: tuple[Check, ...]
    controls: tuple[Rho, ...]
    confidences: Float[np.ndarray, "1 n"]
    method: Method = "rho"
    rho_verdict: Verdict = "inconclusive"
    rho_because: str = ""
    usage: tuple[Usage, ...] = ()
    ema: tuple[EMA, ...] = ()


@dataclass(frozen=True, eq=False)
class KSAudit:
    """The answers for all targets, and the shadow models' side of the evidence.

    Attributes:
        targets: one answer a target, files first.
        noise_floor: KS distances between query models that differ by their seed.
        query_confidences, calibration_confidences: `float32[replicates, n]`, in full precision.
        control_confidences: `float32[controls, n]`, of the models trained on both sets.
        labels: the query set's labels.
        width: how many models were trained side by side.
        shadow_log_odds: `float32[models, query and holdout records]` by role, of the models of the tests of use.
    """

    targets: tuple[TargetResult, ...]
    noise_floor: Float[np.ndarray, " pairs"]
    query_confidences: Float[np.ndarray, "replicates n"]
    calibration_confidences: Float[np.ndarray, "replicates n"]
    control_confidences: Float[np.ndarray, "controls n"]
    labels: np.ndarray
    width: int
    shadow_log_odds: dict[str, Float[np.ndarray, "models asked"]] = field(default_factory=dict)

    def plot(self, target: int = 0) -> "Figure":
        """Confidences of one target on two axes, and rho of all of them against 1, as a Matplotlib figure."""
        from jaxaudit.plots.audits import plot_ks

        return plot_ks(self, target)

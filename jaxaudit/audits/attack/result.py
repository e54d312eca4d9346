"""The results of the `attack` audit."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.audits.attack.finding import find
from jaxaudit.audits.finding import Finding
from jaxaudit.metrics.attack import AttackMetrics, Correlation, correlation, strongest_attack

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class AttackResult:
    """How well one attack works; larger means more exposed.

    Attributes:
        name: the attack's, such as `distance`.
        metrics: over all attacks on all targets, with bootstrap intervals over targets.
        per_target: the share of attacks on each target that were right.
        correlation: of `per_target` with mean PDTP.
        scores: above 0 the attack answers `in`; one row per attacked model.
        meaning: what the attack does, in one sentence.
        source: the paper it is from.
    """

    name: str
    metrics: AttackMetrics
    per_target: Float[np.ndarray, " targets"]
    correlation: Correlation
    scores: Float[np.ndarray, "models targets"]
    meaning: str = ""
    source: str = ""


@dataclass(frozen=True, eq=False)
class AttackAudit:
    """The results of all attacks, and their context.

    Attributes:
        targets: indices of the attacked records among the candidates.
        truth: whether each attacked model was trained on each target.
        attacks: one result per attack.
        p_value: of "no attack is right more often than by guessing", see `better_than_guessing`.
        measurements: PDTP of each target in nats, one per measured iteration.
        train_accuracy: the attacked models' mean accuracy on their own half.
        test_accuracy: the same on the other half.
        guess_accuracy: the accuracy of guessing the commonest class of the candidates.
        level: confidence level of the intervals.
        candidates: records of the candidate set D.
        bins: equal bins of [0, 1] into which outputs were rounded; 0 for none.
        shadow_pairs: pairs of shadow models per target, each time they are drawn.
        models_per_batch: models trained at the same time.
    """

    targets: Int[np.ndarray, " targets"]
    truth: Bool[np.ndarray, "models targets"]
    attacks: tuple[AttackResult, ...]
    p_value: float
    measurements: Float[np.ndarray, "measurements targets"]
    train_accuracy: float
    test_accuracy: float
    guess_accuracy: float
    level: float
    candidates: int
    bins: int
    shadow_pairs: int
    models_per_batch: int

    @cached_property
    def finding(self) -> Finding:
        """What the audit concludes over all attacks."""
        return find(self)

    @property
    def pdtp(self) -> Float[np.ndarray, " targets"]:
        """Mean PDTP of each target, nats."""
        return self.measurements.mean(axis=0)

    @property
    def strongest(self) -> tuple[Float[np.ndarray, " targets"], Int[np.ndarray, " targets"]]:
        """The largest per-target accuracy over attacks, and which attack has it (figure 2 of the paper)."""
        return strongest_attack(np.stack([attack.per_target for attack in self.attacks]))

    def plot(self) -> "Figure":
        """Attack accuracy against PDTP, and ROC curves on two kinds of axes, as a Matplotlib figure."""
        from jaxaudit.audits.attack.figure import plot_attack

        return plot_attack(self)

    @property
    def strongest_correlation(self) -> Correlation:
        """The correlation of the largest per-target accuracy with mean PDTP (0.8936 for the paper's network)."""
        return correlation(self.strongest[0], self.pdtp)

    def share_of_risky_above(self, accuracy: float) -> float | None:
        """The share of targets with a mean PDTP above 1 for which some attack has a higher accuracy than this.

        None if there is no such target.
        """
        risky = self.pdtp > 1
        return float((self.strongest[0][risky] > accuracy).mean()) if risky.any() else None

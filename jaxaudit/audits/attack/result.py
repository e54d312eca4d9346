"""What the `attack` audit answers."""

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
    """How well one attack does; larger means more exposed.

    Attributes:
        name: the attack's, such as `distance`.
        metrics: over all attacks on all targets, with bootstrap intervals that draw whole targets.
        per_target: the share of attacks on each target that were right.
        correlation: of `per_target` with mean PDTP.
        scores: above 0 the attack says `in`; a row an attacked model.
        meaning: what the attack does, in a sentence, and
        source: whose it is.
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
    """The answers of all attacks, and what they are compared with.

    Attributes:
        targets: indices of the attacked records among the candidates.
        truth: whether each attacked model was trained on each target.
        attacks: one answer an attack.
        measurements: PDTP of each target in nats, one a measured iteration.
        train_accuracy: the attacked models' mean accuracy on their own half, and
        test_accuracy: on the other.
        guess_accuracy: what guessing the commonest class of the candidates gets.
        level: confidence level of the intervals.
        candidates: records of the candidate set D.
        bins: equal bins of [0, 1] that outputs were put into; 0 for none.
        shadow_pairs: pairs of shadow models a target, each time they are drawn.
        models_per_batch: how many models were trained side by side.
    """

    targets: Int[np.ndarray, " targets"]
    truth: Bool[np.ndarray, "models targets"]
    attacks: tuple[AttackResult, ...]
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
        """Who is found out against PDTP, and operating characteristics on two axes, as a Matplotlib figure."""
        from jaxaudit.audits.attack.figure import plot_attack

        return plot_attack(self)

    @property
    def strongest_correlation(self) -> Correlation:
        """Of the largest per-target accuracy with mean PDTP (the paper, on its network: 0.8936)."""
        return correlation(self.strongest[0], self.pdtp)

    def share_of_risky_above(self, accuracy: float) -> float | None:
        """Of the targets with a mean PDTP above 1, the share that some attack is right about more often than this.

        None where there is no such target.
        """
        risky = self.pdtp > 1
        return float((self.strongest[0][risky] > accuracy).mean()) if risky.any() else None

"""What the `attack` audit answers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.metrics.attack import AttackMetrics, Correlation, correlation, strongest_attack

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW_TARGETS = 30


@dataclass(frozen=True, eq=False)
class AttackResult:
    """How well one attack does; larger means more exposed.

    Attributes:
        name: `untargeted`, `distance` or `frequency`.
        metrics: over all attacks on all targets, with bootstrap intervals that draw whole targets.
        per_target: the share of attacks on each target that were right.
        correlation: of `per_target` with mean PDTP.
        scores: above 0 the attack says `in`; a row an attacked model.
    """

    name: str
    metrics: AttackMetrics
    per_target: Float[np.ndarray, " targets"]
    correlation: Correlation
    scores: Float[np.ndarray, "models targets"]


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
        candidates: records of the candidate set D.
        bins: equal bins of [0, 1] that outputs were put into; 0 for none.
        shadows: pairs of shadow models a target, each time they are drawn.
        width: how many models were trained side by side.
    """

    targets: Int[np.ndarray, " targets"]
    truth: Bool[np.ndarray, "models targets"]
    attacks: tuple[AttackResult, ...]
    measurements: Float[np.ndarray, "measurements targets"]
    train_accuracy: float
    test_accuracy: float
    candidates: int
    bins: int
    shadows: int
    width: int

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
        from jaxaudit.plots.audits import plot_attack

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


def caveats(audit: AttackAudit) -> tuple[str, ...]:
    """What the numbers do not tell, a sentence each."""
    found = []
    models, targets = audit.truth.shape
    out = int((~audit.truth).sum())
    rates = audit.attacks[0].metrics.true_positive_rates
    unresolved = [rate.limit for rate in rates if not rate.resolvable]
    if unresolved:
        limits = " and ".join(f"{100 * limit:g}%" for limit in unresolved)
        found.append(
            f"a true positive rate at {limits} false positives is not resolvable: it takes "
            f"{round(1 / min(unresolved)):,} attacks on non-members, and there were {out:,}; what is given is the rate "
            "at no false positive at all."
        )
    if targets < 3:
        found.append(f"{targets} targets have no correlation.")
    else:
        # Two standard errors of a correlation of independent normal pairs.
        by_chance = min(1.0, 2 / np.sqrt(targets))
        found.append(
            f"a correlation over {targets} targets is up to {by_chance:.2f} in size by chance alone (19 times of 20)"
            + (", so it says little." if targets < FEW_TARGETS else ".")
        )
    spread = 0.5 / np.sqrt(models)
    found.append(
        f"per-target accuracies are of {models} attacks each: an attack at chance is within {2 * spread:.2f} of 0.5 on "
        "most targets, and the largest over several attacks lies above 0.5 where all of them guess."
    )
    if not np.isfinite(audit.pdtp).all():
        found.append("some PDTP are infinite (outputs of 0 without bins), so there is no correlation with them.")
    if max(attack.metrics.accuracy.high for attack in audit.attacks) < 0.55:
        found.append("attacks this weak do not prove that a better one would fail.")
    return tuple(found)

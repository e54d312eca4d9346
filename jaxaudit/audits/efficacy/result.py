"""The results of the `efficacy` audit."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxaudit.audits.efficacy.finding import find
from jaxaudit.audits.finding import Finding
from jaxaudit.kernels.likelihoods import CATEGORICAL, Likelihood
from jaxaudit.metrics.efficacy import MeasuredEfficacy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class JudgedWeights(NamedTuple):
    """How much one set of weights exposes of the records.

    Attributes:
        name: their name.
        measured: their efficacy: in total, per layer, and per record.
        accuracy: share of the records that are classified as labelled, or of their labels if each has several; None
            where labels are real numbers.
        mean_log_prob: mean log-probability of the label, in nats.
        conversion_error: the largest distance of a record's outputs from those that the network's own framework
            computes, relative to the root mean square norm of those; None where JAX is what it computes with.
        true_norms: of each record, the squared gradient norm in expectation over the model's own outputs, whose mean
            is the trace of the true Fisher information; None if it was not asked for.
    """

    name: str
    measured: MeasuredEfficacy
    accuracy: float | None
    mean_log_prob: float
    conversion_error: float | None = None
    true_norms: np.ndarray | None = None

    @property
    def true_information(self) -> float | None:
        """The trace of the true Fisher information."""
        return None if self.true_norms is None else float(np.mean(self.true_norms))


@dataclass(frozen=True, eq=False)
class EfficacyAudit:
    """The judged weights and the references.

    Attributes:
        judged: the weights being judged.
        references: other weights of the same network, such as untrained, original or retrained ones.
        labels: of the records, in their order.
        classes: the number of outputs of the network.
        draws: whether the network has layers that are random in training; they were off.
        framework: what the network is written in: `flax.nnx`, `flax.linen`, `torch` or `keras`.
        likelihood: what its outputs mean.
    """

    judged: JudgedWeights
    references: tuple[JudgedWeights, ...]
    labels: np.ndarray
    classes: int
    draws: bool
    framework: str = "jax"
    likelihood: Likelihood = CATEGORICAL

    @cached_property
    def finding(self) -> Finding:
        """What was measured, and how far it can be interpreted."""
        return find(self)

    def plot(self) -> "Figure":
        """Efficacy of all weights, alone and against its bound, as a Matplotlib figure."""
        from jaxaudit.audits.efficacy.figure import plot_efficacy

        return plot_efficacy(self)

    @property
    def models(self) -> tuple[JudgedWeights, ...]:
        """The judged weights, then the references."""
        return (self.judged, *self.references)

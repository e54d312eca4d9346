"""The interface of a membership attack on models that were trained on random halves."""

from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.ensemble import Progress


class AttackInputs(NamedTuple):
    """The target records, and the outputs (log-probabilities, nats) of the attacked models on them.

    Inputs are each divided by their largest absolute value. Probabilities are rounded into `bins` equal bins of [0, 1]
    before any use; 0 for none.
    """

    outputs: Float[np.ndarray, "models targets classes"]
    inputs: Float[np.ndarray, "targets features"]
    labels: Int[np.ndarray, " targets"]
    bins: int


class PairedShadows(NamedTuple):
    """Outputs (log-probabilities, nats) on each target record, of shadow models trained with it and without it.

    The two models of a pair differ only by the target: they have the same key and the same order of minibatches.
    """

    with_target: Float[np.ndarray, "shadows targets classes"]
    without_target: Float[np.ndarray, "shadows targets classes"]


class PooledShadows(NamedTuple):
    """Shadow models trained on random halves of the candidates, and their outputs (log-probabilities, nats) on them.

    `inputs` and `labels` are the candidates' features and classes, as in `AttackInputs`.
    """

    outputs: Float[np.ndarray, "shadows candidates classes"]
    membership: Bool[np.ndarray, "shadows candidates"]
    inputs: Float[np.ndarray, "candidates features"]
    labels: Int[np.ndarray, " candidates"]


Shadows = PairedShadows | PooledShadows


@runtime_checkable
class Attack(Protocol):
    """A membership attack: computes one score per record from outputs, labels and shadow models.

    Attributes:
        name: letters, digits and hyphens.
        meaning: what the attack does, in one sentence.
        source: the paper that proposes it.
        shadows: the kind of shadow models that it learns from: `PairedShadows` or `PooledShadows`.
        needs_bins: whether outputs must be binned.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    source: ClassVar[str]
    shadows: ClassVar[Literal["paired", "pooled"]]
    needs_bins: ClassVar[bool]

    def scores(
        self, key: Key[Array, ""], inputs: AttackInputs, shadows: Shadows, progress: Progress | None
    ) -> Float[np.ndarray, "models targets"]:
        """The score of every target under every attacked model: above 0 the attack answers `in`.

        Args:
            key: random key of the attack.
            inputs: the target records, and the attacked models' outputs on them.
            shadows: shadow models of the kind in the attribute `shadows`.
            progress: called as learning proceeds; None: not called.
        """
        ...

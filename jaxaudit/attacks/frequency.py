"""The frequency-based targeted attack: how many models trained with, or without, the record give this output?"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Array, Float, Key

from jaxaudit.attacks.attack import Asked, PairedShadows, PooledShadows
from jaxaudit.attacks.evidence import check_shadows, total
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError
from jaxaudit.kernels.binning import as_log_probs, bin_indices


def frequency_scores(
    target_log_probs: Float[Array | np.ndarray, "targets classes"],
    in_log_probs: Float[Array | np.ndarray, "shadows targets classes"],
    out_log_probs: Float[Array | np.ndarray, "shadows targets classes"],
    *,
    bins: int = 100,
    smoothing: float = 1.0,
) -> Float[np.ndarray, " targets"]:
    """log of the product over classes of o_in / o_out, of every target: above 0 the attack answers `in`.

    Long, Bindschaedler & Gunter (2017), section 5.3. o_in of a class counts the shadow models trained with the target
    whose probability of that class falls in the same bin as the attacked model's; o_out those trained without it.

    The paper does not specify counts of 0: `smoothing` is added to every count. With `smoothing=0`, a class with both
    counts 0 adds nothing; one with only o_out = 0 gives `in` (infinity), one with only o_in = 0 gives `out` (minus
    infinity). If both occur, the score is 0. Never NaN.

    Args:
        target_log_probs: of the attacked model at each target, nats.
        in_log_probs: of shadow models trained with the target, one row per model; the paper has 5.
        out_log_probs: of shadow models with the same training sets without the target.
        bins: equal bins of [0, 1], at least 1.
        smoothing: added to every count, at least 0.

    Raises:
        InputError: shapes disagree, there is no shadow, an output is NaN or above 0, `bins` is below 1 or `smoothing`
            below 0.

    >>> q = np.log([[0.915, 0.085]])
    >>> shadows_in, shadows_out = np.log([[[0.911, 0.089]]]), np.log([[[0.5, 0.5]]])
    >>> frequency_scores(q, shadows_in, shadows_out).round(3)  # log (2/1 * 2/1)
    array([1.386])
    """
    check_shadows(target_log_probs, in_log_probs, out_log_probs)
    if not 0 <= smoothing < np.inf:
        raise InputError(f"smoothing must be a number of at least 0; got {smoothing}.")
    place = bin_indices(as_log_probs(target_log_probs, "the attacked model"), bins)
    places_in = bin_indices(as_log_probs(in_log_probs, "shadow models trained with the target"), bins)
    places_out = bin_indices(as_log_probs(out_log_probs, "shadow models trained without it"), bins)
    return total((places_in == place).sum(axis=0) + smoothing, (places_out == place).sum(axis=0) + smoothing)


@dataclass(frozen=True)
class Frequency:
    """`frequency_scores` as an attack; see `jaxaudit.attacks.Attack`."""

    name: ClassVar[str] = "frequency"
    meaning: ClassVar[str] = (
        "Answers `in` if such outputs are more frequent among models trained with the record than without it."
    )
    source: ClassVar[str] = "Long, Bindschaedler & Gunter 2017"
    shadows: ClassVar[Literal["paired", "pooled"]] = "paired"
    needs_bins: ClassVar[bool] = True

    def scores(
        self, key: Key[Array, ""], asked: Asked, shadows: PairedShadows | PooledShadows, progress: Progress | None
    ) -> Float[np.ndarray, "models targets"]:
        """The log-ratio of counts of every target under every attacked model."""
        return np.stack([frequency_scores(q, *shadows[:2], bins=asked.bins) for q in asked.outputs])

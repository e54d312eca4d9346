"""The distance-based targeted attack: is the output nearer to that of models trained with the record, or without?"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Array, Float, Key

from jaxaudit.attacks.attack import Asked, PairedShadows, PooledShadows
from jaxaudit.attacks.evidence import check_shadows, total
from jaxaudit.ensemble import Progress
from jaxaudit.kernels.binning import as_log_probs, binned


def distance_scores(
    target_log_probs: Float[Array | np.ndarray, "targets classes"],
    in_log_probs: Float[Array | np.ndarray, "shadows targets classes"],
    out_log_probs: Float[Array | np.ndarray, "shadows targets classes"],
    *,
    bins: int = 100,
) -> Float[np.ndarray, " targets"]:
    """KL(q || p_out) - KL(q || p_in) of every target, in nats: above 0 the attack answers `in`.

    Long, Bindschaedler & Gunter (2017), section 5.3. q is the attacked model's output on the target record; p_in and
    p_out are the mean probabilities over shadow models trained with it and without it. All outputs are binned, as
    the classifier publishes them; bin centres are not normalised again (the paper does not specify this).

    With `bins=0` probabilities may be 0. A class with q = 0, or with p_in = p_out = 0, adds nothing. A class with only
    p_out = 0 gives `in` (infinity), one with only p_in = 0 gives `out` (minus infinity). If both occur, the score is 0:
    neither set of shadow models could have given q. Never NaN.

    Args:
        target_log_probs: of the attacked model at each target, nats.
        in_log_probs: of shadow models trained with the target, one row per model; the paper has 5.
        out_log_probs: of shadow models with the same training sets without the target.
        bins: equal bins of [0, 1]; 0: no bins.

    Raises:
        InputError: shapes disagree, there is no shadow, an output is NaN or above 0, or `bins` is negative.

    >>> q = np.log([[0.9, 0.1]])
    >>> distance_scores(q, np.log([[[0.9, 0.1]]]), np.log([[[0.5, 0.5]]]), bins=0).round(3)
    array([0.368])
    """
    check_shadows(target_log_probs, in_log_probs, out_log_probs)
    q = np.exp(binned(as_log_probs(target_log_probs, "the attacked model"), bins))
    p_in = np.exp(binned(as_log_probs(in_log_probs, "shadow models trained with the target"), bins)).mean(axis=0)
    p_out = np.exp(binned(as_log_probs(out_log_probs, "shadow models trained without it"), bins)).mean(axis=0)
    # The entropy of q is in both divergences.
    return total(p_in, p_out, q)


@dataclass(frozen=True)
class Distance:
    """`distance_scores` as an attack; see `jaxaudit.attacks.Attack`."""

    name: ClassVar[str] = "distance"
    meaning: ClassVar[str] = (
        "Answers `in` if outputs are nearer to those of models trained with the record than without it."
    )
    source: ClassVar[str] = "Long, Bindschaedler & Gunter 2017"
    shadows: ClassVar[Literal["paired", "pooled"]] = "paired"
    needs_bins: ClassVar[bool] = False

    def scores(
        self, key: Key[Array, ""], asked: Asked, shadows: PairedShadows | PooledShadows, progress: Progress | None
    ) -> Float[np.ndarray, "models targets"]:
        """KL(q || p_out) - KL(q || p_in) of every target under every attacked model, nats."""
        return np.stack([distance_scores(q, *shadows[:2], bins=asked.bins) for q in asked.outputs])

"""The two targeted attacks of Long, Bindschaedler & Gunter (2017), with pairs of models that differ in one record.

`Distance`: is the output nearer to that of models trained with the record, or without it? `Frequency`: how many models
trained with the record, and without it, give this output?
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Array, Float, Key

from jaxaudit.attacks.attack import AttackInputs, Shadows
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError
from jaxaudit.kernels.binning import as_log_probs, bin_indices, binned

Outputs = Float[Array | np.ndarray, "targets classes"]
OfShadows = Float[Array | np.ndarray, "shadows targets classes"]


def distance_scores(
    target_log_probs: Outputs, in_log_probs: OfShadows, out_log_probs: OfShadows, *, bins: int = 100
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
    _check_shadows(target_log_probs, in_log_probs, out_log_probs)
    q = np.exp(binned(as_log_probs(target_log_probs, "the attacked model"), bins))
    p_in = np.exp(binned(as_log_probs(in_log_probs, "shadow models trained with the target"), bins)).mean(axis=0)
    p_out = np.exp(binned(as_log_probs(out_log_probs, "shadow models trained without it"), bins)).mean(axis=0)
    # The entropy of q is in both divergences.
    return _total(p_in, p_out, q)


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
        self, key: Key[Array, ""], inputs: AttackInputs, shadows: Shadows, progress: Progress | None
    ) -> Float[np.ndarray, "models targets"]:
        """KL(q || p_out) - KL(q || p_in) of every target under every attacked model, nats: above 0, a member.

        q is the attacked model's output on the target. p_in and p_out are mean probabilities over `shadows`, pairs of
        models with and without the target: see `distance_scores`. `key` and `progress` are not used.
        """
        return np.stack([distance_scores(q, *shadows[:2], bins=inputs.bins) for q in inputs.outputs])


def frequency_scores(
    target_log_probs: Outputs,
    in_log_probs: OfShadows,
    out_log_probs: OfShadows,
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
        target_log_probs, in_log_probs, out_log_probs: as for `distance_scores`.
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
    _check_shadows(target_log_probs, in_log_probs, out_log_probs)
    if not 0 <= smoothing < np.inf:
        raise InputError(f"smoothing must be a number of at least 0; got {smoothing}.")
    index = bin_indices(as_log_probs(target_log_probs, "the attacked model"), bins)
    bins_in = bin_indices(as_log_probs(in_log_probs, "shadow models trained with the target"), bins)
    bins_out = bin_indices(as_log_probs(out_log_probs, "shadow models trained without it"), bins)
    return _total((bins_in == index).sum(axis=0) + smoothing, (bins_out == index).sum(axis=0) + smoothing)


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
        self, key: Key[Array, ""], inputs: AttackInputs, shadows: Shadows, progress: Progress | None
    ) -> Float[np.ndarray, "models targets"]:
        """The log-ratio of counts of every target under every attacked model: above 0, a member.

        The counts are of models in `shadows`, pairs with and without the target, whose output falls in the same bin as
        the attacked model's: see `frequency_scores`. `key` and `progress` are not used.
        """
        return np.stack([frequency_scores(q, *shadows[:2], bins=inputs.bins) for q in inputs.outputs])


def _total(
    of_in: Float[np.ndarray, "targets classes"],
    of_out: Float[np.ndarray, "targets classes"],
    weights: Float[np.ndarray, "targets classes"] | None = None,
) -> Float[np.ndarray, " targets"]:
    """The sum over classes of weight * log(of_in / of_out), defined for zeros, too.

    A class of weight 0, or with 0 on both sides, adds nothing; infinities of both signs cancel.

    >>> _total(np.array([[2.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([0.69314718, 0.        ])
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # logarithms of 0, differences of two of them
        terms = np.log(of_in) - np.log(of_out)
        if weights is not None:
            terms *= weights
    terms[np.isnan(terms)] = 0.0
    opposed = (terms == np.inf).any(axis=1) & (terms == -np.inf).any(axis=1)
    terms[opposed] = 0.0
    return terms.sum(axis=1)


def _check_shadows(target: Outputs, of_in: OfShadows, of_out: OfShadows) -> None:
    """Refuses shadow outputs that do not fit the target's."""
    if of_in.shape != of_out.shape or of_in.shape[1:] != target.shape or len(of_in) == 0:
        raise InputError(
            f"an attack on outputs of shape {tuple(target.shape)} needs as many shadow models trained with each target "
            f"as without it, at least one, each with outputs of that shape; got {tuple(of_in.shape)} and "
            f"{tuple(of_out.shape)}."
        )

"""Rounds a classifier's probabilities to the centres of equal bins of [0, 1]."""

import numpy as np
from jaxtyping import Array, Float, Int

from jaxaudit.errors import InputError

EDGE = 1e-6
"""A probability within this relative distance below a bin's edge counts as on the edge (float32 precision)."""

MOST_BINS = 1_000_000
"""The largest number of bins; narrower bins would be smaller than the tolerance at their edges."""

ABOVE_ONE = 1e-4
"""The largest log-probability (nats) above 0 that is accepted as rounding."""


def as_log_probs(log_probs: Float[Array | np.ndarray, "..."], of: str) -> Float[np.ndarray, "..."]:
    """Converts log-probabilities (nats) to float64 on the host; minus infinity, a probability of 0, is allowed.

    Raises:
        InputError: a value is NaN, or above 0 by more than rounding.
    """
    values = np.asarray(log_probs, np.float64)
    largest = values.max(initial=-np.inf)  # NaN where any is
    if np.isnan(largest):
        raise InputError(
            f"{int(np.isnan(values).sum())} outputs of {of} are NaN; did its training diverge? Try a smaller learning "
            "rate."
        )
    if largest > ABOVE_ONE:
        raise InputError(
            f"outputs of {of} are above 0, up to {largest:.3g}, so they are not log-probabilities; were probabilities "
            "or logits given? Take the logarithm, or the log-softmax, first."
        )
    return values


def check_bins(bins: int) -> None:
    """Refuses (`InputError`) more than a million bins, which the precision of probabilities does not allow."""
    if bins > MOST_BINS:
        raise InputError(
            f"probabilities cannot be resolved to 1 / {bins}: give at most {MOST_BINS:,} bins, usually 100."
        )


def bin_indices(log_probs: Float[np.ndarray, "*shape"], bins: int) -> Int[np.ndarray, "*shape"]:
    """Which of `bins` equal bins of [0, 1] each probability falls in: bin i is [i / bins, (i + 1) / bins).

    A probability of 1 is in the last bin, and one within a relative 1e-6 below an edge is on the edge.

    >>> bin_indices(np.log([0.001, 0.29, 0.999, 1.0]), 100)
    array([ 0, 29, 99, 99])
    """
    if bins < 1:
        raise InputError(f"probabilities cannot be rounded into {bins} bins: give at least 1 bin, usually 100.")
    check_bins(bins)
    places = np.exp(log_probs)
    places *= bins * (1 + EDGE)
    return np.minimum(places.astype(np.intp), bins - 1)


def binned(log_probs: Float[np.ndarray, "*shape"], bins: int) -> Float[np.ndarray, "*shape"]:
    """Each probability replaced by the centre of its bin, as log-probabilities (nats); unchanged where `bins` is 0.

    A row of centres does not sum to 1.

    >>> np.exp(binned(np.log([0.001, 0.29, 1.0]), 100)).round(3)
    array([0.005, 0.295, 0.995])
    """
    if bins == 0:
        return log_probs
    return np.log((bin_indices(log_probs, bins) + 0.5) / bins)

"""Probabilities rounded to bins, and bounds on differential training privacy (DTP) over all inputs."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Float, Int

from jaxaudit.errors import InputError, check_ranges, check_shapes

EDGE = 1e-6
"""A probability within this relative distance below a bin's edge counts as on the edge (float32 precision)."""

MOST_BINS = 1_000_000
"""The largest number of bins; narrower bins would be smaller than the tolerance at their edges."""

ABOVE_ONE = 1e-4
"""The largest log-probability (nats) above 0 that is accepted as rounding."""


def as_log_probs(log_probs: Float[Array | np.ndarray, "..."], of: str) -> Float[np.ndarray, "..."]:
    """Log-probabilities (nats) in float64 on the host; an `InputError` for NaN, or above 0 by more than rounding."""
    values = np.asarray(log_probs, np.float64)
    largest = values.max(initial=-np.inf)  # NaN where any is
    if not largest <= ABOVE_ONE:
        raise InputError(
            f"outputs of {of} are no log-probabilities, but up to {largest:.3g}: did training diverge, or were "
            "probabilities or logits given? Lower the learning rate; or take the logarithm, or the log-softmax, first."
        )
    return values


def bin_indices(log_probs: Float[np.ndarray, "*shape"], bins: int) -> Int[np.ndarray, "*shape"]:
    """Which of `bins` equal bins of [0, 1] each probability falls in: bin i is [i / bins, (i + 1) / bins).

    A probability of 1 is in the last bin, and one within a relative 1e-6 below an edge is on the edge.

    >>> bin_indices(np.log([0.001, 0.29, 0.999, 1.0]), 100)
    array([ 0, 29, 99, 99])
    """
    check_ranges(f"[1, {MOST_BINS}]", bins=bins)
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


def dtp_bound(pdtp: Float[Array | np.ndarray, " records"], delta: float) -> Float[np.ndarray, " records"]:
    """An upper bound of DTP, in nats, from PDTP: max(PDTP, log delta) (theorem 6.2).

    DTP is the largest change of any output, on any input, by leaving a record out of training; PDTP is that change on
    the record's own input. The algorithm must be `delta`-training stable (definition 6.1): leaving a record out changes
    no probability by a larger factor than `delta`, or than the probability of the record's class on its own input, if
    that changes by more. PDTP must be exact (`bins=0`), and of those outputs. Of this package's classifiers, which
    normalise, only Bayes inference and a single random tree are stable: for others use `log_odds_dtp_bound`.

    >>> dtp_bound(np.array([0.1, 2.0]), 1.5).round(3)
    array([0.405, 2.   ])
    """
    values = np.asarray(pdtp, np.float64)
    check_ranges("[1, inf]", delta=delta)
    check_ranges("[0, inf]", pdtp=values)
    return np.maximum(values, np.log(delta))


def log_odds_dtp_bound(
    with_record: Float[Array | np.ndarray, "records classes"],
    without_record: Float[Array | np.ndarray, "records classes"],
    labels: Int[Array | np.ndarray, " records"],
    delta: float = 1.0,
) -> Float[np.ndarray, " records"]:
    """An upper bound of DTP, in nats, for normalised outputs: max(R(x_t), log delta); at most 2 PDTP if delta is 1.

    R(x_t) is the change of the log-odds of y_t, the record's own class, on its own input. Not in the paper. It holds
    for naive Bayes over categorical columns, with `smoothed_naive_bayes_delta`, and with `delta=1` for the normalised
    geometric mean of smoothed random trees. Infinite if y_t has no other member.

    Why: removing t changes the unnormalised outputs of all classes but y_t by one common factor, so every posterior at
    x changes by a factor of at most exp |R(x)|. Each column, or tree, adds most to R where x agrees with x_t, so R(x)
    <= R(x_t); and stability of the unnormalised outputs gives -R(x) <= max(log delta, R(x_t)).

    The log-probabilities at x_t, in nats and not binned, are of the models trained on all records and without t.

    >>> with_record, without_record = np.log([[0.8, 0.2]]), np.log([[0.6, 0.4]])
    >>> log_odds_dtp_bound(with_record, without_record, np.array([0])).round(3)  # log (0.8 / 0.2) / (0.6 / 0.4)
    array([0.981])
    """
    shape = with_record.shape
    own_class = np.asarray(labels)[:, None]
    check_shapes(shape, without_record=without_record)
    check_shapes(shape[:1], labels=labels)
    check_ranges(f"[0, {shape[1]})", labels=labels)
    is_own = np.arange(shape[1]) == own_class

    def log_odds(outputs: Array | np.ndarray) -> Float[np.ndarray, " records"]:
        values = np.asarray(outputs, np.float64)
        of_other_classes = np.logaddexp.reduce(np.where(is_own, -np.inf, values), axis=1)
        return np.take_along_axis(values, own_class, axis=1)[:, 0] - of_other_classes

    with np.errstate(invalid="ignore"):  # a class that is certain, or that nothing is left of
        change = np.abs(log_odds(with_record) - log_odds(without_record))
    return dtp_bound(np.where(np.isnan(change), np.inf, change), delta)


def smoothed_naive_bayes_delta(smallest_class: int, category_counts: Sequence[int], smoothing: float) -> float:
    """The delta of naive Bayes for `log_odds_dtp_bound`: bounds the increase of log-odds of t's class without t.

    The product over columns of (n_min + s v) / (n_min - 1 + s v), for v categories and any smoothing s above 0: without
    t, the probability in t's class of a value that t does not have grows by at most that factor. Not in the paper,
    whose constant is for the joint, for s = 1, and larger: 2.90 against 1.03 for the 8 categorical columns of Adult and
    250 of 1,000 records in the smallest class.

    Raises:
        InputError: no record in the smallest class, no column, a numeric column (a count of 0), or no smoothing.

    >>> smoothed_naive_bayes_delta(10, (2, 2, 3), 1.0)
    1.28...
    """
    check_ranges(
        "[1, inf)", smallest_class=smallest_class, columns=len(category_counts), category_counts=category_counts
    )
    check_ranges("(0, inf]", smoothing=smoothing)
    sizes = smallest_class + smoothing * np.asarray(category_counts, np.float64)
    return float(np.prod(sizes / (sizes - 1)))

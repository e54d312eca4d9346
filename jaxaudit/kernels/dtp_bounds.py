"""Bounds of DTP: how much removing a record can change any output on any input, from the change at its own input.

Theorem 6.2 of Long, Bindschaedler & Gunter (2017), and bounds that hold instead for the normalised outputs of naive
Bayes and random trees. `experiments/stability.py` lists which claims of the paper hold; tests try them by brute force.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Float, Int

from jaxaudit.errors import InputError


def dtp_bound(pdtp: Float[Array | np.ndarray, " records"], delta: float) -> Float[np.ndarray, " records"]:
    """An upper bound of DTP, in nats, from PDTP: max(PDTP, log delta) (theorem 6.2).

    DTP is the largest change of any output, on any input, by leaving a record out of training. PDTP is that change on
    the record's own input. The algorithm must be `delta`-training stable (definition 6.1): leaving a record out changes
    no probability by a larger factor than `delta`, or than the probability of the record's class on its own input, if
    that changes by more. It must be so in the outputs that PDTP was measured with, and PDTP must be exact (`bins=0`).
    Classifiers of this package give normalised probabilities. In these, only Bayes inference and a single random tree
    are stable: for the other algorithms use `log_odds_dtp_bound`.

    Raises:
        InputError: `delta` is below 1, or a PDTP is negative or NaN.

    >>> dtp_bound(np.array([0.1, 2.0]), 1.5).round(3)
    array([0.405, 2.   ])
    """
    values = np.asarray(pdtp, np.float64)
    if not delta >= 1 or not (values >= 0).all():
        raise InputError(
            f"a bound on DTP needs PDTP of at least 0 and a delta of at least 1; got delta {delta} and PDTP down to "
            f"{values.min(initial=np.inf)}; PDTP is in nats, delta is a factor."
        )
    return np.maximum(values, np.log(delta))


def log_odds_dtp_bound(
    with_record: Float[Array | np.ndarray, "records classes"],
    without_record: Float[Array | np.ndarray, "records classes"],
    labels: Int[Array | np.ndarray, " records"],
    delta: float = 1.0,
) -> Float[np.ndarray, " records"]:
    """An upper bound of DTP, in nats, for normalised outputs: max(R(x_t), log delta); at most 2 PDTP if delta is 1.

    R(x_t) is the change of the log-odds of y_t, the record's own class, on its own input. The proof is that of
    `posterior_dtp_bound` (`experiments/stability.py`) without the last step. Not in the paper. It holds for naive Bayes
    over categorical columns, with `smoothed_naive_bayes_delta`, and for the geometric mean of random trees, with any
    smoothing and `delta=1`. Infinite if y_t has no other member.

    The log-probabilities at x_t, in nats and not binned, are of the models trained on all records and without t;
    `labels` has y_t of each record.

    Raises:
        InputError: shapes disagree, a label is not a class, or `delta` is below 1.

    >>> with_record, without_record = np.log([[0.8, 0.2]]), np.log([[0.6, 0.4]])
    >>> log_odds_dtp_bound(with_record, without_record, np.array([0])).round(3)  # log (0.8 / 0.2) / (0.6 / 0.4)
    array([0.981])
    """
    shape = with_record.shape
    own_class = np.asarray(labels)[:, None]
    if (
        without_record.shape != shape
        or len(own_class) != shape[0]
        or not ((own_class >= 0) & (own_class < shape[1])).all()
    ):
        raise InputError(
            f"a bound on DTP needs outputs of the same shape; got {tuple(shape)} and {tuple(without_record.shape)}, "
            f"and a label below {shape[1]} of each record, got {len(own_class)}."
        )
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

    The product over columns of (n_min + s v) / (n_min - 1 + s v), for v categories and any smoothing s above 0. Not in
    the paper, whose constant is for the joint, for s = 1, and larger: 2.90 against 1.03 for the 8 categorical columns
    of Adult and 250 of 1,000 records in the smallest class.

    Why: without t, the probability in t's class of a value that t does not have grows by a factor of
    (n_y + s v) / (n_y - 1 + s v). The class's prior decreases. Nothing else increases the odds of t's class.

    Raises:
        InputError: no record in the smallest class, no column, a numeric column (a count of 0), or no smoothing.

    >>> smoothed_naive_bayes_delta(10, (2, 2, 3), 1.0)
    1.28...
    """
    if smallest_class < 1 or not category_counts or min(category_counts) < 1 or not smoothing > 0:
        raise InputError(
            f"no stability constant for {smallest_class} records in the smallest class, category counts "
            f"{tuple(category_counts)} and smoothing {smoothing}: it needs a record, only categorical columns and "
            "smoothing above 0."
        )
    sizes = smallest_class + smoothing * np.asarray(category_counts, np.float64)
    return float(np.prod(sizes / (sizes - 1)))

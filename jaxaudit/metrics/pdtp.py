"""Differential training privacy (DTP): how far one training record moves outputs; PDTP, at its own input.

Long, Bindschaedler & Gunter (2017), "Towards Measuring Membership Privacy", section 4. On the host, in float64.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.kernels.dtp import as_log_probs, binned
from jaxaudit.metrics.arrays import Integers, Numbers

SOURCE = "Long, Bindschaedler & Gunter 2017"
BINS = 100
"""The number of bins in the paper (section 5.2, "Binning the predictions")."""
DTP_1 = 1.0
"""nats; the most that one record may move an output of a classifier that is published (section 5)."""


class PDTP(NamedTuple):
    """Pointwise differential training privacy of records; larger means more exposed.

    Attributes:
        values: in nats, at least 0, never NaN.
        classes: the class whose probability moves most, the first if tied.
        directions: +1 if the model with the record gives that class more, -1 if less, 0 if the value is 0.
    """

    values: Numbers
    classes: Integers
    directions: Integers


class SeedFloor(NamedTuple):
    """The mean and the largest PDTP, in nats over pairs of seeds, if no record is removed and only the seed differs."""

    mean: Numbers
    largest: Numbers


def pdtp(
    with_record: Float[Array | np.ndarray, "n classes"],
    without_record: Float[Array | np.ndarray, "n classes"],
    *,
    bins: int = BINS,
) -> PDTP:
    """PDTP(t) = max over y of |log p_with(y | x_t) - log p_without(y | x_t)|; larger means more exposed.

    Definitions 4.3 and 4.4: the smallest epsilon that bounds the ratio in both directions. Row r of each array holds
    the log-probabilities, in nats, on record r: of A(T) in `with_record`, of A(T without r) in `without_record`. Rows
    need not sum to 1. Train both with the same key; else the number contains the effect of the seed, too.

    With `bins` equal bins of [0, 1], as in the paper, every probability is first replaced by the centre of its bin. No
    value is then larger than log(2 bins - 1), which is 5.29 for 100 bins; changes within a bin count as 0, and a small
    change across an edge counts as a whole bin, up to log 3. With `bins=0` outputs are compared as they are: a
    probability of 0 on one side alone gives infinity (direction -1 if with the record), on both sides 0.

    With outputs on every possible input, the largest value is the DTP of one record left out (definitions 4.1, 4.2).

    >>> answer = pdtp(np.log([[0.9, 0.1], [0.5, 0.5]]), np.log([[0.6, 0.4], [0.5, 0.5]]), bins=0)
    >>> answer.values.round(4), answer.classes, answer.directions
    (array([1.3863, 0.    ]), array([1, 0]), array([-1,  0]))
    """
    check_shapes(with_record.shape, without_record=without_record)
    check_ranges("[1, inf)", classes=with_record.shape[1])
    first = binned(as_log_probs(with_record, "the model with the record"), bins)
    second = binned(as_log_probs(without_record, "the model without the record"), bins)
    with np.errstate(invalid="ignore"):  # -inf minus -inf, which the next line replaces
        change = first - second
    change[first == second] = 0.0
    classes = np.abs(change).argmax(axis=1)
    largest = np.take_along_axis(change, classes[:, None], axis=1)[:, 0]
    return PDTP(np.abs(largest), classes, np.sign(largest).astype(np.intp))


def seed_floor(log_probs: Float[Array | np.ndarray, "seeds n classes"], *, bins: int = BINS) -> SeedFloor:
    """The value of `pdtp` for each record if no record is removed and only the training seed differs.

    Row s holds the outputs of a model trained on all of T with seed s, of at least two; row 0 is the audited model. The
    mean over the other seeds is an unbiased estimate of the expectation of `pdtp` without any influence; the maximum
    grows with their number. A record whose PDTP is below its floor changes the outputs less than another seed does.

    >>> outputs = np.log([[[0.5, 0.5]], [[0.5, 0.5]], [[0.25, 0.75]]])
    >>> floor = seed_floor(outputs, bins=0)
    >>> floor.mean.round(4), floor.largest.round(4)
    (array([0.3466]), array([0.6931]))
    """
    check_ranges("[2, inf)", seeds=len(log_probs))
    values = np.stack([pdtp(log_probs[0], other, bins=bins).values for other in log_probs[1:]])
    return SeedFloor(values.mean(axis=0), values.max(axis=0))

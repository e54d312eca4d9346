"""Median, mean and variance of log-odds over models with a record, and without it, leaving each model out in turn.

Leaving out each in turn costs no more than leaving out none. A median without a model follows from the model's rank,
and a sum without it from the sums before and after it, so that no subtraction loses precision.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.attacks.records.attack import ShadowScores, left_out


class SideStatistics(NamedTuple):
    """Statistics over the models trained with a record, or over those without it, for each target (or one row for all).

    `variance` is the mean squared distance from `mean`. NaN without a model.
    """

    count: Int[np.ndarray, "targets n"]
    median: Float[np.ndarray, "targets views n"]
    mean: Float[np.ndarray, "targets views n"]
    variance: Float[np.ndarray, "targets views n"]


def in_out_statistics(shadowed: ShadowScores) -> tuple[SideStatistics, SideStatistics]:
    """The statistics of models with each record, and of models without it."""
    membership, (inside, outside) = shadowed.membership, left_out(shadowed)
    return _side(shadowed.models, membership, inside), _side(shadowed.models, ~membership, outside)


def _side(
    models: Float[np.ndarray, "models views n"],
    membership: Bool[np.ndarray, "models n"],
    without: Int[np.ndarray, "targets n"],
) -> SideStatistics:
    """The statistics of the models in `membership`, leaving out the model `without` for each target."""
    held = np.broadcast_to(membership[:, None], models.shape)
    ordered = np.sort(np.where(held, models, np.inf), axis=0)
    whole = membership.sum(axis=0)[None]
    count = whole - (without >= 0)
    # The log-odds of the models that are left out; infinity if none is.
    index = np.broadcast_to(np.maximum(without, 0)[:, None], (len(without), *models.shape[1:]))
    taken = np.where((without >= 0)[:, None], np.take_along_axis(models, index, axis=0), np.inf)
    median = _median(ordered, count[:, None], taken)
    centre = _median(ordered, whole[:, None], np.full((1, *models.shape[1:]), np.inf))
    apart = np.where(held, models - np.where(np.isnan(centre), 0.0, centre), 0.0)
    times, none = np.maximum(count, 1)[:, None], (count == 0)[:, None]
    first, second = (sum_without(power, without) / times for power in (apart, apart**2))
    return SideStatistics(
        count,
        np.where(none, np.nan, median),
        np.where(none, np.nan, centre + first),
        np.where(none, np.nan, np.maximum(second - first**2, 0.0)),
    )


def _median(ordered: np.ndarray, count: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The median of the `count` sorted numbers that remain without the number `taken` (infinity: none is taken)."""
    middle_values = []
    for middle in ((count - 1) // 2, count // 2):
        places = np.broadcast_to(np.clip(middle, 0, len(ordered) - 1), taken.shape)
        number = np.take_along_axis(ordered, places, axis=0)
        after = np.take_along_axis(ordered, np.minimum(places + 1, len(ordered) - 1), axis=0)
        middle_values.append(np.where(number < taken, number, after))
    with np.errstate(invalid="ignore"):  # infinity minus infinity, if count is 0
        return np.where(count > 0, (middle_values[0] + middle_values[1]) / 2, np.nan)


def sum_without(
    numbers: Float[np.ndarray, "models views n"], without: Int[np.ndarray, "targets n"]
) -> Float[np.ndarray, "targets views n"]:
    """The sum over models, leaving out the model `without` for each target; -1 leaves out none."""
    whole = numbers.sum(axis=0, keepdims=True)
    if (without < 0).all():
        return np.repeat(whole, len(without), axis=0)
    index = np.broadcast_to(np.maximum(without, 0)[:, None], (len(without), *numbers.shape[1:]))
    return np.where((without >= 0)[:, None], np.take_along_axis(others_sum(numbers), index, axis=0), whole)


def others_sum(numbers: Float[np.ndarray, "models *rest"]) -> Float[np.ndarray, "models *rest"]:
    """For each model, the sum over all other models, computed without a subtraction that would lose precision.

    >>> others_sum(np.array([1e20, 1.0, 2.0]))
    array([3.e+00, 1.e+20, 1.e+20])
    """
    before, after = np.zeros_like(numbers), np.zeros_like(numbers)
    np.cumsum(numbers[:-1], axis=0, out=before[1:])
    after[:-1] = np.cumsum(numbers[:0:-1], axis=0)[::-1]
    return before + after

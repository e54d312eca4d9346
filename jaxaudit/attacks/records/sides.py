"""Where models with a record lie, and models without it; each model left out in turn costs no more than none.

A model is left out of a median by its place in the sorted order, and out of a sum by the sums before and after it, so
nothing is subtracted that would cancel.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.attacks.records.attack import Shadowed, counts


class Side(NamedTuple):
    """Models trained with a record, or without it: as each target has them, or in one row for all targets.

    NaN where there is no model.

    Attributes:
        count: their number.
        median: of their log-odds.
        mean: of the same.
        variance: the mean squared distance from `mean`.
    """

    count: Int[np.ndarray, "targets n"]
    median: Float[np.ndarray, "targets views n"]
    mean: Float[np.ndarray, "targets views n"]
    variance: Float[np.ndarray, "targets views n"]


def sides(shadowed: Shadowed) -> tuple[Side, Side]:
    """The models with each record, and those without it."""
    inside, outside = counts(shadowed)
    leave = shadowed.targets is None
    return (
        _side(shadowed.models, shadowed.membership, inside, leave),
        _side(shadowed.models, ~shadowed.membership, outside, leave),
    )


def _side(
    models: Float[np.ndarray, "models views n"], own: Bool[np.ndarray, "models n"], count: np.ndarray, leave: bool
) -> Side:
    held = np.broadcast_to(own[:, None], models.shape)
    ordered = np.sort(np.where(held, models, np.inf), axis=0)
    whole = own.sum(axis=0)
    middle = _median(ordered, np.broadcast_to(whole, models.shape[1:])[None], None)
    median = middle
    if leave:
        without = _median(ordered, np.broadcast_to((whole - 1)[None, None], models.shape), models)
        median = np.where(held, without, middle)
    centre = np.where(np.isnan(middle), 0.0, middle)
    apart = np.where(held, models - centre, 0.0)
    times = np.maximum(count, 1)[:, None]
    first, second = (_left_out(power, leave) / times for power in (apart, apart**2))
    none = (count == 0)[:, None]
    return Side(
        count,
        median,
        np.where(none, np.nan, centre + first),
        np.where(none, np.nan, np.maximum(second - first**2, 0.0)),
    )


def _median(ordered: np.ndarray, count: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
    """The median of the first `count` of sorted numbers, after one of them was taken out."""
    found = []
    for place in ((count - 1) // 2, count // 2):
        here = np.clip(place, 0, len(ordered) - 1)
        number = np.take_along_axis(ordered, here, axis=0)
        if left_out is not None:
            after = np.take_along_axis(ordered, np.minimum(here + 1, len(ordered) - 1), axis=0)
            number = np.where(number < left_out, number, after)
        found.append(number)
    with np.errstate(invalid="ignore"):  # infinity less infinity, where there is none
        middle = (found[0] + found[1]) / 2
    return np.where(count > 0, middle, np.nan)


def _left_out(numbers: np.ndarray, leave: bool) -> np.ndarray:
    """Their sum, or the sum of all but each."""
    if not leave:
        return numbers.sum(axis=0, keepdims=True)
    return others_sum(numbers)


def others_sum(numbers: Float[np.ndarray, "models *rest"]) -> Float[np.ndarray, "models *rest"]:
    """For each model the sum over all others, without a difference that would cancel.

    >>> others_sum(np.array([1e20, 1.0, 2.0]))
    array([3.e+00, 1.e+20, 1.e+20])
    """
    before, after = np.zeros_like(numbers), np.zeros_like(numbers)
    np.cumsum(numbers[:-1], axis=0, out=before[1:])
    after[:-1] = np.cumsum(numbers[:0:-1], axis=0)[::-1]
    return before + after

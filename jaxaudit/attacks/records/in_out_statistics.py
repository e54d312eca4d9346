"""Where models with a record lie, and models without it; each model left out in turn costs no more than none.

A model is left out of a median by its place in the sorted order, and out of a sum by the sums before and after it, so
nothing is subtracted that would cancel.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.attacks.records.attack import ShadowScores, left_out


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


def sides(shadowed: ShadowScores) -> tuple[Side, Side]:
    """The models with each record, and those without it."""
    own, (inside, outside) = shadowed.membership, left_out(shadowed)
    return _side(shadowed.models, own, inside), _side(shadowed.models, ~own, outside)


def _side(
    models: Float[np.ndarray, "models views n"],
    own: Bool[np.ndarray, "models n"],
    without: Int[np.ndarray, "targets n"],
) -> Side:
    """The models of a side, without one of them for each target."""
    held = np.broadcast_to(own[:, None], models.shape)
    ordered = np.sort(np.where(held, models, np.inf), axis=0)
    whole = own.sum(axis=0)[None]
    count = whole - (without >= 0)
    median = _median(ordered, count[:, None], _taken(models, without))
    centre = _median(ordered, whole[:, None], np.full((1, *models.shape[1:]), np.inf))
    apart = np.where(held, models - np.where(np.isnan(centre), 0.0, centre), 0.0)
    times, none = np.maximum(count, 1)[:, None], (count == 0)[:, None]
    first, second = (sum_without(power, without) / times for power in (apart, apart**2))
    return Side(
        count,
        np.where(none, np.nan, median),
        np.where(none, np.nan, centre + first),
        np.where(none, np.nan, np.maximum(second - first**2, 0.0)),
    )


def _taken(models: np.ndarray, without: np.ndarray) -> np.ndarray:
    """The numbers of the models that are left out; infinity where none is."""
    place = np.broadcast_to(np.maximum(without, 0)[:, None], (len(without), *models.shape[1:]))
    return np.where((without >= 0)[:, None], np.take_along_axis(models, place, axis=0), np.inf)


def _median(ordered: np.ndarray, count: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The median of `count` sorted numbers that are left when one was taken out; infinity: none was."""
    found = []
    for place in ((count - 1) // 2, count // 2):
        here = np.broadcast_to(np.clip(place, 0, len(ordered) - 1), taken.shape)
        number = np.take_along_axis(ordered, here, axis=0)
        after = np.take_along_axis(ordered, np.minimum(here + 1, len(ordered) - 1), axis=0)
        found.append(np.where(number < taken, number, after))
    with np.errstate(invalid="ignore"):  # infinity less infinity, where there is none
        return np.where(count > 0, (found[0] + found[1]) / 2, np.nan)


def sum_without(
    numbers: Float[np.ndarray, "models views n"], without: Int[np.ndarray, "targets n"]
) -> Float[np.ndarray, "targets views n"]:
    """The sum over models, without one of them for each target; -1 for none."""
    whole = numbers.sum(axis=0, keepdims=True)
    if (without < 0).all():
        return np.repeat(whole, len(without), axis=0)
    place = np.broadcast_to(np.maximum(without, 0)[:, None], (len(without), *numbers.shape[1:]))
    return np.where((without >= 0)[:, None], np.take_along_axis(others_sum(numbers), place, axis=0), whole)


def others_sum(numbers: Float[np.ndarray, "models *rest"]) -> Float[np.ndarray, "models *rest"]:
    """For each model the sum over all others, without a difference that would cancel.

    >>> others_sum(np.array([1e20, 1.0, 2.0]))
    array([3.e+00, 1.e+20, 1.e+20])
    """
    before, after = np.zeros_like(numbers), np.zeros_like(numbers)
    np.cumsum(numbers[:-1], axis=0, out=before[1:])
    after[:-1] = np.cumsum(numbers[:0:-1], axis=0)[::-1]
    return before + after

"""Which membership mask do a model's outputs fit? This finds outputs that were saved for the wrong shadow model.

A model is more confident on records that it was trained on (Carlini et al. 2022). Membership masks ("rows") were drawn
at random and independently, so given the outputs of a model of another row, all choices of a row's members are equally
likely. The sum of the outputs over the members then has a known mean and variance (Hoeffding 1963), for any model.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.data.bank.bank import row_blocks
from jaxaudit.metrics.arrays import Members, Numbers, PerModel
from jaxaudit.metrics.scores import cut

RATE = 1e-2
"""The largest probability of a false alarm for the right model's outputs; if sums are normal, it is a tenth of that."""


class Dealt(NamedTuple):
    """A set of records from which the members of every row were drawn at random, all choices equally likely.

    `places` are their indices, and `units` the units of randomisation, numbered from 0: groups, or single records.
    """

    places: Int[np.ndarray, " some"]
    units: Int[np.ndarray, " some"]


def dealt_records(places: Int[np.ndarray, " some"]) -> Dealt:
    """A set of records that were drawn one by one, not in groups."""
    return Dealt(places, np.arange(len(places)))


def row_fits(
    outputs: Numbers,
    membership: Members,
    sets: Sequence[Dealt],
    other_outputs: Float[np.ndarray, "known n"] | None = None,
    other_rows: Sequence[int] = (),
) -> PerModel:
    """How well a model's outputs fit each membership mask, in standard deviations; 0 on average for unrelated masks.

    Outputs are log-odds of each record's own class, less what the mean of `other_outputs`, of the models of
    `other_rows`, explains: records differ far more than models do. A row's fit leaves its own model's outputs out.
    """
    outputs = cut(outputs)
    other_outputs = np.zeros((0, len(outputs))) if other_outputs is None else cut(other_outputs)
    left = {row: _sums(outputs, np.delete(other_outputs, index, axis=0), sets) for index, row in enumerate(other_rows)}
    usual = _sums(outputs, other_outputs, sets)
    firsts = [drawn_set.places[np.unique(drawn_set.units, return_index=True)[1]] for drawn_set in sets]
    fits = np.concatenate([_fits(usual, membership[part], firsts) for part in row_blocks(membership)])
    for row, sums in left.items():
        fits[row] = _fits(sums, membership[row : row + 1], firsts)[0]
    return fits


def other_row(fits: PerModel, own_row: int, rate: float = RATE) -> int | None:
    """The row that the outputs fit best, if the fit is significant and the row is not the model's `own_row`; else None.

    The model's own outputs give a row with probability at most `rate`, by Hoeffding's (1963) tail exp(-z^2 / 2).
    """
    best = int(np.argmax(fits))
    return best if best != own_row and fits[best] > max(limit(len(fits), rate), fits[own_row]) else None


def limit(rows: int, rate: float = RATE) -> float:
    """The threshold that the largest fit of `rows` unrelated rows exceeds with probability at most `rate`."""
    return float(np.sqrt(2 * np.log(rows / rate)))


def _sums(outputs: np.ndarray, other_outputs: np.ndarray, sets: Sequence[Dealt]) -> list[np.ndarray]:
    """For each set, the total of each unit's outputs, centred and without the part that other models explain."""
    centred = [outputs[drawn_set.places] - outputs[drawn_set.places].mean() for drawn_set in sets]
    if len(other_outputs):
        typical = other_outputs.mean(axis=0)
        typical = [typical[drawn_set.places] - typical[drawn_set.places].mean() for drawn_set in sets]
        size = sum(float(part @ part) for part in typical)
        slope = sum(float(x @ y) for x, y in zip(centred, typical, strict=True)) / size if size > 0 else 0.0
        centred = [x - slope * y for x, y in zip(centred, typical, strict=True)]
    return [np.bincount(drawn_set.units, values) for drawn_set, values in zip(sets, centred, strict=True)]


def _fits(
    sums: Sequence[np.ndarray], rows: Bool[np.ndarray, "some n"], firsts: Sequence[np.ndarray]
) -> Float[np.ndarray, " some"]:
    """The standard scores of these rows; `firsts` holds the index of one record of each unit, for each set."""
    total, variance = np.zeros(len(rows)), np.zeros(len(rows))
    for values, places in zip(sums, firsts, strict=True):
        members = rows[:, places]
        units, count = len(values), np.count_nonzero(members, axis=1)
        if units < 2:
            continue
        share = count / units
        total += members @ values - count * values.mean()
        variance += units * share * (1 - share) / (units - 1) * float(((values - values.mean()) ** 2).sum())
    return np.where(variance > 0, total, 0.0) / np.sqrt(np.where(variance > 0, variance, 1.0))

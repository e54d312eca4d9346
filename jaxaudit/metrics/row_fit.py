"""Which training set do a model's outputs fit? It finds outputs that were saved for the wrong shadow model.

A model is more confident on records that it was trained on (Carlini et al. 2022). Rows of a membership matrix that were
dealt at random, independently of one another, have nothing to do with the outputs of a model that was trained on
another row: given the outputs, every deal of such a row was equally likely. The sum of the outputs over its members
then has a known mean and variance (sampling without replacement, Hoeffding 1963), whatever the model is.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.data.bank.bank import row_blocks
from jaxaudit.metrics.scores import cut

RATE = 1e-2
"""How often, at most, outputs of the right model may be taken for another's; normal sums do so a tenth as often."""


class Dealt(NamedTuple):
    """Records among which every row has as many members, all choices equally likely.

    Attributes:
        places: of the records among all.
        units: the number of what was dealt whole, for each of them, from 0: its group, or the record itself.
    """

    places: Int[np.ndarray, " some"]
    units: Int[np.ndarray, " some"]


def dealt_records(places: Int[np.ndarray, " some"]) -> Dealt:
    """Records that were dealt one by one."""
    return Dealt(places, np.arange(len(places)))


def row_fits(
    outputs: Float[np.ndarray, " n"],
    membership: Bool[np.ndarray, "models n"],
    sets: Sequence[Dealt],
    others: Float[np.ndarray, "known n"] | None = None,
    known: Sequence[int] = (),
) -> Float[np.ndarray, " models"]:
    """How well a model's outputs fit each row, in standard deviations; 0 on average for rows it has nothing to do with.

    The statistic of a row is the sum of the outputs over its members, in each of `sets` minus what is expected of a
    random choice of as many, divided by the standard deviation of that. First, what the other models' mean output
    explains of a record is taken off (least squares), because records differ far more than models do. The outputs of
    the model of a row take no part in the statistic of that row, so the row stays independent of it.

    Args:
        outputs: log-odds of each record's own class.
        membership: of all models; read some rows at a time.
        sets: the records of each set that was dealt by itself.
        others: log-odds of some other models; `known`: their rows.

    >>> outputs = np.array([2.0, 1.0, 0.0, -1.0])
    >>> rows = np.array([[True, True, False, False], [True, False, True, False]])
    >>> row_fits(outputs, rows, [dealt_records(np.arange(4))]).round(2)
    array([1.55, 0.77])
    """
    outputs = cut(outputs)
    others = np.zeros((0, len(outputs))) if others is None else cut(others)
    left = {row: _sums(outputs, np.delete(others, place, axis=0), sets) for place, row in enumerate(known)}
    usual = _sums(outputs, others, sets)
    firsts = [each.places[np.unique(each.units, return_index=True)[1]] for each in sets]
    fits = np.concatenate([_fits(usual, membership[part], firsts) for part in row_blocks(membership)])
    for row, sums in left.items():
        fits[row] = _fits(sums, membership[row : row + 1], firsts)[0]
    return fits


def other_row(fits: Float[np.ndarray, " models"], own: int, rate: float = RATE) -> int | None:
    """The row that the outputs fit overwhelmingly, if that is not the model's `own` but another; else None.

    Guarantee: if the outputs are those of the model, a row is named with probability `rate` at most: the tail of each
    fit z is taken to be exp(-z^2 / 2), that of random signs (Hoeffding 1963), and all rows are allowed for.

    >>> other_row(np.array([0.3, 1.2, 9.0]), 2), other_row(np.array([0.3, 1.2, 9.0]), 0)
    (None, 2)
    """
    best = int(np.argmax(fits))
    return best if best != own and fits[best] > max(limit(len(fits), rate), fits[own]) else None


def limit(rows: int, rate: float = RATE) -> float:
    """The fit that any of `rows` unrelated rows exceeds with probability `rate` at most.

    >>> round(limit(40), 2)
    4.07
    """
    return float(np.sqrt(2 * np.log(rows / rate)))


def _sums(outputs: np.ndarray, others: np.ndarray, sets: Sequence[Dealt]) -> list[np.ndarray]:
    """For each set, what each unit adds to the sum over members: centred, without what other models explain."""
    centred = [outputs[each.places] - outputs[each.places].mean() for each in sets]
    if len(others):
        typical = others.mean(axis=0)
        typical = [typical[each.places] - typical[each.places].mean() for each in sets]
        size = sum(float(each @ each) for each in typical)
        slope = sum(float(x @ y) for x, y in zip(centred, typical, strict=True)) / size if size > 0 else 0.0
        centred = [x - slope * y for x, y in zip(centred, typical, strict=True)]
    return [np.bincount(each.units, values) for each, values in zip(sets, centred, strict=True)]


def _fits(
    sums: Sequence[np.ndarray], rows: Bool[np.ndarray, "some n"], firsts: Sequence[np.ndarray]
) -> Float[np.ndarray, " some"]:
    """The standard scores of these rows; `firsts` are the places of one record of each unit."""
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

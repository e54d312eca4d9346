"""Finds one model that counts as several, and one that is of another kind than all others, by numbers alone.

A model is no evidence against itself. The same checkpoint, asked again, gives nearly the same numbers; two models that
were trained apart do not. How near is compared with the others: learners differ in that by orders of magnitude.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.data.outputs.checks import ONE_KIND, ONE_MODEL, shared_ranks
from jaxaudit.errors import InputError

NumbersOfModels = Float[np.ndarray, "models records"]
"""A number a model and record."""

TIMES, WIDE = 25, 8
"""How many times nearer than is usual a copy is, and how many deviations of log-distances at least: models whose
training sets differ by single records may be at any distance."""
SURELY_APART, EXACT = 2e-4, 1e-10
"""From the first distance on two models are never one; floating point leaves the second between equal numbers."""
FEW, ENOUGH = 10, 50
"""Models with fewer different numbers, or of which fewer differ from the commonest one, may be equal by chance."""
ALMOST = 0.05
"""Two training sets that differ, but by a smaller share of the records, may give nearly the same models."""
FAR = 100
"""How many times a model's outputs are spread more widely, or less, than the median model's, to be of another kind."""
MOST_RECORDS, KEY, MODELS_AT_ONCE = 4096, 20221129, 512
"""Records that models are compared on, drawn with this key if there are more; models compared with others at a time."""


def standard_ranks(values: NumbersOfModels) -> NumbersOfModels:
    """The ranks of the records by each model, of mean 0 and length 1, or zeros: products are rank correlations."""
    ranks = np.array([shared_ranks(row) for row in values]).reshape(values.shape) - (values.shape[1] + 1) / 2
    lengths = np.sqrt((ranks**2).sum(axis=1, keepdims=True))
    return ranks / np.where(lengths > 0, lengths, 1)


def pairs_within(ranks: NumbersOfModels, limit: float) -> Iterator[tuple[int, int]]:
    """Pairs of models, in ascending order, whose rank correlation is 1 or -1, but for `limit`."""
    for start in range(0, len(ranks), MODELS_AT_ONCE):
        near = 1 - np.abs(ranks[start : start + MODELS_AT_ONCE] @ ranks.T) <= limit
        yield from ((start + i, j) for i, j in np.argwhere(near).tolist() if start + i < j)


def same_models(values: NumbersOfModels, usual: Bool[np.ndarray, " models"] | None = None) -> Iterator[tuple[int, int]]:
    """Pairs of rows that are one model, by numbers that may be on any scale, rounded, or computed in another order.

    The distance of two models is 1 minus the absolute rank correlation of their numbers. What is usual is the lower
    quartile of the distances of each model to its nearest one, of all models or of the `usual` ones: models of one kind
    may be far from those of another. A pair is one model if it is `TIMES` nearer (in standard deviations), `WIDE`
    deviations nearer, and nearer than `SURELY_APART`; or if its numbers are equal. Of fewer than three models, and if a
    quarter of many models are copies, only equal numbers tell. Models with few different numbers are left alone.
    """
    values = _of_some(values)
    ranks, limit = standard_ranks(values), 0.0
    among = ranks if usual is None else ranks[usual]
    if len(among) > 2:
        among = among[:: -(-len(among) // MODELS_AT_ONCE)]
        distances = 1 - np.abs(among @ among.T) + 2 * np.eye(len(among))
        # Without the two smallest, which may be those of a pair of copies: that of each to the other.
        nearest = np.log(np.maximum(np.sort(distances.min(axis=1))[2:], EXACT))
        low = float(nearest[-(-(len(nearest) - 1) // 4)])
        wide = WIDE * 1.4826 * float(np.median(np.abs(nearest - np.median(nearest))))
        limit = min(SURELY_APART, float(np.exp(low - max(2 * np.log(TIMES), wide))))
        # Two neighbours that change places: ranks of so few records tell no smaller distance.
        limit = limit if limit > 12 / values.shape[1] ** 3 else 0.0
    for i, j in pairs_within(ranks, max(EXACT, limit)):
        if (limit > 0 or np.array_equal(values[i], values[j])) and _tells(values[i]) and _tells(values[j]):
            yield i, j


def _tells(values: Float[np.ndarray, " records"]) -> bool:
    counts = np.unique(values, return_counts=True)[1]
    return bool(len(counts) >= FEW and len(values) - counts.max() >= ENOUGH)


def unlike_others(values: NumbersOfModels) -> Iterator[tuple[int, float]]:
    """Models whose outputs are spread far more widely than those of the others, or far less, and how many times.

    The spread is the mean absolute deviation from the median over records, of finite numbers; it is compared with
    that of the median model, and with how much the models' spreads differ. A model that says the same of every record
    has spread 0. Fewer than four models cannot tell.
    """
    values = _of_some(values)
    finite_models = np.flatnonzero(2 * np.isfinite(values).sum(axis=1) > values.shape[1])
    if len(finite_models) < 4:
        return
    numbers = np.where(np.isfinite(values[finite_models]), values[finite_models], np.nan)
    spreads = np.nanmean(np.abs(numbers - np.nanmedian(numbers, axis=1, keepdims=True)), axis=1)
    if np.median(spreads) > 0:
        times = spreads / np.median(spreads)
        logs = np.abs(np.log(np.maximum(times, 1e-30)))
        yield from (
            (int(finite_models[i]), float(times[i]))
            for i in np.flatnonzero(logs > max(np.log(FAR), WIDE * 1.4826 * float(np.median(logs))))
        )


def _of_some(values: NumbersOfModels) -> Float[np.ndarray, "models some"]:
    """The numbers of all records, or of `MOST_RECORDS` of them, which are always the same ones."""
    records = values.shape[1]
    rows = (
        np.random.default_rng(KEY).choice(records, MOST_RECORDS, replace=False)
        if records > MOST_RECORDS
        else slice(None)
    )
    return values[:, rows]


def refuse_odd_models(
    values: NumbersOfModels,
    numbers: Sequence[int],
    source: str,
    membership: Bool[np.ndarray, "models pool"] | None = None,
) -> None:
    """Refuses two models that are one, or one unlike all others. Where few records differ, models may be near."""
    for i, j in same_models(values):
        if membership is None or not 0 < (membership[i] != membership[j]).mean() < ALMOST:
            raise InputError(f"{source}: models {numbers[i]} and {numbers[j]} {ONE_MODEL.says}.")
    for i, times in unlike_others(values):
        raise InputError(f"{source}: model {numbers[i]} {ONE_KIND.says.format(times=f'{times:.2g} times')}.")

"""Means and variances of each record's log-odds over models trained with it, and without it (in/out statistics)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

PRIOR_MODELS = 4.0
"""Variances are shrunk as if the mean variance of all records had been observed in this many more models."""


class Profile(NamedTuple):
    """Statistics of each record's log-odds, over models trained without the record ("outside") and with it ("inside").

    Attributes:
        outside, inside: mean log-odds. The gap between both is shrunk towards the mean gap of all records (empirical
            Bayes), so it is defined even for a record that no model, or every model, was trained on.
        outside_variance, inside_variance: variances, shrunk towards the mean variance of all records.
        variance: the variance pooled over both kinds of models, shrunk in the same way.
    """

    outside: Float[np.ndarray, " n"]
    inside: Float[np.ndarray, " n"]
    outside_variance: Float[np.ndarray, " n"]
    inside_variance: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, " n"]


def profile(models: Float[np.ndarray, "models n"], membership: Bool[np.ndarray, "models n"]) -> Profile:
    """The profile of each record over these models of known membership."""
    centre = models.mean(axis=0)
    return _profile(_sums(models, membership, centre), centre)


def profiles_without(
    models: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    left_out: Iterable[Int[np.ndarray, "some n"]],
) -> Iterator[Profile]:
    """For each array of `left_out`, the profile without some models.

    Each row of an array holds one model's index per record, or -1 for none; no index occurs twice for a record.
    """
    centre = models.mean(axis=0)
    whole = _sums(models, membership, centre)
    for some in left_out:
        sums = whole
        for numbers in some:
            index = np.maximum(numbers, 0)[None]
            row, left_out_row = (np.take_along_axis(table, index, axis=0)[0] for table in (membership, models))
            parts = _of_one(left_out_row - centre, row & (numbers >= 0), ~row & (numbers >= 0))
            sums = tuple(total - part for total, part in zip(sums, parts, strict=True))
        yield _profile(sums, centre)


def profiles_of_others(
    models: Float[np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    places: Int[np.ndarray, " some"] | None = None,
) -> Iterator[Profile]:
    """For each model, or each model whose index is in `places`, the profile of all other models."""
    # Centred numbers keep their precision when one model's squares are subtracted from the sum.
    centre = models.mean(axis=0)
    sums = _sums(models, membership, centre)
    for index in range(len(models)) if places is None else places:
        own_sums = _of_one(models[index] - centre, membership[index], ~membership[index])
        yield _profile(tuple(whole - part for whole, part in zip(sums, own_sums, strict=True)), centre)


def _sums(models: np.ndarray, membership: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, ...]:
    """Count, sum and sum of squares of log-odds minus `centre`, per record, over models with and without it."""
    totals = tuple(np.zeros(len(centre), kind) for kind in (int, float, float) * 2)
    for model, row in zip(models, membership, strict=True):
        for total, part in zip(totals, _of_one(model - centre, row, ~row), strict=True):
            total += part
    return totals


def _of_one(apart: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, ...]:
    """The terms that one model adds to the sums."""
    return inside, inside * apart, inside * apart**2, outside, outside * apart, outside * apart**2


def _profile(sums: tuple[np.ndarray, ...], centre: np.ndarray) -> Profile:
    """The profile from `_sums` of log-odds minus `centre`."""
    inner, inner_sum, inner_squares, outer, outer_sum, outer_squares = sums
    inside, outside = inner_sum / np.maximum(inner, 1), outer_sum / np.maximum(outer, 1)
    inner_squares = np.maximum(inner_squares - inner * inside**2, 0)
    outer_squares = np.maximum(outer_squares - outer * outside**2, 0)
    freedom_in, freedom_out = np.maximum(inner - 1, 0), np.maximum(outer - 1, 0)
    squares, freedom = inner_squares + outer_squares, freedom_in + freedom_out
    mean_variance = squares.sum() / max(freedom.sum(), 1) + 1e-9

    def shrunk(squares: np.ndarray, freedom: np.ndarray) -> np.ndarray:
        prior = squares.sum() / freedom.sum() + 1e-9 if freedom.any() else mean_variance
        return (squares + PRIOR_MODELS * prior) / (freedom + PRIOR_MODELS)

    variance = shrunk(squares, freedom)
    is_profiled = (inner > 0) & (outer > 0)
    error = variance * (1 / np.maximum(inner, 1) + 1 / np.maximum(outer, 1))
    gap = inside - outside
    typical = float(gap[is_profiled].mean()) if is_profiled.any() else 0.0
    spread = max(float(gap[is_profiled].var() - error[is_profiled].mean()), 0.0) if is_profiled.any() else 0.0
    gap = typical + np.where(is_profiled, (gap - typical) * spread / (spread + error), 0.0)
    base = centre + (outer * outside + inner * (inside - gap)) / (inner + outer)
    return Profile(base, base + gap, shrunk(outer_squares, freedom_out), shrunk(inner_squares, freedom_in), variance)

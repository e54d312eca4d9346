"""Means and variances of each record's log-odds over models trained with it, and without it (in/out statistics).

With out, in and v the means and the variance, the gap in - out, and the weight w = gap / v, a model's outputs x give an
estimate of the used share of a set: sum w (x - out) / sum w gap. It is linear in the outputs, 0 on average for models
that were not trained on the records and 1 for those that were trained on all of them. Other data of a target raise its
variance and not its mean; a membership score, which is not linear, would be biased upward.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxaudit.metrics.arrays import Members, Numbers, PerModel, Scores

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

    outside: Numbers
    inside: Numbers
    outside_variance: Numbers
    inside_variance: Numbers
    variance: Numbers


def profile(models: Scores, membership: Members) -> Profile:
    """The profile of each record over these models of known membership."""
    centre = models.mean(axis=0)
    return _profile(_sums(models, membership, centre), centre)


def profiles_without(
    models: Scores,
    membership: Members,
    left_out: Iterable[Int[np.ndarray, "some n"]],
) -> Iterator[Profile]:
    """For each array of `left_out`, the profile without some models: one model's index per record, or -1 for none."""
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
    models: Scores,
    membership: Members,
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


Records = Bool[np.ndarray, " n"]


def linear_share(outputs: Numbers, shadows: Profile, records: Records) -> float:
    """The used share of the records selected by `records`, not cut to [0, 1]; 0 if shadow models remember none of them.

    >>> flat = np.ones(4)
    >>> shadows = Profile(0 * flat, 2 * flat, flat, flat, flat)
    >>> linear_share(np.array([2.0, 2.0, 0.0, 0.0]), shadows, np.ones(4, bool))
    0.5
    """
    gap = np.maximum(shadows.inside - shadows.outside, 0)[records]
    weight = gap / shadows.variance[records]
    reach = float(weight @ gap)
    return float(weight @ (outputs - shadows.outside)[records]) / reach if reach > 0 else 0.0


def own_scatter(outputs: Numbers, shadows: Profile, records: Records) -> float:
    """The root mean square distance of outputs from the mean of models without the record, in standard deviations.

    >>> flat = np.ones(4)
    >>> own_scatter(np.array([3.0, -3.0, 3.0, -3.0]), Profile(0 * flat, flat, flat, flat, flat), np.ones(4, bool))
    3.0
    """
    return float(np.sqrt(np.mean((outputs - shadows.outside)[records] ** 2 / shadows.variance[records])))


class Shares(NamedTuple):
    """Used shares and scatter (`own_scatter`) of each shadow model, computed with the other models, and of the target.

    Those of the calibration set are over records that a model was not trained on; 0, and 1 for the scatter, without it.
    """

    query: PerModel
    calibration: PerModel
    scatter: PerModel
    target_query: float
    target_calibration: float
    target_scatter: float


def used_shares(
    target: Numbers,
    shadows: Scores,
    membership: Members,
    queried: int,
    unseen: Records | None = None,
) -> Shares:
    """Used shares and scatter of a target and of its shadow models; after `queried` follows the calibration set.
    `unseen` says which records the target is known not to have used; None: all of the calibration set.
    """
    index = np.arange(len(target))
    query, calibration = index < queried, index >= queried
    unseen = calibration if unseen is None else calibration & unseen

    def of(outputs: np.ndarray, other_profile: Profile, kept: np.ndarray) -> tuple[float, float, float]:
        share = linear_share(outputs, other_profile, query)
        if not kept.any():
            return share, 0.0, 1.0
        return share, linear_share(outputs, other_profile, kept), own_scatter(outputs, other_profile, kept)

    profiles = profiles_of_others(shadows, membership)
    rows = [
        of(model, other_profile, calibration & ~member)
        for model, other_profile, member in zip(shadows, profiles, membership, strict=True)
    ]
    query_shares, calibration_shares, scatters = np.array(rows).T
    return Shares(query_shares, calibration_shares, scatters, *of(target, profile(shadows, membership), unseen))

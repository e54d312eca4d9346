"""The score of the NeurIPS 2023 unlearning challenge: can unlearned models be distinguished from retrained ones?

Triantafillou et al. (2024), "Are we making progress in unlearning? Findings from the first NeurIPS unlearning
competition", sections 3 and 4, with the details of the published code (`google-deepmind/unlearning_evaluation`).

For each record of the forget set, attacks guess from the log-odds of its class whether a model is unlearned or
retrained, at all thresholds that make a difference (the published code tries a grid of 0.01 nats):

- one threshold: log-odds at or above it are attributed to the side with the larger median;
- two thresholds: log-odds between them are attributed to the side with the smaller range. The upper threshold is
  within 2 nats of that side's maximum, and the distance between both within 2 nats of its range.

With FPR and FNR an attack's error rates over models, the record's epsilon is the largest over attacks of

    max(log(1 - delta - FPR) - log FNR, log(1 - delta - FNR) - log FPR),   delta = 1e-5, from 0 to 50

An attack for which one rate is 0 is ignored; if both are 0, epsilon is infinite. If the range of one side is below 1%
of the other's, epsilon is 50. A record with epsilon in [k / 2, (k + 1) / 2) gets 1 / 2^k points, and none if epsilon is
at least ceil(log(models - 1)). F, the forgetting quality, is the mean of the points. The score is F times two ratios of
accuracies, unlearned over retrained: on the remaining records (RA) and on test records (TA).

*How to read it.* A larger F is better. But even models that were retrained once more have an F near 0.2, not 1: epsilon
is the best of many attacks on few models, and so biased upward. Compare a method only with the F of retrained models,
computed with the same numbers of models.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.errors import InputError
from jaxaudit.json_types import Number, StrictStruct, number
from jaxaudit.metrics.over_models import Estimate, checked_sides, interval_over_models
from jaxaudit.randomness import generator_of

SOURCE = "Triantafillou et al. 2024"
DELTA, CAP, BIN = 1e-5, 50.0, 0.5
BUFFER = 2.0
"""Nats by which two thresholds may differ from the narrower side's range."""
NARROW = 0.01
REPLICATES = 100
ENTRIES = 1 << 21
"""Pairs of thresholds that are computed at a time."""


class Answers(NamedTuple):
    """The outputs of all unlearned models, or of all retrained models.

    Attributes:
        log_odds: log-odds of the own class of each record of the forget set, in nats; see `log_odds`.
        remaining_accuracy, test_accuracy: of each model on the records that remain in training, and on test records.
    """

    log_odds: Float[np.ndarray, "models records"]
    remaining_accuracy: Float[np.ndarray, " models"]
    test_accuracy: Float[np.ndarray, " models"]


class ChallengeScore(StrictStruct, frozen=True):
    """The challenge's score of unlearned models; larger is better.

    Attributes:
        epsilon: of each record, in their order, from 0 to 50; larger means easier to distinguish from retrained models.
        quality: F, the mean of points, with its interval.
        remaining_ratio, test_ratio: mean accuracy on the remaining records, and on test records, of unlearned models
            divided by that of retrained ones; None if the latter is 0.
        score: F times both ratios, with its interval; None if the accuracies of retrained models are 0 or NaN.
    """

    epsilon: tuple[float, ...]
    quality: Estimate
    remaining_ratio: Number
    test_ratio: Number
    score: Estimate | None


def challenge_score(
    key: Key[Array, ""], unlearned: Answers, retrained: Answers, *, level: float = 0.95, replicates: int = REPLICATES
) -> ChallengeScore:
    """F and the score of unlearned models, compared with retrained models; larger is better.

    All models must be independent: no retrained model may share the seed of an unlearned one. F depends on the numbers
    of models, and intervals are for its mean over other models *of the same numbers*; see `over_models.interval`. The
    bootstrap draws unlearned and retrained models with replacement, in at least 2 replicates.

    Raises:
        InputError: fewer than 4 models on a side, numbers of records or models that differ, no record, NaN, or
            `replicates` or `level` out of range.

    >>> import jax
    >>> random = np.random.default_rng(2)
    >>> models = [Answers(random.normal(size=(32, 20)) + shift, np.ones(32), np.ones(32)) for shift in (0, 0, 4)]
    >>> again, gone = (challenge_score(jax.random.key(1), each, models[0]) for each in models[1:])
    >>> round(again.score.value, 2), round(gone.score.value, 2)
    (0.15, 0.01)
    """
    log_odds = checked_sides(unlearned.log_odds, retrained.log_odds, replicates, level)
    for models, remaining, test in (map(len, side) for side in (unlearned, retrained)):
        if not models == remaining == test:
            raise InputError(
                f"there are log-odds of {models} models, but accuracies of {remaining} and {test}: give one of each "
                "model, in the same order."
            )
    sizes, generator = [len(side) for side in log_odds], generator_of(key)
    fewest, epsilon = min(sizes), epsilons(*log_odds)
    quality = float(points(epsilon, fewest).mean())
    remaining, test = _ratios(unlearned, retrained, *map(np.arange, sizes))
    draws = zip(*(generator.integers(0, size, (replicates, size)) for size in sizes), strict=True)
    drawn = [
        (
            points(epsilons(log_odds[0][unlearned_rows], log_odds[1][retrained_rows]), fewest).mean(),
            unlearned_rows,
            retrained_rows,
        )
        for unlearned_rows, retrained_rows in draws
    ]
    qualities = np.array([quality for quality, _, _ in drawn])
    scores = np.array([quality * np.prod(_ratios(unlearned, retrained, *rows)) for quality, *rows in drawn])
    score = interval_over_models(quality * remaining * test, scores, fewest, level)
    return ChallengeScore(
        tuple(epsilon.tolist()),
        interval_over_models(quality, qualities, fewest, level),
        number(remaining),
        number(test),
        score if np.isfinite(score.value) else None,
    )


def epsilons(
    unlearned: Float[np.ndarray, "models records"], retrained: Float[np.ndarray, "others records"]
) -> Float[np.ndarray, " records"]:
    """The epsilon of each record, from 0 to 50: how well unlearned and retrained models can be distinguished by it.

    0 if every attack is ignored. Exchanging the arguments changes nothing unless ranges or medians are equal.
    """
    columns = max(1, ENTRIES // (len(unlearned) + len(retrained)) ** 2)
    parts = [
        _epsilons(unlearned[:, start : start + columns].T, retrained[:, start : start + columns].T)
        for start in range(0, unlearned.shape[1], columns)
    ]
    return np.concatenate(parts)


def points(epsilon: Float[np.ndarray, " records"], models: int) -> Float[np.ndarray, " records"]:
    """The points of each record: 1 / 2^k for an epsilon in [k / 2, (k + 1) / 2), 0 from ceil(log(models - 1)) on.

    >>> points(np.array([0.0, 0.49, 0.5, 1.2, 3.1]), 16)
    array([1.  , 1.  , 0.5 , 0.25, 0.  ])
    """
    return np.where(epsilon < np.ceil(np.log(models - 1)), 0.5 ** np.floor(epsilon / BIN), 0.0)


def _epsilons(
    unlearned: Float[np.ndarray, "records models"], retrained: Float[np.ndarray, "records others"]
) -> Float[np.ndarray, " records"]:
    of_errors = _epsilon_of_errors(unlearned.shape[1], retrained.shape[1])
    everyone = np.concatenate([unlearned, retrained], axis=1)
    order = np.argsort(everyone, axis=1, kind="stable")
    values = np.take_along_axis(everyone, order, axis=1)
    # below[side][:, i]: how many models of the side are among the i smallest values.
    of_sides = order < unlearned.shape[1], order >= unlearned.shape[1]
    below = [np.pad(np.cumsum(side, axis=1), ((0, 0), (1, 0))) for side in of_sides]
    differs = values[:, 1:] != values[:, :-1]
    new, last = (np.pad(differs, ((0, 0), ends), constant_values=True) for ends in ((1, 0), (0, 1)))
    sides = (unlearned, retrained)
    single = np.where(new, _one_threshold(sides, below, of_errors), -1).max(axis=1)
    double = np.where(new[:, :, None] & last[:, None, :], _two_thresholds(sides, values, below, of_errors), -1)
    ranges = [np.ptp(side, axis=1) for side in sides]
    narrow = np.minimum(*ranges) < NARROW * np.maximum(*ranges)
    return np.where(narrow, CAP, np.clip(np.maximum(single, double.max(axis=(1, 2))), 0, CAP))


def _epsilon_of_errors(models: int, other_models: int) -> Float[np.ndarray, "errors other_errors"]:
    """Epsilon of an attack, by how many models of each side it attributes wrongly; -1 if the attack is ignored."""
    one, other = np.arange(models + 1)[:, None] / models, np.arange(other_models + 1) / other_models
    with np.errstate(divide="ignore", invalid="ignore"):
        either = [np.log(np.maximum(1 - DELTA - a, 0)) - np.log(b) for a, b in ((one, other), (other, one))]
        largest = np.fmax(*either)
    ignored, perfect = (one == 0) != (other == 0), (one == 0) & (other == 0)
    return np.where(perfect, np.inf, np.where(ignored, -1.0, np.maximum(largest, 0.0)))


def _one_threshold(
    sides: tuple[np.ndarray, np.ndarray], below: list[np.ndarray], of_errors: np.ndarray
) -> Float[np.ndarray, "records thresholds"]:
    """Epsilon for a threshold at each value; values at or above it are attributed to the side of the larger median."""
    upper = np.median(sides[1], axis=1) > np.median(sides[0], axis=1)
    under = [counts[:, :-1] for counts in below]
    over = [counts[:, -1:] - counts[:, :-1] for counts in below]
    return np.where(upper[:, None], of_errors[over[0], under[1]], of_errors[under[0], over[1]])


def _two_thresholds(
    sides: tuple[np.ndarray, np.ndarray], values: np.ndarray, below: list[np.ndarray], of_errors: np.ndarray
) -> Float[np.ndarray, "records lower upper"]:
    """Epsilon for each pair of thresholds; values between them are attributed to the side of the smaller range."""
    ranges = [np.ptp(side, axis=1) for side in sides]
    first = ranges[0] < ranges[1]
    inside = [counts[:, None, 1:] - counts[:, :-1, None] for counts in below]
    outside = [counts[:, -1:, None] - part for counts, part in zip(below, inside, strict=True)]
    rows = np.arange(values.shape[1])
    ordered = rows[:, None] <= rows
    errors = [
        np.where(first[:, None, None], one, other)
        for one, other in zip((outside[0], inside[1]), (inside[0], outside[1]), strict=True)
    ]
    errors_found = of_errors[np.where(ordered, errors[0], 0), np.where(ordered, errors[1], 0)]
    reach = _reachable(values, np.where(first, sides[0].max(axis=1), sides[1].max(axis=1)), np.where(first, *ranges))
    return np.where(ordered & reach, errors_found, -1)


def _reachable(
    values: Float[np.ndarray, "records n"], most: Float[np.ndarray, " records"], width: Float[np.ndarray, " records"]
) -> Bool[np.ndarray, "records n n"]:
    """Whether some allowed pair of thresholds encloses exactly the sorted values from one index to another."""
    beyond = np.pad(values, ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))
    before, after = beyond[:, :-2], beyond[:, 2:]
    # The upper threshold lies below the next larger value, the lower one above the next smaller value.
    lowest, bound = np.maximum(values, most[:, None] - BUFFER), most[:, None] + BUFFER
    nearest = lowest[:, None, :] - values[:, :, None]
    furthest = np.minimum(after, bound)[:, None, :] - before[:, :, None]
    within = (nearest <= width[:, None, None] + BUFFER) & (furthest > width[:, None, None] - BUFFER)
    return within & ((lowest < after) & (lowest <= bound))[:, None, :]


def _ratios(
    unlearned: Answers,
    retrained: Answers,
    unlearned_rows: Int[np.ndarray, " models"],
    retrained_rows: Int[np.ndarray, " others"],
) -> tuple[float, float]:
    """The ratios RA and TA for these unlearned and retrained models, by their rows; NaN if divided by 0."""
    remaining, test = (
        float(one[unlearned_rows].mean() / other[retrained_rows].mean())
        if other[retrained_rows].any()
        else float("nan")
        for one, other in zip(unlearned[1:], retrained[1:], strict=True)
    )
    return remaining, test

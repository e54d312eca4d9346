"""How well forgetting went by three benchmarks: the NeurIPS 2023 unlearning challenge, TOFU, and MUSE.

Triantafillou et al. (2024), "Are we making progress in unlearning?", sections 3 and 4, with the details of the
published code (`google-deepmind/unlearning_evaluation`). Forget quality of Maini, Feng et al. (2024), section 2.2.3,
and privleak of Shi et al. (2025), section 3, with their own spread, as `locuslab/open-unlearning` computes them
(`ks_test`, `privleak`, `mia_auc`).
"""

import warnings
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int

from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.json_types import Number, StrictStruct, number
from jaxaudit.kernels.ranking import auc
from jaxaudit.metrics.arrays import AnyNumbers, AnyOthers, AnyScores, ModelNumbers, Numbers, OneKey, PerModel, Scores
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
    """The outputs of all unlearned models, or of all retrained models: log-odds (nats) of the own class of each record
    of the forget set, and each model's accuracy on the records that remain in training, and on test records.
    """

    log_odds: Scores
    remaining_accuracy: PerModel
    test_accuracy: PerModel


class ChallengeScore(StrictStruct, frozen=True):
    """The challenge's score of unlearned models; larger is better.

    Attributes:
        epsilon: of each record, from 0 to 50; larger means easier to distinguish from retrained models.
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
    key: OneKey, unlearned: Answers, retrained: Answers, *, replicates: int = REPLICATES
) -> ChallengeScore:
    """F, the forgetting quality, and the score of unlearned models, compared with retrained models; larger is better.

    For each record, attacks guess from its log-odds whether a model is unlearned or retrained, at all thresholds that
    make a difference (the published code tries a grid of 0.01 nats): one threshold, or two. With FPR and FNR an
    attack's error rates over models, the record's epsilon is the largest over attacks of

        max(log(1 - delta - FPR) - log FNR, log(1 - delta - FNR) - log FPR),   delta = 1e-5, from 0 to 50

    A record with epsilon in [k / 2, (k + 1) / 2) gets 1 / 2^k points, and none if epsilon is at least ceil(log(models -
    1)). F is the mean of the points. The score is F times two ratios of accuracies, unlearned over retrained.

    Models that were retrained once more have an F near 0.2, not 1: epsilon is the best of many attacks on few models.
    Compare a method only with the F of as many retrained models. All models must be independent: no retrained one may
    share the seed of an unlearned one. Intervals (`interval_over_models`) are for the mean over other models of the
    same numbers.

    >>> import jax
    >>> random = np.random.default_rng(2)
    >>> models = [Answers(random.normal(size=(32, 20)) + shift, np.ones(32), np.ones(32)) for shift in (0, 0, 4)]
    >>> again, gone = (challenge_score(jax.random.key(1), each, models[0]) for each in models[1:])
    >>> round(again.score.value, 2), round(gone.score.value, 2)
    (0.15, 0.01)
    """
    log_odds = checked_sides(unlearned.log_odds, retrained.log_odds, replicates)
    for models, remaining, test in (unlearned, retrained):
        check_shapes((len(models),), remaining=remaining, test=test)
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
    score = interval_over_models(quality * remaining * test, scores, fewest)
    return ChallengeScore(
        tuple(epsilon.tolist()),
        interval_over_models(quality, qualities, fewest),
        number(remaining),
        number(test),
        score if np.isfinite(score.value) else None,
    )


def epsilons(unlearned: Scores, retrained: Float[np.ndarray, "others n"]) -> Numbers:
    """The epsilon of each record (`challenge_score`); an attack with a single rate of 0 is ignored. It is 50, the
    largest, also if the range of one side is below 1% of the other's.
    """
    columns = max(1, ENTRIES // (len(unlearned) + len(retrained)) ** 2)
    parts = [
        _epsilons(unlearned[:, start : start + columns].T, retrained[:, start : start + columns].T)
        for start in range(0, unlearned.shape[1], columns)
    ]
    return np.concatenate(parts)


def points(epsilon: Numbers, models: int) -> Numbers:
    """The points of each record: 1 / 2^k for an epsilon in [k / 2, (k + 1) / 2), 0 from ceil(log(models - 1)) on.

    >>> points(np.array([0.0, 0.49, 0.5, 1.0, 2.9, 3.0, 50.0]), 16).tolist()
    [1.0, 1.0, 0.5, 0.25, 0.03125, 0.0, 0.0]
    """
    return np.where(epsilon < np.ceil(np.log(models - 1)), 0.5 ** np.floor(epsilon / BIN), 0.0)


def _epsilons(unlearned: Float[np.ndarray, "n models"], retrained: Float[np.ndarray, "n others"]) -> Numbers:
    epsilons_of_errors = _epsilon_of_errors(unlearned.shape[1], retrained.shape[1])
    everyone = np.concatenate([unlearned, retrained], axis=1)
    order = np.argsort(everyone, axis=1, kind="stable")
    values = np.take_along_axis(everyone, order, axis=1)
    # below[side][:, i]: how many models of the side are among the i smallest values.
    of_sides = order < unlearned.shape[1], order >= unlearned.shape[1]
    counts_below = [np.pad(np.cumsum(side, axis=1), ((0, 0), (1, 0))) for side in of_sides]
    differs = values[:, 1:] != values[:, :-1]
    new, last = (np.pad(differs, ((0, 0), ends), constant_values=True) for ends in ((1, 0), (0, 1)))
    sides = (unlearned, retrained)
    single = np.where(new, _epsilons_at_one_threshold(sides, counts_below, epsilons_of_errors), -1).max(axis=1)
    double = np.where(
        new[:, :, None] & last[:, None, :],
        _epsilons_at_two_thresholds(sides, values, counts_below, epsilons_of_errors),
        -1,
    )
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


def _epsilons_at_one_threshold(
    sides: tuple[np.ndarray, np.ndarray], counts_below: list[np.ndarray], epsilons_of_errors: np.ndarray
) -> Float[np.ndarray, "n thresholds"]:
    """Epsilon for a threshold at each value; values at or above it are attributed to the side of the larger median."""
    upper = np.median(sides[1], axis=1) > np.median(sides[0], axis=1)
    under = [counts[:, :-1] for counts in counts_below]
    over = [counts[:, -1:] - counts[:, :-1] for counts in counts_below]
    return np.where(upper[:, None], epsilons_of_errors[over[0], under[1]], epsilons_of_errors[under[0], over[1]])


def _epsilons_at_two_thresholds(
    sides: tuple[np.ndarray, np.ndarray],
    values: np.ndarray,
    counts_below: list[np.ndarray],
    epsilons_of_errors: np.ndarray,
) -> Float[np.ndarray, "n lower upper"]:
    """Epsilon for each pair of thresholds; values between them are attributed to the side of the smaller range."""
    ranges = [np.ptp(side, axis=1) for side in sides]
    first = ranges[0] < ranges[1]
    inside = [counts[:, None, 1:] - counts[:, :-1, None] for counts in counts_below]
    outside = [counts[:, -1:, None] - part for counts, part in zip(counts_below, inside, strict=True)]
    rows = np.arange(values.shape[1])
    ordered = rows[:, None] <= rows
    errors = [
        np.where(first[:, None, None], one, other)
        for one, other in zip((outside[0], inside[1]), (inside[0], outside[1]), strict=True)
    ]
    errors_found = epsilons_of_errors[np.where(ordered, errors[0], 0), np.where(ordered, errors[1], 0)]
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
    unlearned_rows: ModelNumbers,
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


TOFU_SOURCE = "Maini, Feng et al. 2024; Shi et al. 2025; Dorna et al. 2025"
NOMINAL = 0.05
"""The level at which forget quality is read: above it, an unlearned model counts as one that was retrained."""
TINY = 1e-10
"""Added to a denominator by open-unlearning."""


class Retrained(StrictStruct, frozen=True):
    """What forget quality and privleak are worth: their values between models that were all retrained.

    Attributes:
        forget_quality: of a target and each of the retrained models; empty without a target.
        between: forget quality of each pair of retrained models; empty without truth ratios.
        share_below: the share of these pairs below `nominal`, the level at which forget quality is read: the realised
            level. None without truth ratios, or if one is NaN.
        privleak: of each ordered pair of retrained models, in percent; empty without areas.
    """

    models: int
    forget_quality: tuple[Number, ...]
    between: tuple[Number, ...]
    share_below: Number
    privleak: tuple[Number, ...]
    nominal: float


def forget_quality(truth_ratios: AnyNumbers, retrained: AnyOthers) -> float:
    """TOFU's forget quality: the p-value of a two-sample Kolmogorov-Smirnov test, larger for more similar models.

    The truth ratios are of the records of the forget set, under the unlearned model and a model retrained without them.
    The test is for two independent samples. These are the same records under two models, so they depend on one another,
    and one retrained model says nothing of the spread between seeds: the p-value is no error rate, and is 1 for a model
    and itself. `between_retrained` measures how it behaves where there is nothing to find. NaN if a truth ratio is NaN.

    >>> round(forget_quality(np.array([0.3, 0.4, 0.5, 0.6]), np.array([0.7, 0.8, 0.9, 1.0])), 6)
    0.028571
    """
    check_ranges("[1, inf)", records=[len(truth_ratios), len(retrained)])
    with warnings.catch_warnings():
        # Where rounding takes the exact p-value above 1, SciPy warns and takes the asymptotic one, as there.
        warnings.simplefilter("ignore", RuntimeWarning)
        _, p_value = np.asarray(scipy.stats.ks_2samp(np.asarray(truth_ratios), np.asarray(retrained)))
    return float(p_value)


def mia_auc(forget: AnyNumbers, holdout: AnyOthers) -> float:
    """The area under the ROC curve of a membership attack, as open-unlearning's `mia_*`: above 0.5 if it finds members.

    P(score of a holdout record > score of a forget record) + P(equal) / 2. Scores are losses: lower for members. The
    holdout are records that no model used. An `InputError` if a score is NaN.

    >>> mia_auc(np.array([0.1, 0.5]), np.array([0.5, 0.9]))
    0.875
    """
    scores = np.concatenate([np.asarray(forget), np.asarray(holdout)])
    return auc(scores, np.arange(len(scores)) >= len(forget))


def privleak(area: float, retrained: float = 0.5) -> float:
    """MUSE's privleak in percent: near 0 for a model like the retrained one, below 0 if it shows the forget set more.

    ((1 - area) - (1 - retrained)) / (1 - retrained + 1e-10) * 100, for areas as `mia_auc` gives them; open-unlearning
    takes those of `mia_min_k`, and 0.5 where it has no retrained model.

    >>> round(privleak(0.9, retrained=0.5), 6)
    -80.0
    """
    other = 1 - retrained
    return ((1 - area) - other) / (other + TINY) * 100


def between_retrained(
    truth_ratios: AnyScores | None = None,
    areas: Float[Array | np.ndarray, " others"] | None = None,
) -> Retrained:
    """Forget quality and privleak of all pairs of retrained models, where there is nothing to find.

    A p-value of a test at its level would lie below 0.05 for a twentieth of pairs. Pairs share models, so the share is
    no more certain than the number of *models* allows. `truth_ratios` has a row for each retrained model, of the same
    records, and `areas` the area of each model's membership attack (`mia_auc`); at least two models.

    >>> models = np.random.default_rng(0).normal(size=(4, 1)) * 0.01 + np.linspace(0.5, 1.5, 100)
    >>> found = between_retrained(models, areas=np.array([0.5, 0.6]))
    >>> found.share_below, np.round(found.privleak, 6)
    (0.0, array([ 25., -20.]))
    """
    if truth_ratios is None and areas is None:
        raise InputError("neither `truth_ratios` nor `areas` is given: give those of the retrained models.")
    check_ranges("[2, inf)", models=[len(of_models) for of_models in (truth_ratios, areas) if of_models is not None])
    ratios, of_attacks = (() if of_models is None else of_models for of_models in (truth_ratios, areas))
    p_values = np.array([forget_quality(*pair) for pair in combinations(ratios, 2)])
    is_below = np.where(np.isnan(p_values), np.nan, p_values < NOMINAL)
    return Retrained(
        models=max(len(ratios), len(of_attacks)),
        forget_quality=(),
        between=tuple(map(number, p_values)),
        share_below=number(is_below.mean()) if is_below.size else None,
        privleak=tuple(number(privleak(*map(float, pair))) for pair in permutations(of_attacks, 2)),
        nominal=NOMINAL,
    )

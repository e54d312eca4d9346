"""How difficult a record is for any model, predicted without using which set the record is in.

So a score's residual after a fit on the predictors is as exchangeable as the score itself.

A score is what difficulty leaves. Log-odds and log-probability, cut, minus what a least-squares fit explains of them by
class, by the classes of a record's nearest neighbours, by what the records teach small models, and by shadow models'
outputs. On targets unlike the shadow models it found more than the learned membership score did in every world tried
(all of 1,000 used: 87 to 79% on digits, 100 to 88% on Location), and where the shadow models have the target's own
recipe it is as fine (minimum detectable fraction, means over recipes: .50 to .54 on digits, .61 to .62 on ACS). So one
score serves the exact p-value, the members' ratio, and what is compared with models of full use.
"""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Shaped
from scipy import special

from jaxaudit.errors import InputError
from jaxaudit.metrics.exchangeability import features
from jaxaudit.metrics.profile import Profile, profiles_of_others
from jaxaudit.metrics.scores import cut
from jaxaudit.randomness import generator_of

CUT, LOG_CUT = 3.0, 8.0
"""Log-odds and log-probabilities are cut at these values, in nats: beyond them, they depend more on a record's
difficulty than on its use."""
NEIGHBOURS = (1, 3, 10, 30)
MOST_NEIGHBOURS = 20_000
"""Neighbours are sought among at most this many records. If there are more, a random sample of all sets is used."""
BLOCK = 512
FARTHEST = 3.0


def difficulty(
    key: Key[Array, ""] | None,
    labels: Int[np.ndarray, " n"],
    inputs: Shaped[np.ndarray, "n ..."] | None = None,
    groups: Int[np.ndarray, " n"] | None = None,
    taught: Float[np.ndarray, "teachings n"] | None = None,
) -> Float[np.ndarray, "n kinds"]:
    """Predictors of how difficult each record is, for `residual_scores`.

    Args:
        key: random key for the choice of features and of candidate neighbours; None without inputs.
        labels, inputs: the records' classes and, if available, their features, of any shape.
        groups: the group of each record, if whole groups were drawn: neighbours are sought in other groups.
        taught: what models say of each record that learned the records' classes, without what they learned from the
            record itself (`metrics.taught`); a row for each way of teaching.

    Raises:
        InputError: there are inputs and no key.

    >>> difficulty(None, np.array([0, 1, 1]))
    array([[1., 0.],
           [0., 1.],
           [0., 1.]])
    """
    parts = [(labels[:, None] == np.unique(labels)).astype(np.float64)]
    if inputs is not None and key is None:
        raise InputError("neighbours are drawn at random: give a random key where there are inputs.")
    if inputs is not None and key is not None and len(labels) > max(NEIGHBOURS):
        parts.append(_of_neighbours(key, labels, inputs, groups))
    if taught is not None:
        parts += [np.stack(_bent(odds), axis=1) for odds in taught]
    return np.concatenate(parts, axis=1)


def _of_models(shadow_profile: Profile) -> Float[np.ndarray, "n kinds"]:
    """What shadow models tell of each record's difficulty."""
    without, gap = shadow_profile.outside, shadow_profile.inside - shadow_profile.outside
    return np.stack([*_bent(without), gap, gap * np.tanh(without / 3)], axis=1)


def _bent(odds: Float[np.ndarray, " n"]) -> list[Float[np.ndarray, " n"]]:
    """Log-odds of a record that are predictors of a target's, and functions of them that bend."""
    return [odds, odds**2, special.log_expit(odds), special.expit(odds), np.tanh(odds / 3)]


def residual(values: Float[np.ndarray, "n *k"], predictors: Float[np.ndarray, "n kinds"]) -> Float[np.ndarray, "n *k"]:
    """The residuals of the values after a least-squares fit on the predictors and a constant."""
    design = _with_constant(predictors)
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


def residual_scores(
    log_odds: Float[Array | np.ndarray, " n"], predictors: Float[np.ndarray, "n kinds"]
) -> Float[np.ndarray, " n"]:
    """Scores of the records of one target: larger means more likely used.

    The score is the sum of two residuals (`residual`), each divided by its standard deviation: of the log-odds, cut at
    `CUT`, and of the log-probability, cut at `LOG_CUT`. The first separates records that a model knows well, the second
    those that it hardly knows.

    Raises:
        InputError: a log-odds is NaN, or there is not one row of predictors per record.
    """
    odds = np.asarray(log_odds, np.float64)
    if np.isnan(odds).any() or len(odds) != len(predictors):
        raise InputError(
            f"there are {len(odds)} log-odds, {int(np.isnan(odds).sum())} of them NaN, for {len(predictors)} records: "
            "give one finite row of outputs a record."
        )
    return _sum_of_residuals(residual(_parts(odds), predictors))


def residual_scores_of_models(
    log_odds: Float[np.ndarray, "models n"],
    profiles: Iterable[Profile],
    predictors: Float[np.ndarray, "n kinds"] | None = None,
) -> Float[np.ndarray, "models n"]:
    """The `residual_scores` of several models, where shadow models of each tell the difficulty of records, too.

    Further predictors are what the shadow models tell of each record without it, in five forms, and by how much they
    tell more with it, in two. `profiles` are those of each model's own shadow models, whose membership masks do not
    depend on the split. `predictors` are those of `difficulty`, which all models share and which are fitted once; None:
    there are none.
    """
    common = _span(np.ones((log_odds.shape[1], 1)) if predictors is None else _with_constant(predictors))
    scores = []
    for odds, shadow_profile in zip(log_odds, profiles, strict=True):
        columns, parts = _of_models(shadow_profile), _parts(np.asarray(odds, np.float64))
        columns = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
        span = _span(columns - common @ (common.T @ columns), 1e-9)
        left = parts - common @ (common.T @ parts)
        scores.append(_sum_of_residuals(left - span @ (span.T @ left)))
    return np.stack(scores)


def residual_scores_among(
    log_odds: Float[Array | np.ndarray, "models n"],
    membership: Bool[np.ndarray, "models n"],
    predictors: Float[np.ndarray, "n kinds"] | None,
) -> Float[np.ndarray, "models n"]:
    """The scores of models of known or assumed membership, each with all others as its shadow models.

    All models are treated alike: if a model of assumed membership is exchangeable with the others, so are its scores.
    """
    models = np.asarray(log_odds, np.float64)
    return residual_scores_of_models(models, profiles_of_others(cut(models), membership), predictors)


ROUNDING = 1e-9
"""Residuals (nats) that deviate by no more are rounding errors."""


def _parts(odds: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 2"]:
    return np.stack([np.clip(odds, -CUT, CUT), np.maximum(special.log_expit(odds), -LOG_CUT)], axis=1)


def _sum_of_residuals(residuals: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
    deviation = residuals.std(axis=0)
    # What a fit leaves of outputs that are all the same is its rounding error.
    return (residuals / np.where(deviation > ROUNDING, deviation, np.inf)).sum(axis=1)


def _with_constant(predictors: Float[np.ndarray, "n kinds"]) -> Float[np.ndarray, "n more"]:
    return np.concatenate([np.ones((len(predictors), 1)), predictors], axis=1)


def _span(columns: Float[np.ndarray, "n kinds"], least: float | None = None) -> Float[np.ndarray, "n rank"]:
    """An orthonormal basis of what these columns span; singular values below `least` count as 0."""
    vectors, values, _ = np.linalg.svd(columns, full_matrices=False)
    least = np.finfo(float).eps * max(columns.shape) * values[0] if least is None else least
    return vectors[:, values > least]


def _of_neighbours(
    key: Key[Array, ""], labels: np.ndarray, inputs: np.ndarray, groups: np.ndarray | None
) -> Float[np.ndarray, "n kinds"]:
    """The share of the nearest neighbours that have the record's class, and how far the nearest of another class is."""
    generator = generator_of(key)
    points = features(generator, inputs)
    group_numbers = np.arange(len(labels)) if groups is None else groups
    candidates = np.arange(len(labels))
    if len(candidates) > MOST_NEIGHBOURS:
        candidates = np.sort(generator.choice(candidates, MOST_NEIGHBOURS, replace=False))
    squares, parts = (points[candidates] ** 2).sum(axis=1), []
    for start in range(0, len(labels), BLOCK):
        block = slice(start, start + BLOCK)
        distances = squares - 2 * points[block] @ points[candidates].T + (points[block] ** 2).sum(axis=1, keepdims=True)
        distances = np.maximum(distances, 0)
        distances[group_numbers[block, None] == group_numbers[candidates]] = np.inf
        parts.append(_predictors(distances, labels[block, None] == labels[candidates]))
    return np.concatenate(parts)


def _predictors(
    distances: Float[np.ndarray, "some n"], same: Bool[np.ndarray, "some n"]
) -> Float[np.ndarray, "some kinds"]:
    """Predictors of some records, from squared distances to all candidates and which candidates have the same class."""
    most = max(NEIGHBOURS)
    nearest = np.argpartition(distances, most, axis=1)[:, :most]
    order = np.argsort(np.take_along_axis(distances, nearest, axis=1), axis=1)
    agree = np.take_along_axis(same, np.take_along_axis(nearest, order, axis=1), axis=1)
    shares = [agree[:, :count].mean(axis=1) for count in NEIGHBOURS]
    same_class, other = (np.where(side, distances, np.inf).min(axis=1) + 1e-6 for side in (same, ~same))
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.nan_to_num(np.clip(np.log(other / same_class), -FARTHEST, FARTHEST), nan=0.0)
    return np.stack([*shares, shares[2] ** 2, apart, np.tanh(2 * apart), np.minimum(apart, 0)], axis=1)

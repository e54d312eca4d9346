"""The probability that the holdout test detects use of part of a query set, before there is a target.

A normal approximation. Its numbers are measured on models of known membership. Other sizes can be evaluated, assuming
that a record is as exposed in a set of another size. Arrays in, numbers out.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float
from scipy import stats

from jaxaudit.errors import InputError
from jaxaudit.metrics.effect import ALPHA, POWER, Effect, detectable_fraction
from jaxaudit.metrics.scores import scores_among

MOST_RECORDS = 10_000_000


class Separation(NamedTuple):
    """How far membership scores separate records in training from others.

    Attributes:
        difference: the mean score of records in training minus that of others, averaged over models.
        inside, outside: variance of the scores within a model, of records in training and of others.
        between: variance of the difference between models, beyond that from the choice of records.
        models: the number of models this was measured on.
    """

    difference: float
    inside: float
    outside: float
    between: float
    models: int


def separation(
    log_odds: Float[Array | np.ndarray, "models n"], membership: Bool[Array | np.ndarray, "models n"]
) -> Separation:
    """Measured on models that were each trained on a random choice of the records; each is scored by the others.

    Args:
        log_odds: each model's log-odds of each record's own class (`log_odds`).
        membership: which records each was trained on.

    Raises:
        InputError: as `scores_among`; or a model has fewer than two records in or out of its training set.

    >>> random = np.random.default_rng(1)
    >>> membership = random.random((20, 400)) < 0.5
    >>> found = separation(random.normal(size=(20, 400)) + 2 * membership, membership)
    >>> bool(0.3 < found.difference < 0.7), bool(found.between < 0.001)
    (True, True)
    """
    membership = np.asarray(membership)
    fewest = int(min(membership.sum(axis=1).min(), (~membership).sum(axis=1).min()))
    if fewest < 2:
        raise InputError(f"a model has {fewest} records in or out of its training set; a variance requires at least 2.")
    scores = scores_among(log_odds, membership)
    inside, outside = _moments(scores, membership), _moments(scores, ~membership)
    differences = inside.mean - outside.mean
    of_records = inside.variance / inside.count + outside.variance / outside.count
    return Separation(
        float(differences.mean()),
        float(inside.variance.mean()),
        float(outside.variance.mean()),
        max(float(differences.var(ddof=1) - of_records.mean()), 0.0),
        len(scores),
    )


def detection_probability(
    measured: Separation, query: int, holdout: int, fraction: float, alpha: float = ALPHA
) -> float:
    """The probability that the holdout test at `alpha` detects use of this fraction of the query set.

    The difference of mean scores is taken as normal with mean f d, where d is the measured difference, and variance

        (f inside + (1 - f) outside + f (1 - f) d^2) / n + outside / m + f^2 between

    for n query and m holdout records. The critical value of the permutation test is taken as the normal quantile of
    1 - alpha times the standard error of all n + m scores pooled.

    >>> measured = Separation(0.5, 0.04, 0.04, 0.0, 31)
    >>> [round(detection_probability(measured, 100, 100, f), 3) for f in (0.0, 0.1, 0.25, 1.0)]
    [0.05, 0.463, 0.965, 1.0]
    """
    within = (
        fraction * measured.inside
        + (1 - fraction) * measured.outside
        + fraction * (1 - fraction) * measured.difference**2
    )
    expected = fraction * measured.difference
    own = within / query + measured.outside / holdout
    records = query + holdout
    mixed = (query * within + holdout * measured.outside) / records + query * holdout / records**2 * expected**2
    critical = stats.norm.ppf(1 - alpha) * np.sqrt(mixed * (1 / query + 1 / holdout))
    spread = np.sqrt(own + fraction**2 * measured.between)
    if spread == 0:
        return float(expected > critical)
    return float(stats.norm.sf((critical - expected) / spread))


def min_detectable_fraction(
    measured: Separation, query: int, holdout: int, models: int, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """The minimum detectable fraction of an audit with `models` shadow models; None if not even 1 is detectable.

    The formula is that of `detectable_fraction`, which the audit prints. With fewer shadow models the effect of full
    use is less well known, and the minimum detectable fraction is larger.

    >>> measured = Separation(0.5, 0.04, 0.04, 0.0, 31)
    >>> [round(min_detectable_fraction(measured, n, n, 31), 3) for n in (100, 1000, 10000)]
    [0.189, 0.06, 0.019]
    """
    variance = measured.outside * (1 / query + 1 / holdout)
    # Any numbers with this mean and variance: the formula asks for no more of them.
    shape = np.linspace(-1, 1, models)
    full = measured.difference + np.sqrt(measured.between) * shape / shape.std(ddof=1)
    critical = float(stats.norm.ppf(1 - alpha) * np.sqrt(variance))
    return detectable_fraction(Effect(0.0, variance, full, 0.0, critical), power)


def records_needed(
    measured: Separation,
    fraction: float,
    alpha: float = ALPHA,
    power: float = POWER,
    most: int = MOST_RECORDS,
    *,
    models: int | None = None,
) -> int | None:
    """The fewest query records, with as many holdout records, that detect this use with probability `power`.

    None if `most` records do not suffice, for example because between-model variance is too large.

    Args:
        measured: how far membership scores separate records in training from others.
        fraction: the used fraction.
        alpha: level of the holdout test.
        power: the probability of detection.
        most: the largest number of records that is tried.
        models: use `min_detectable_fraction` with this many shadow models; None: use `detection_probability`. The two
            approximations differ by some percent.

    >>> known = Separation(0.5, 0.04, 0.04, 0.0, 31)
    >>> records_needed(known, 0.1), records_needed(known, 0.05), records_needed(known, 0.05, models=31)
    (447, 1594, 1430)
    """

    def enough(records: int) -> bool:
        if models is None:
            return detection_probability(measured, records, records, fraction, alpha) >= power
        least = min_detectable_fraction(measured, records, records, models, alpha, power)
        return least is not None and least <= fraction

    high = 2
    while not enough(high):
        if high >= most:
            return None
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


class _Moments(NamedTuple):
    mean: Float[np.ndarray, " models"]
    variance: Float[np.ndarray, " models"]
    count: Float[np.ndarray, " models"]


def _moments(scores: np.ndarray, chosen: np.ndarray) -> _Moments:
    """Of every model's chosen scores."""
    count = chosen.sum(axis=1).astype(float)
    mean = (scores * chosen).sum(axis=1) / count
    squares = ((scores - mean[:, None]) ** 2 * chosen).sum(axis=1)
    return _Moments(mean, squares / (count - 1), count)

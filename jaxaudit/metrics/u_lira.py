"""U-LiRA: a per-record membership attack on unlearned models that knows the unlearning method.

Hayes, Shumailov, Triantafillou, Khalifa & Papernot (2024), "Inexact unlearning needs more careful evaluations to avoid
a false sense of privacy", section 4, after LiRA (Carlini et al. 2022). For each record of the forget set, two normal
distributions of the log-odds of its class are fitted: over models that were trained with the record and *then
unlearned*, and over models retrained without it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.errors import check_ranges
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.metrics.attack_rates import LEAST_EXPECTED
from jaxaudit.metrics.over_models import NONE, Estimate, checked_sides, interval_over_models
from jaxaudit.randomness import generator_of

SOURCE = "Hayes et al. 2024; Carlini et al. 2022"
REPLICATES = 200
LOW = 0.65
"""Models are not distinguishable only if the upper end of U-LiRA's 95% interval is below this: a wide interval, as one
model unlike all others makes it, rules nothing out."""
LEAST_VARIANCE = 1e-12
"""In nats squared; keeps variances positive if all models have the same outputs."""
Sides = tuple[Float[np.ndarray, "models records"], Float[np.ndarray, "others records"]]
Counts = tuple[np.ndarray, np.ndarray]
"""How often each model of either side counts."""


class ULira(NamedTuple):
    """How well unlearned models can be distinguished from retrained ones: the share of right answers, 0.5 by guessing.

    `accuracy` is averaged over records, models and then both sides; `per_record` over models and sides.
    """

    accuracy: Estimate
    per_record: Float[np.ndarray, " records"]


def u_lira(
    key: OneKey,
    unlearned: Float[np.ndarray, "models records"],
    retrained: Float[np.ndarray, "others asked"],
    *,
    level: float = 0.95,
    replicates: int = REPLICATES,
) -> ULira:
    """The leave-one-out accuracy of U-LiRA; larger means less forgotten, 0.5 means indistinguishable.

    For a model left out with log-odds phi (nats) of a record, and means m and variances v (ddof 1) over the other
    models of each side, the answer is "unlearned" if N(phi; m_u, v_u) > N(phi; m_r, v_r); half of a right answer at a
    tie. With few models the accuracy of indistinguishable sides is somewhat below 0.5: a model that is left out is
    missing from its own side. The interval is that of `interval_over_models`, within 0 and 1; in a bootstrap replicate
    all copies of a model are left out together.

    All models must be independent: no retrained model may share the seed of an unlearned one.

    >>> import jax
    >>> random = np.random.default_rng(2)
    >>> models = [random.normal(size=(32, 50)) + shift for shift in (0, 0, 4)]
    >>> again, gone = (u_lira(jax.random.key(1), each, models[0]) for each in models[1:])
    >>> round(again.accuracy.value, 2), round(gone.accuracy.value, 2)
    (0.49, 0.98)
    """
    sides = checked_sides(unlearned, retrained, replicates, level)
    unlearned_right, retrained_right = (side.mean(axis=0) for side in _right(sides, _once(sides)))
    per_record = (unlearned_right + retrained_right) / 2

    def accuracy(counts: Counts) -> float:
        right = zip(_right(sides, counts), counts, strict=True)
        return float(np.mean([np.average(side.mean(axis=1), weights=count) for side, count in right]))

    return ULira(_over_models(key, float(per_record.mean()), accuracy, sides, replicates, level), per_record)


def u_lira_rate(
    key: OneKey,
    unlearned: Float[np.ndarray, "models records"],
    retrained: Float[np.ndarray, "others asked"],
    *,
    false_positive_rate: float = 0.01,
    level: float = 0.95,
    replicates: int = REPLICATES,
) -> Estimate:
    """The true positive rate of U-LiRA: the share of unlearned pairs it finds, at a rate of false alarms.

    A pair is a model and a record. Its evidence is the difference of the two log-densities that `u_lira` compares. One
    threshold holds for all pairs: the smallest evidence that at most the share `false_positive_rate` of the retrained
    models' pairs exceeds. Guessing finds as large a share of unlearned pairs. The interval is made as that of `u_lira`,
    with a threshold of its own in each replicate. NaN if fewer than 10 false alarms are allowed.

    >>> import jax
    >>> random = np.random.default_rng(2)
    >>> models = [random.normal(size=(32, 50)) + shift for shift in (0, 0, 4)]
    >>> again, gone = (u_lira_rate(jax.random.key(1), each, models[0]) for each in models[1:])
    >>> round(again.value, 2), round(gone.value, 2)
    (0.0, 0.95)
    """
    check_ranges("(0, 1)", false_positive_rate=false_positive_rate)
    sides = checked_sides(unlearned, retrained, replicates, level)
    if false_positive_rate * sides[1].size < LEAST_EXPECTED - 1e-9:
        return NONE

    def rate(counts: Counts) -> float:
        return _true_positives(sides, counts, false_positive_rate)

    return _over_models(key, rate(_once(sides)), rate, sides, replicates, level)


def _once(sides: Sides) -> Counts:
    """Every model once."""
    return np.ones(len(sides[0])), np.ones(len(sides[1]))


def _over_models(
    key: OneKey, value: float, statistic: Callable[[Counts], float], sides: Sides, replicates: int, level: float
) -> Estimate:
    """The value with its interval over models, within 0 and 1: the statistic of bootstrap replicates has the counts of
    each model.
    """
    sizes, generator = [len(side) for side in sides], generator_of(key)
    drawn = zip(*(generator.multinomial(size, np.full(size, 1 / size), replicates) for size in sizes), strict=True)
    interval = interval_over_models(value, np.array([statistic(counts) for counts in drawn]), min(sizes), level)
    return Estimate(interval.value, interval.low, min(1.0, interval.high))


def _true_positives(sides: Sides, counts: Counts, rate: float) -> float:
    """The share of unlearned pairs above the threshold that this share of retrained pairs exceeds at most."""
    for_unlearned, for_retrained = _evidence(sides, counts)
    alarms = -for_retrained
    weights = np.repeat(counts[1], alarms.shape[1])
    falling = np.argsort(-alarms.ravel(), kind="stable")
    allowed = np.floor(rate * weights.sum() + 1e-9)
    over = int(np.searchsorted(np.cumsum(weights[falling]), allowed, side="right"))
    threshold = alarms.ravel()[falling[over]]
    return float(np.average((for_unlearned > threshold).mean(axis=1), weights=counts[0]))


def _right(sides: Sides, counts: Counts) -> Sides:
    """Whether each model is attributed to its own side, for each record; 0.5 at a tie."""
    unlearned_evidence, retrained_evidence = _evidence(sides, counts)
    return (np.sign(unlearned_evidence) + 1) / 2, (np.sign(retrained_evidence) + 1) / 2


def _evidence(sides: Sides, counts: Counts) -> Sides:
    """How much larger the log-density of each model's log-odds is on its own side than on the other, by record."""
    parts = []
    for side_number, other in ((0, 1), (1, 0)):
        outputs_of_side = sides[side_number]
        of_own = _log_density(
            outputs_of_side, sides[side_number], counts[side_number] * (1.0 - np.eye(len(outputs_of_side)))
        )
        of_other = _log_density(outputs_of_side, sides[other], 1.0 * counts[other][None])
        parts.append(of_own - of_other)
    return parts[0], parts[1]


def _log_density(
    values: Float[np.ndarray, "asked records"],
    side: Float[np.ndarray, "models records"],
    weights: Float[np.ndarray, "#asked models"],
) -> Float[np.ndarray, "asked records"]:
    """The log-density, without its constant, of the normal distribution that is fitted to a side's weighted models."""
    total = weights.sum(axis=1, keepdims=True)
    # Centred at the median, so that squares of large log-odds do not cancel and lose the variance's digits.
    middle = np.median(side, axis=0)
    mean = weights @ (side - middle) / np.maximum(total, 1)
    squares = weights @ (side - middle) ** 2 - total * mean**2
    variance = np.maximum(squares / np.maximum(total - 1, 1), LEAST_VARIANCE)
    return -((values - (mean + middle)) ** 2) / (2 * variance) - np.log(variance) / 2

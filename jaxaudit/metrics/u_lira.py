"""U-LiRA: a per-record membership attack on unlearned models that knows the unlearning method.

Hayes, Shumailov, Triantafillou, Khalifa & Papernot (2024), "Inexact unlearning needs more careful evaluations to avoid
a false sense of privacy", section 4, after LiRA (Carlini et al. 2022). For each record of the forget set, two normal
distributions of the log-odds of its class are fitted: over models that were trained with the record and *then
unlearned*, and over models retrained without it. A model is called unlearned if its log-odds are more likely under the
first. (Attacks that compare a population of records with another overstate how well a method forgets.)
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key

from jaxaudit.metrics.over_models import Estimate, checked_sides, interval_over_models
from jaxaudit.randomness import generator_of

SOURCE = "Hayes et al. 2024; Carlini et al. 2022"
REPLICATES = 200
LEAST_VARIANCE = 1e-12
"""In nats squared; keeps variances positive if all models have the same outputs."""
Sides = tuple[Float[np.ndarray, "models records"], Float[np.ndarray, "others records"]]


class ULira(NamedTuple):
    """How well unlearned models can be distinguished from retrained ones: the share of right answers, 0.5 by guessing.

    Attributes:
        accuracy: averaged over records, models and then both sides, with its interval.
        per_record: the same for each record.
    """

    accuracy: Estimate
    per_record: Float[np.ndarray, " records"]


def u_lira(
    key: Key[Array, ""],
    unlearned: Float[np.ndarray, "models records"],
    retrained: Float[np.ndarray, "others asked"],
    *,
    level: float = 0.95,
    replicates: int = REPLICATES,
) -> ULira:
    """The leave-one-out accuracy of U-LiRA; larger means less forgotten, 0.5 means indistinguishable.

    For a model left out with log-odds phi of a record, and means m and variances v (ddof 1) over the other models of
    each side, the answer is "unlearned" if N(phi; m_u, v_u) > N(phi; m_r, v_r); half of a right answer at a tie. The
    models of both sides must be independent: no retrained model may share the seed of an unlearned one.

    With few models the accuracy of indistinguishable sides is somewhat below 0.5: a model that is left out is missing
    from its own side. The interval is that of `over_models.interval`, within 0 and 1; in a bootstrap replicate all
    copies of a model are left out together.

    Args:
        key: random key of the bootstrap, of at least 2 `replicates`.
        unlearned, retrained: log-odds of each record's own class, in nats, of unlearned models, and of models retrained
            without the records.
        level: confidence level of the interval.

    Raises:
        InputError: fewer than 4 models on a side, numbers of records that differ, no record, NaN, or `replicates` or
            `level` out of range.

    >>> import jax
    >>> random = np.random.default_rng(2)
    >>> models = [random.normal(size=(32, 50)) + shift for shift in (0, 0, 4)]
    >>> again, gone = (u_lira(jax.random.key(1), each, models[0]) for each in models[1:])
    >>> round(again.accuracy.value, 2), round(gone.accuracy.value, 2)
    (0.49, 0.98)
    """
    sides = checked_sides(unlearned, retrained, replicates, level)
    sizes, generator = [len(side) for side in sides], generator_of(key)
    unlearned_right, retrained_right = (
        side.mean(axis=0) for side in _right(sides, (np.ones(sizes[0]), np.ones(sizes[1])))
    )
    per_record = (unlearned_right + retrained_right) / 2
    drawn = zip(*(generator.multinomial(size, np.full(size, 1 / size), replicates) for size in sizes), strict=True)
    accuracies = []
    for counts in drawn:
        right = zip(_right(sides, counts), counts, strict=True)
        accuracies.append(float(np.mean([np.average(side.mean(axis=1), weights=count) for side, count in right])))
    interval_of_mean = interval_over_models(float(per_record.mean()), np.array(accuracies), min(sizes), level)
    return ULira(Estimate(interval_of_mean.value, interval_of_mean.low, min(1.0, interval_of_mean.high)), per_record)


def _right(sides: Sides, counts: tuple[np.ndarray, np.ndarray]) -> Sides:
    """Whether each model is attributed to its own side, for each record; 0.5 at a tie."""
    parts = []
    for side_number, other in ((0, 1), (1, 0)):
        outputs_of_side = sides[side_number]
        of_own = _log_density(
            outputs_of_side, sides[side_number], counts[side_number] * (1.0 - np.eye(len(outputs_of_side)))
        )
        of_other = _log_density(outputs_of_side, sides[other], 1.0 * counts[other][None])
        parts.append((np.sign(of_own - of_other) + 1) / 2)
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

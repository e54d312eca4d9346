"""Unlearned models beside retrained ones: intervals over models, a test over seeds, a band; and U-LiRA, an attack.

U-LiRA knows the unlearning method: Hayes, Shumailov, Triantafillou, Khalifa & Papernot (2024), "Inexact unlearning
needs more careful evaluations to avoid a false sense of privacy", section 4, after LiRA (Carlini et al. 2022). For each
record of the forget set, two normal distributions of the log-odds of its class are fitted: over models that were
trained with the record and *then unlearned*, and over models retrained without it.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int
from scipy import special

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.json_types import Extended, NumberOrNaN, StrictStruct
from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.arrays import AnyScores, Numbers, OneKey, Scores
from jaxaudit.metrics.usage import ALPHA, LEVEL
from jaxaudit.randomness import generator_of

FEWEST = 4
"""The least number of unlearned, and of retrained, models."""
LEAST_EXPECTED = 10.0
"""A stated rate is reported only if at least this many false positives are expected at it."""
LARGEST = 103.6
"""Log-odds are cut here, in nats, as by the constant 1e-45 in the code of LiRA and of the unlearning challenge."""


class Estimate(StrictStruct, frozen=True):
    """An estimate and its interval; NaN if not available."""

    value: NumberOrNaN
    low: NumberOrNaN
    high: NumberOrNaN


NONE = Estimate(np.nan, np.nan, np.nan)


def mean_of_models(values: Float[Array | np.ndarray, " models"]) -> Estimate:
    """The mean over models and its t interval, cut to [0, 1]; no interval for a single model. NaN is left out."""
    finite_values = np.asarray(values)[np.isfinite(values)]
    mean = float(finite_values.mean()) if len(finite_values) else np.nan
    if len(finite_values) < 2:
        return Estimate(mean, np.nan, np.nan)
    reach = (
        special.stdtrit(len(finite_values) - 1, (1 + LEVEL) / 2)
        * finite_values.std(ddof=1)
        / np.sqrt(len(finite_values))
    )
    return Estimate(mean, max(0.0, float(mean - reach)), min(1.0, float(mean + reach)))


def clopper_pearson(count: int, total: int, level: float) -> Estimate:
    """The share `count / total` and its exact interval (Clopper & Pearson 1934); NaN if `total` is 0.

    >>> round(clopper_pearson(0, 10, 0.95).high, 3)
    0.308
    """
    if not total:
        return NONE
    (low,), (high,) = exact_shares(np.array([count]), total, level)
    return Estimate(count / total, float(low), float(high))


def exact_shares(
    count: Int[np.ndarray, "*shape"], total: Int[np.ndarray, "*shape"] | int, level: float
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """The ends of Clopper and Pearson's interval of each share `count / total`."""
    tail = (1 - level) / 2
    low = np.where(count > 0, special.betaincinv(np.maximum(count, 1), total - count + 1, tail), 0.0)
    high = np.where(count < total, special.betaincinv(count + 1, np.maximum(total - count, 1), 1 - tail), 1.0)
    return low, high


def checked_sides(
    unlearned: AnyScores,
    retrained: Float[Array | np.ndarray, "others asked"],
    replicates: int,
) -> tuple[Scores, Float[np.ndarray, "others asked"]]:
    """The log-odds of unlearned and retrained models in float64, cut at 103.6 nats; refuses what has no interval."""
    sides = [np.asarray(side, np.float64) for side in (unlearned, retrained)]
    check_ranges(f"[{FEWEST}, inf)", "train more of each", models=[len(side) for side in sides])
    check_ranges("[1, inf)", records=sides[0].shape[1])
    check_shapes((len(sides[1]), sides[0].shape[1]), retrained=sides[1])
    check_ranges("[-inf, inf]", unlearned=sides[0], retrained=sides[1])
    check_ranges("[2, inf)", replicates=replicates)
    one, other = (np.clip(side, -LARGEST, LARGEST) for side in sides)
    return one, other


def interval_over_models(value: float, drawn: Float[np.ndarray, " replicates"], models: int) -> Estimate:
    """value -+ t s sqrt(m / (m - 1)), not below 0, with s the standard deviation of bootstrap replicates and m models.

    Percentile intervals would be biased: a replicate has fewer *different* models. On normal log-odds of 8 to 32
    models, 86% to 100% of intervals at 95% contained the mean over other models.

    >>> interval_over_models(0.5, np.array([0.4, 0.5, 0.6]), 16)
    Estimate(value=0.5, low=0.2798..., high=0.7201...)
    """
    reach = float(special.stdtrit(models - 1, (1 + LEVEL) / 2) * np.std(drawn, ddof=1) * np.sqrt(models / (models - 1)))
    return Estimate(value, float(np.maximum(value - reach, 0.0)), value + reach)


Position = Literal["above", "below", "not distinguishable", "too few seeds"]
"""Where a score lies relative to those of retrained models."""


class Place(StrictStruct, frozen=True):
    """The position of the models of one method among the retrained models, on one score; see `place`.

    Attributes:
        verdict: `above` or `below` if the p-value is at most the threshold; `too few seeds` if none could be.
        p_value: of "the method's model and the retrained one of a seed are exchangeable", two-sided, exact.
        retrained_low, retrained_high: the smallest and the largest score of a retrained model.
        share_below, share_above: the share of seeds for which the method's model is below, or above, its band.
    """

    verdict: Position
    p_value: float
    retrained_low: Extended
    retrained_high: Extended
    share_below: float
    share_above: float

    @property
    def differs(self) -> bool:
        """Whether the score differs significantly from those of retrained models."""
        return self.verdict in ("above", "below")


def least_p_value(seeds: int) -> float:
    """The smallest p-value that `place` can give with so many seeds."""
    return 2.0 ** (1 - seeds)


def place(
    method: Float[np.ndarray, " seeds"], retrained: Float[np.ndarray, " seeds"], threshold: float = ALPHA
) -> Place:
    """Compares a method's scores with those of retrained models, seed by seed; scores may be infinite.

    *The band* of a seed is the range of the retrained models of the other seeds, because a seed's own retrained model
    shares its initial weights. A model that is as good as a retrained one falls outside with probability at most 2 / n:
    of n exchangeable numbers each is the smallest or the largest so often. A tie is inside.

    *The test* ranks all 2 n scores and adds up the differences of ranks within seeds. If method and retraining are
    exchangeable, each difference has either sign with equal probability: the p-value is the share of the 2^n sums that
    are at least as far from 0, counted exactly. It is never below 2 / 2^n: five seeds can never reach 0.05.

    >>> place(np.array([5.0, 6.0, 7.0]), np.array([1.0, 2.0, 3.0]), threshold=0.25)
    Place(verdict='above', p_value=0.25, retrained_low=1.0, retrained_high=3.0, share_below=0.0, share_above=1.0)
    """
    seeds = len(method)
    rest = (np.delete(retrained, seed) for seed in range(seeds))
    lows, highs = np.array([(scores.min(), scores.max()) for scores in rest]).T
    # Ranks are doubled to be integers: tied ranks can be halves.
    ranks = np.rint(2 * mid_ranks(np.concatenate([method, retrained]))).astype(int)
    differences = ranks[:seeds] - ranks[seeds:]
    total = int(differences.sum())
    p_value = _share_as_far(differences, abs(total))
    verdict: Position = "not distinguishable" if least_p_value(seeds) <= threshold else "too few seeds"
    if p_value <= threshold:
        verdict = "above" if total > 0 else "below"
    return Place(
        verdict,
        p_value,
        float(retrained.min()),
        float(retrained.max()),
        float((method < lows).mean()),
        float((method > highs).mean()),
    )


def _share_as_far(differences: np.ndarray, distance: int) -> float:
    """The share of sign patterns whose sum is at least `distance` from 0, by adding one seed at a time."""
    reach = int(np.abs(differences).sum())
    shares = np.zeros(2 * reach + 1)
    shares[reach] = 1.0
    for step in np.abs(differences):
        shares = (np.roll(shares, step) + np.roll(shares, -step)) / 2
    sums = np.arange(-reach, reach + 1)
    return min(1.0, float(shares[np.abs(sums) >= distance].sum()))


SOURCE = "Hayes et al. 2024; Carlini et al. 2022"
REPLICATES = 200
LOW = 0.65
"""Models are not distinguishable only if the upper end of U-LiRA's 95% interval is below this: a wide interval, as one
model unlike all others makes it, rules nothing out."""
LEAST_VARIANCE = 1e-12
"""In nats squared; keeps variances positive if all models have the same outputs."""
Sides = tuple[Scores, Float[np.ndarray, "others n"]]
Counts = tuple[np.ndarray, np.ndarray]
"""How often each model of either side counts."""


class ULira(NamedTuple):
    """How well unlearned models can be distinguished from retrained ones: the share of right answers, 0.5 by guessing.

    `accuracy` is averaged over records, models and then both sides; `per_record` over models and sides.
    """

    accuracy: Estimate
    per_record: Numbers


def u_lira(
    key: OneKey,
    unlearned: Scores,
    retrained: Float[np.ndarray, "others asked"],
    *,
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
    sides = checked_sides(unlearned, retrained, replicates)
    unlearned_right, retrained_right = (side.mean(axis=0) for side in _right(sides, _once(sides)))
    per_record = (unlearned_right + retrained_right) / 2

    def accuracy(counts: Counts) -> float:
        right = zip(_right(sides, counts), counts, strict=True)
        return float(np.mean([np.average(side.mean(axis=1), weights=count) for side, count in right]))

    return ULira(_over_models(key, float(per_record.mean()), accuracy, sides, replicates), per_record)


def u_lira_rate(
    key: OneKey,
    unlearned: Scores,
    retrained: Float[np.ndarray, "others asked"],
    *,
    false_positive_rate: float = 0.01,
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
    sides = checked_sides(unlearned, retrained, replicates)
    if false_positive_rate * sides[1].size < LEAST_EXPECTED - 1e-9:
        return NONE

    def rate(counts: Counts) -> float:
        return _true_positives(sides, counts, false_positive_rate)

    return _over_models(key, rate(_once(sides)), rate, sides, replicates)


def _once(sides: Sides) -> Counts:
    """Every model once."""
    return np.ones(len(sides[0])), np.ones(len(sides[1]))


def _over_models(
    key: OneKey, value: float, statistic: Callable[[Counts], float], sides: Sides, replicates: int
) -> Estimate:
    """The value and its interval over models, within 0 and 1, from bootstrap replicates of the counts of each model."""
    sizes, generator = [len(side) for side in sides], generator_of(key)
    drawn = zip(*(generator.multinomial(size, np.full(size, 1 / size), replicates) for size in sizes), strict=True)
    interval = interval_over_models(value, np.array([statistic(counts) for counts in drawn]), min(sizes))
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
    for side, other in ((0, 1), (1, 0)):
        of_own = _log_density(sides[side], sides[side], counts[side] * (1.0 - np.eye(len(sides[side]))))
        of_other = _log_density(sides[side], sides[other], 1.0 * counts[other][None])
        parts.append(of_own - of_other)
    return parts[0], parts[1]


def _log_density(
    values: Float[np.ndarray, "asked n"],
    side: Scores,
    weights: Float[np.ndarray, "#asked models"],
) -> Float[np.ndarray, "asked n"]:
    """The log-density, without its constant, of the normal distribution that is fitted to a side's weighted models."""
    total = weights.sum(axis=1, keepdims=True)
    # Centred at the median, so that squares of large log-odds do not cancel and lose the variance's digits.
    middle = np.median(side, axis=0)
    mean = weights @ (side - middle) / np.maximum(total, 1)
    squares = weights @ (side - middle) ** 2 - total * mean**2
    variance = np.maximum(squares / np.maximum(total - 1, 1), LEAST_VARIANCE)
    return -((values - (mean + middle)) ** 2) / (2 * variance) - np.log(variance) / 2

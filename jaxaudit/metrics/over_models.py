"""Unlearned models beside retrained ones: intervals over models, a band with a stated error rate, a test over seeds."""

from typing import Literal

import numpy as np
from jaxtyping import Array, Float, Int
from scipy import special

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.json_types import Extended, NumberOrNaN, StrictStruct
from jaxaudit.kernels.ranking import mid_ranks
from jaxaudit.metrics.effect import ALPHA

FEWEST = 4
"""The least number of unlearned, and of retrained, models."""
LARGEST = 103.6
"""Log-odds are cut here, in nats, as by the constant 1e-45 in the code of LiRA and of the unlearning challenge."""


class Estimate(StrictStruct, frozen=True):
    """An estimate and its interval; NaN if not available."""

    value: NumberOrNaN
    low: NumberOrNaN
    high: NumberOrNaN


NONE = Estimate(np.nan, np.nan, np.nan)


def mean_of_models(values: Float[Array | np.ndarray, " models"], level: float) -> Estimate:
    """The mean over models and its t interval, cut to [0, 1]; no interval for a single model. NaN is left out."""
    finite_values = np.asarray(values)[np.isfinite(values)]
    mean = float(finite_values.mean()) if len(finite_values) else np.nan
    if len(finite_values) < 2:
        return Estimate(mean, np.nan, np.nan)
    reach = (
        special.stdtrit(len(finite_values) - 1, (1 + level) / 2)
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
    unlearned: Float[Array | np.ndarray, "models records"],
    retrained: Float[Array | np.ndarray, "others asked"],
    replicates: int,
    level: float,
) -> tuple[Float[np.ndarray, "models records"], Float[np.ndarray, "others asked"]]:
    """The log-odds of unlearned and retrained models in float64, cut at 103.6 nats; refuses what has no interval."""
    sides = [np.asarray(side, np.float64) for side in (unlearned, retrained)]
    check_ranges(f"[{FEWEST}, inf)", "train more of each", models=[len(side) for side in sides])
    check_ranges("[1, inf)", records=sides[0].shape[1])
    check_shapes((len(sides[1]), sides[0].shape[1]), retrained=sides[1])
    check_ranges("[-inf, inf]", unlearned=sides[0], retrained=sides[1])
    check_ranges("[2, inf)", replicates=replicates)
    check_ranges("(0, 1)", level=level)
    one, other = (np.clip(side, -LARGEST, LARGEST) for side in sides)
    return one, other


def interval_over_models(value: float, drawn: Float[np.ndarray, " replicates"], models: int, level: float) -> Estimate:
    """value -+ t s sqrt(m / (m - 1)), not below 0, with s the standard deviation of bootstrap replicates and m models.

    Percentile intervals would be biased: a replicate has fewer *different* models. On normal log-odds of 8 to 32
    models, 86% to 100% of intervals at 95% contained the mean over other models.

    >>> interval_over_models(0.5, np.array([0.4, 0.5, 0.6]), 16, 0.95)
    Estimate(value=0.5, low=0.2798..., high=0.7201...)
    """
    reach = float(special.stdtrit(models - 1, (1 + level) / 2) * np.std(drawn, ddof=1) * np.sqrt(models / (models - 1)))
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
    other_retrained = [np.delete(retrained, seed) for seed in range(seeds)]
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
        float(np.mean([one < other.min() for one, other in zip(method, other_retrained, strict=True)])),
        float(np.mean([one > other.max() for one, other in zip(method, other_retrained, strict=True)])),
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

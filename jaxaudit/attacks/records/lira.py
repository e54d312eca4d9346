"""Are a record's log-odds more likely for models trained with it or without it?

LiRA: Carlini et al. (2022). BaVarIA-t: the same, with each record's variance shrunk towards that of all records:
Brännvall (2026).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from jaxaudit.attacks.records.attack import (
    Least,
    PerTarget,
    PerView,
    ShadowScores,
    SideStatistics,
    enough,
    in_out_statistics,
    scored,
)

TINY = 1e-30
"""Added to every standard deviation, as in the authors' code."""


@dataclass(frozen=True)
class LiRA:
    """The log-ratio of two normal densities of log-odds: with the record in training, and without it (algorithm 1).

    There is one difference from algorithm 1: densities are centred at the median of the models' log-odds, as in the
    authors' code, not at their mean, which a single outlier shifts if models are few. If the signal is weak, the rank
    correlation between both scores is about 0.7 to 0.9. Standard deviations divide by n, not n - 1. With several views
    of a record, log-ratios are averaged over views.

    Attributes:
        online: whether models trained with the record are used. If not, the score is -log P(model without the record >
            log-odds), one-sided as in the paper (section VI-C), and without ties.
        fixed: whether all records share one standard deviation, for few shadow models: that of log-odds around each
            record's mean, pooled over records. The authors' code has that of all log-odds, which includes the
            differences between records.
    """

    online: bool = True
    fixed: bool = False
    source = "Carlini et al. 2022"

    @property
    def name(self) -> str:
        return "lira" + ("" if self.online else "-offline") + ("-fixed" if self.fixed else "")

    @property
    def meaning(self) -> str:
        which_models = "with and without the record" if self.online else "without the record (one-sided)"
        return (
            "Likelihood of the record's log-odds under models "
            f"{which_models}{', one width for all' if self.fixed else ''}."
        )

    @property
    def least(self) -> Least:
        # One number has no standard deviation, and that of two is often almost 0 by chance.
        fewest = 1 if self.fixed else 3
        return Least(fewest if self.online else 0, fewest)

    def scores(self, shadowed: ShadowScores) -> PerTarget:
        """See `RecordAttack`; NaN with fewer shadow models than `least`."""
        widths = _pooled_widths(shadowed) if self.fixed else None

        def ratio(block: ShadowScores) -> PerView:
            x, (inner, outer) = block.attacked, in_out_statistics(block)
            of_in, of_out = (np.sqrt(side.variance) for side in (inner, outer))
            if widths is not None:
                of_in, of_out = (width[:, None, None] for width in widths)
            if self.online:
                return log_normal(x, inner.median, of_in) - log_normal(x, outer.median, of_out)
            return -special.log_ndtr((outer.median - x) / (of_out + TINY))

        return scored(shadowed, self.least, ratio)


def log_normal(x: np.ndarray, centre: np.ndarray, width: np.ndarray | float) -> np.ndarray:
    """The log-density of a normal distribution, without its constant.

    >>> log_normal(np.array([2.0]), np.array([0.0]), 1.0)
    array([-2.])
    """
    width = width + TINY
    return -(((x - centre) / width) ** 2) / 2 - np.log(width)


def _pooled_widths(shadowed: ShadowScores) -> tuple[np.ndarray, np.ndarray]:
    """Pooled standard deviations of log-odds around each record's mean: over models with a record, and without it."""
    squares, freedom = [], []
    views = shadowed.models.shape[1]
    for _, block in shadowed.blocks():
        sides = in_out_statistics(block)
        squares.append([np.nansum(side.count[:, None] * side.variance, axis=(1, 2)) for side in sides])
        freedom.append([views * np.maximum(side.count - 1, 0).sum(axis=1) for side in sides])
    total, count = np.sum(squares, axis=0), np.sum(freedom, axis=0)
    # If no record has two models of one side, the other side's standard deviation is used.
    sides = total.sum(axis=0) / np.maximum(count.sum(axis=0), 1)
    inner, outer = np.sqrt(np.where(count > 0, total / np.maximum(count, 1), sides))
    return inner, outer


MOST_FREEDOM = 1e6
"""The prior's degrees of freedom if all records have the same variance."""
LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class BaVarIAt:
    """The log-ratio of two Student t predictive densities of log-odds: with the record in training, and without it.

    For each record and side (models with it, or without it), a normal-inverse-gamma prior is updated with k models of
    mean m and sum of squared deviations S: kappa = k0 + k, mu = (k0 mu0 + k m) / kappa, alpha = a0 + k / 2, and
    beta = b0 + S / 2 + k0 k (m - mu0)^2 / (2 kappa). The prediction for one more model is Student t with 2 alpha
    degrees of freedom, centre mu and squared scale beta (kappa + 1) / (alpha kappa).

    The prior is estimated from all records (empirical Bayes): a0 and b0 from the mean and variance of the log sample
    variances (Smyth 2004), k0 from the variance of the records' means. So one model per side is enough, and tails get
    lighter as k grows. With several views, log-ratios are averaged over views.
    """

    name = "bavaria-t"
    meaning = "Likelihood ratio as LiRA's, each record's spread estimated together with all others'."
    source = "Brännvall 2026"
    least = Least(1, 1)

    def scores(self, shadowed: ShadowScores) -> PerTarget:
        """See `RecordAttack`; NaN with fewer shadow models than `least`."""
        # Priors are estimated from all records, so all blocks are read before the first score.
        blocks = [(part, block, *in_out_statistics(block)) for part, block in shadowed.blocks()]
        priors = prior_of([inner for _, _, inner, _ in blocks]), prior_of([outer for *_, outer in blocks])
        scores = np.full((len(shadowed.attacked), shadowed.models.shape[2]), np.nan)
        for part, block, *sides in blocks:
            inner, outer = (predictive(block.attacked, side, prior) for side, prior in zip(sides, priors, strict=True))
            scores[:, part] = np.where(enough(block, self.least), (inner - outer).mean(axis=1), np.nan)
        return scores


def predictive(x: PerView, side: SideStatistics, prior: Float[np.ndarray, "4 priors"]) -> PerView:
    """The predictive log-density of one more model of a side, without the constant that both sides share."""
    mean, models, shape, scale = prior[:, :, None, None]
    k = side.count[:, None].astype(float)
    m, squares = np.where(k > 0, side.mean, mean), np.where(k > 0, k * side.variance, 0.0)
    kappa = models + k
    centre = (models * mean + k * m) / np.maximum(kappa, 1e-300)
    alpha = shape + k / 2
    beta = scale + squares / 2 + models * k * (m - mean) ** 2 / (2 * np.maximum(kappa, 1e-300))
    freedom, width = 2 * alpha, beta * (kappa + 1) / (alpha * np.maximum(kappa, 1e-300))
    tail = (freedom + 1) / 2 * np.log1p((x - centre) ** 2 / (freedom * width))
    constant = special.gammaln((freedom + 1) / 2) - special.gammaln(freedom / 2) - np.log(freedom) / 2
    return constant - np.log(width) / 2 - tail


def prior_of(blocks: list[SideStatistics]) -> Float[np.ndarray, "4 priors"]:
    """The normal-inverse-gamma prior of one side from all of its records: mu0, k0, a0, b0 of `BaVarIAt`."""
    count = np.concatenate([side.count for side in blocks], axis=1)
    mean = np.concatenate([side.mean for side in blocks], axis=2)
    variance = np.concatenate([side.variance for side in blocks], axis=2)
    return np.array([_prior(*moments) for moments in zip(count, mean, variance, strict=True)]).T


def _prior(count: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> tuple[float, float, float, float]:
    times = np.broadcast_to(count, mean.shape)
    several = times > 1
    sample = np.maximum(variance[several] * (times[several] / (times[several] - 1)), LEAST_VARIANCE)
    seen = times > 0
    overall = float(mean[seen].mean()) if seen.any() else 0.0
    if not len(sample):
        # No record has two models: the variance of the records' means takes the place of a variance over models.
        typical = max(float(mean[seen].var()) if seen.any() else 1.0, LEAST_VARIANCE)
        return overall, 1e-3, 2.0, 2.0 * typical
    typical, freedom = _shared_variance(sample, times[several] - 1)
    between = float(mean[seen].var() - (typical / times[seen]).mean())
    models = typical / between if between > 0 else 1 / LEAST_VARIANCE
    return overall, float(np.clip(models, 1e-6, 1e6)), freedom / 2, freedom * typical / 2


def _shared_variance(sample: np.ndarray, freedom: np.ndarray) -> tuple[float, float]:
    """The prior variance and its degrees of freedom, estimated from all records; Smyth (2004), section 6.2."""
    # Many records have the same degrees of freedom; for each record, these functions took a third of `stacked`.
    different, place = np.unique(freedom, return_inverse=True)
    half = different / 2
    logs = np.log(sample) - special.digamma(half)[place] + np.log(half)[place]
    excess = float(logs.var() - special.polygamma(1, half)[place].mean())
    if excess <= 0:
        return float(np.exp(logs.mean())), MOST_FREEDOM
    freedom_of_variance = min(2 * _inverse_trigamma(excess), MOST_FREEDOM)
    return float(
        np.exp(logs.mean() + special.digamma(freedom_of_variance / 2) - np.log(freedom_of_variance / 2))
    ), freedom_of_variance


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value, by Newton's method on 1 / trigamma; Smyth (2004), appendix."""
    x = 0.5 + 1 / value
    for _ in range(50):
        now = float(special.polygamma(1, x))
        step = now * (1 - now / value) / float(special.polygamma(2, x))
        x += step
        if -step / x < 1e-10:
            break
    return x


ATTACKS = (BaVarIAt(), *(LiRA(online, fixed) for online in (True, False) for fixed in (False, True)))

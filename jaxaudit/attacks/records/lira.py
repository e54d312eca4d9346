"""LiRA: are a record's log-odds more likely for models trained with it or without it? Carlini et al. (2022)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from jaxaudit.attacks.records.attack import Least, ShadowScores, in_out_statistics, scored

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

    def scores(self, shadowed: ShadowScores) -> Float[np.ndarray, "targets n"]:
        """See `RecordAttack`; NaN with fewer shadow models than `least`."""
        widths = _pooled_widths(shadowed) if self.fixed else None

        def ratio(block: ShadowScores) -> Float[np.ndarray, "targets views n"]:
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


ATTACKS = tuple(LiRA(online, fixed) for online in (True, False) for fixed in (False, True))

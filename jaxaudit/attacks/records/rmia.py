"""Attacks by comparison: a probability with its mean over shadow models, or log-odds with those of models without it.

RMIA: Zarifzadeh, Liu & Shokri (2024). BASE: Lassila et al. (2025). Attack-P: Ye et al. (2022).
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
    counts,
    enough,
    left_out,
    scored,
    sum_without,
)
from jaxaudit.errors import check_ranges
from jaxaudit.metrics.arrays import Numbers


def mean_probabilities(shadowed: ShadowScores) -> tuple[PerView, ...]:
    """The mean probability of each record's class over all shadow models, and over those without the record.

    Differences from the smallest probability are averaged, so that the mean of equal ones is exact: its rounding would
    depend on which model was left out, and so reveal membership.
    """
    probability, membership = special.expit(shadowed.models), shadowed.membership[:, None]
    least, (left_in, left_of_others) = probability.min(axis=0), left_out(shadowed)
    of_in = sum_without((probability - least) * membership, left_in)
    of_out = sum_without((probability - least) * ~membership, left_of_others)
    inside, outside = (count[:, None] for count in counts(shadowed))
    with np.errstate(invalid="ignore", divide="ignore"):
        return least + (of_in + of_out) / (inside + outside), least + of_out / outside


@dataclass(frozen=True)
class RMIA:
    """The score is the share of records z for which [p(x) / P(x)] / [p(z) / P(z)] is larger than gamma (equation 4).

    p is the target's probability of a record's class, P the mean probability over shadow models. The records z are
    those that no model was trained on (`ShadowScores.unused`), as in the paper. Without such records, z are all records
    of the bank; a target's scores then depend on how many of these it used. Records that exceed the same z have tied
    scores, which matters at very low false positive rates. With several views the score is their mean.

    Attributes:
        online: whether P is over all shadow models. If not, P = ((1 + scale) mean + 1 - scale) / 2, mean over models
            without the record (equation 10).
        gamma: 2 in the authors' paper; 1 in Privacy Meter.
        scale: 0.3 in the authors' code for CIFAR-10; Privacy Meter tunes it, LeakPro has 0.33.
    """

    online: bool = True
    gamma: float = 2.0
    scale: float = 0.3
    source = "Zarifzadeh, Liu & Shokri 2024"
    of_likelihoods = True

    def __post_init__(self) -> None:
        check_ranges("(0, inf)", gamma=self.gamma)
        check_ranges("[0, 1]", scale=self.scale)

    @property
    def name(self) -> str:
        return "rmia" if self.online else "rmia-offline"

    @property
    def meaning(self) -> str:
        which = "" if self.online else ", with shadow models that were not trained on the record"
        return f"Share of other records whose probability rose less, by the factor {self.gamma:g}{which}."

    @property
    def least(self) -> Least:
        return Least() if self.online else Least(outside=1)

    def relative(self, shadowed: ShadowScores) -> bool:
        """Whether records are compared with records that the target may have used."""
        return shadowed.unused is None

    def scores(self, shadowed: ShadowScores) -> PerTarget:
        """See `RecordAttack`; NaN with fewer shadow models than `least`."""
        targets, (views, records) = shadowed.attacked, shadowed.models.shape[1:]
        scores = np.zeros((len(targets), records))
        ratios, judged = np.empty((len(targets), views, records)), np.empty((len(targets), records), bool)
        for part, block in shadowed.blocks():
            mean, without = mean_probabilities(block)
            if not self.online:
                mean = ((1 + self.scale) * without + 1 - self.scale) / 2
            ratios[:, :, part] = special.expit(block.attacked) / mean
            judged[:, part] = enough(block, self.least)
        for record_ratios, row, seen in zip(ratios, scores, judged, strict=True):
            for of_view in record_ratios:
                row += share_exceeded(
                    of_view, of_view[seen if shadowed.unused is None else shadowed.unused], self.gamma
                )
        return np.where(judged, scores / views, np.nan)


def share_exceeded(ratios: Numbers, population: Float[np.ndarray, " z"], gamma: float) -> Numbers:
    """For each ratio, the share of `population` that it exceeds by a factor of more than `gamma`."""
    if not len(population):
        return np.full(len(ratios), np.nan)
    order = np.sort(population)
    below = np.searchsorted(order, ratios / gamma, side="left")
    # ratio / gamma may round differently from ratio / other; correct the counts by the exact comparison.
    for _ in range(2):
        more = (below < len(order)) & (ratios / order[np.minimum(below, len(order) - 1)] > gamma)
        below = below + more
        fewer = (below > 0) & ~(ratios / order[np.maximum(below - 1, 0)] > gamma)
        below = below - fewer
    return below / len(order)


@dataclass(frozen=True)
class BASE:
    """The score log p - log(mean of p over shadow models), where p is the probability of a record's own class.

    It is Bayes-optimal if models are exponentially weighted by their loss (Lassila et al. 2025). It ranks records like
    RMIA with gamma 1, but without a population and without ties. With several views the score is their mean. If not
    `online`, the mean is over models without the record.
    """

    online: bool = True
    source = "Lassila et al. 2025"

    @property
    def name(self) -> str:
        return "base" if self.online else "base-offline"

    @property
    def meaning(self) -> str:
        which = "" if self.online else " that were not trained on the record"
        return f"Log-probability of the record's class, less that of the shadow models'{which} mean probability."

    @property
    def least(self) -> Least:
        return Least() if self.online else Least(outside=1)

    def scores(self, shadowed: ShadowScores) -> PerTarget:
        """See `RecordAttack`; NaN with fewer shadow models than `least`."""

        def ratio(block: ShadowScores) -> PerView:
            return special.log_expit(block.attacked) - np.log(mean_probabilities(block)[0 if self.online else 1])

        return scored(shadowed, self.least, ratio)


@dataclass(frozen=True)
class AttackP:
    """The score is the log-odds of a record's own class, mean over views. Shadow models only set the threshold.

    This is the baseline of LiRA's authors: a global threshold, as an attack without shadow models has it.
    """

    name = "attack-p"
    meaning = "Log-odds of the record's class, with one threshold for all records."
    source = "Ye et al. 2022"
    least = Least()

    def scores(self, shadowed: ShadowScores) -> PerTarget:
        """See `RecordAttack`."""
        return shadowed.attacked.mean(axis=1)


ATTACKS = (RMIA(), RMIA(online=False), BASE(), BASE(online=False), AttackP())

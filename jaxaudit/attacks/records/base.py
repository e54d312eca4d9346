"""BASE: compares the probability of a record's class with its mean over shadow models. Lassila et al. (2025)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from jaxaudit.attacks.records.attack import Least, ShadowScores, counts, enough, left_out
from jaxaudit.attacks.records.in_out_statistics import sum_without


def mean_probabilities(shadowed: ShadowScores) -> tuple[Float[np.ndarray, "targets views n"], ...]:
    """The mean probability of each record's class over all shadow models, and over those without the record.

    There is one row for all targets if these are not shadow models. NaN without a model. Differences from the smallest
    probability are averaged, so that the mean of equal probabilities is exact. Otherwise its rounding would depend on
    which model was left out, and so reveal membership.
    """
    probability, own = special.expit(shadowed.models), shadowed.membership[:, None]
    least = probability.min(axis=0)
    both = zip(((probability - least) * own, (probability - least) * ~own), left_out(shadowed), strict=True)
    of_in, of_out = (sum_without(side, without) for side, without in both)
    inside, outside = (count[:, None] for count in counts(shadowed))
    with np.errstate(invalid="ignore", divide="ignore"):
        return least + (of_in + of_out) / (inside + outside), least + of_out / outside


@dataclass(frozen=True)
class BASE:
    """The score log p - log(mean of p over shadow models), where p is the probability of a record's own class.

    It is Bayes-optimal if models are exponentially weighted by their loss (Lassila et al. 2025). It ranks records like
    RMIA with gamma 1, but without a population and without ties. With several views the score is their mean.

    Attributes:
        online: whether the mean is over all shadow models; otherwise it is over those without the record.
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

    def scores(self, shadowed: ShadowScores) -> Float[np.ndarray, "targets n"]:
        """The score of each record for each target; NaN with too few shadow models."""
        found = np.full((len(shadowed.attacked), shadowed.models.shape[2]), np.nan)
        for part, block in shadowed.blocks():
            ratio = special.log_expit(block.attacked) - np.log(mean_probabilities(block)[0 if self.online else 1])
            found[:, part] = np.where(enough(block, self.least), ratio.mean(axis=1), np.nan)
        return found


ATTACKS = (BASE(), BASE(online=False))

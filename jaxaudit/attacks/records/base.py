"""BASE: how much surer of a record's class is a model than shadow models are on average? Lassila et al. (2025)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from jaxaudit.attacks.records.attack import Least, ShadowScores, counts, enough, left_out
from jaxaudit.attacks.records.in_out_statistics import sum_without


def mean_probabilities(shadowed: ShadowScores) -> tuple[Float[np.ndarray, "targets views n"], ...]:
    """The probability of a record's class, mean over shadow models: over all, and over those without the record.

    One row for all targets, if these are none of the models; NaN where there is no model. Distances from the smallest
    are added, so that equal probabilities have themselves as mean: how a sum rounds depends on which model was left
    out, and would tell whether it has the record.
    """
    said, own = special.expit(shadowed.models), shadowed.membership[:, None]
    least = said.min(axis=0)
    both = zip(((said - least) * own, (said - least) * ~own), left_out(shadowed), strict=True)
    of_in, of_out = (sum_without(side, without) for side, without in both)
    inside, outside = (count[:, None] for count in counts(shadowed))
    with np.errstate(invalid="ignore", divide="ignore"):
        return least + (of_in + of_out) / (inside + outside), least + of_out / outside


@dataclass(frozen=True)
class BASE:
    """log p - log of the mean p over shadow models, of the probability of a record's own class.

    The Bayes-optimal score of Lassila et al. (2025) where losses are exponential weights. It orders records as RMIA
    with gamma 1 does, but without a population and without ties. With several views it is averaged over them.

    Attributes:
        online: whether the mean is over all shadow models, or over those without the record.
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
        """The score of each record under each target; NaN where there are too few models."""
        found = np.full((len(shadowed.attacked), shadowed.models.shape[2]), np.nan)
        for part, block in shadowed.blocks():
            ratio = special.log_expit(block.attacked) - np.log(mean_probabilities(block)[0 if self.online else 1])
            found[:, part] = np.where(enough(block, self.least), ratio.mean(axis=1), np.nan)
        return found


ATTACKS = (BASE(), BASE(online=False))

"""BASE: how much surer of a record's class is a model than shadow models are on average? Lassila et al. (2025)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from jaxaudit.attacks.records.attack import Least, Shadowed, enough
from jaxaudit.attacks.records.sides import others_sum


def mean_probability(shadowed: Shadowed) -> Float[np.ndarray, "targets views n"]:
    """The probability of each record's class, mean over the shadow models that attack a target; one row for all."""
    probabilities = special.expit(shadowed.models)
    if shadowed.targets is not None:
        return probabilities.mean(axis=0, keepdims=True)
    return others_sum(probabilities) / shadowed.references


def mean_probability_without(shadowed: Shadowed) -> Float[np.ndarray, "targets views n"]:
    """The same over models that were not trained on the record; NaN where there is none."""
    outside = ~shadowed.membership[:, None]
    held = special.expit(shadowed.models) * outside
    count = np.broadcast_to(outside, held.shape).astype(float)
    if shadowed.targets is not None:
        total, times = held.sum(axis=0, keepdims=True), count.sum(axis=0, keepdims=True)
    else:
        total, times = others_sum(held), others_sum(count)
    return np.divide(total, times, out=np.full(total.shape, np.nan), where=times > 0)


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
        return Least(outside=0 if self.online else 1)

    def scores(self, shadowed: Shadowed) -> Float[np.ndarray, "targets n"]:
        """The score of each record under each target; NaN where there are too few models."""
        found = np.full((len(shadowed.attacked), shadowed.models.shape[2]), np.nan)
        for part, block in shadowed.blocks():
            mean = mean_probability(block) if self.online else mean_probability_without(block)
            ratio = special.log_expit(block.attacked) - np.log(mean)
            found[:, part] = np.where(enough(block, self.least), ratio.mean(axis=1), np.nan)
        return found

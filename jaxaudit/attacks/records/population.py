"""Attack-P: is a model sure of a record? One threshold for all records, no shadow model. Ye et al. (2022)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from jaxaudit.attacks.records.attack import Least, ShadowScores


@dataclass(frozen=True)
class AttackP:
    """The log-odds of a record's own class, mean over views; shadow models only set the threshold.

    The global threshold that LiRA's authors compare with: what an attack reaches without a shadow model.
    """

    name = "attack-p"
    meaning = "Log-odds of the record's class, with one threshold for all records."
    source = "Ye et al. 2022"
    least = Least()

    def scores(self, shadowed: ShadowScores) -> Float[np.ndarray, "targets n"]:
        """The score of each record under each target."""
        return shadowed.attacked.mean(axis=1)


ATTACKS = (AttackP(),)

"""Attack-P: thresholds the log-odds of a record's class, without shadow models. Ye et al. (2022)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from jaxaudit.attacks.records.attack import Least, ShadowScores


@dataclass(frozen=True)
class AttackP:
    """The score is the log-odds of a record's own class, mean over views. Shadow models only set the threshold.

    This is the baseline of LiRA's authors: a global threshold, as an attack without shadow models has it.
    """

    name = "attack-p"
    meaning = "Log-odds of the record's class, with one threshold for all records."
    source = "Ye et al. 2022"
    least = Least()

    def scores(self, shadowed: ShadowScores) -> Float[np.ndarray, "targets n"]:
        """The score of each record under each target."""
        return shadowed.attacked.mean(axis=1)


ATTACKS = (AttackP(),)

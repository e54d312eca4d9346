"""Attack-R compares a model's log-odds of a record with those of models trained without it. Ye et al. (2022).

Attack-P thresholds these log-odds, without shadow models.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from jaxaudit.attacks.records.attack import Least, ShadowScores, counts, left_out, scored


@dataclass(frozen=True)
class AttackR:
    """The score is the share of models without the record that have lower log-odds; equal ones count half.

    With few shadow models there are few different scores, so many records tie.
    """

    name = "attack-r"
    meaning = "Share of the models without the record that are less sure of its class."
    source = "Ye et al. 2022"
    least = Least(outside=1)

    def scores(self, shadowed: ShadowScores) -> Float[np.ndarray, "targets n"]:
        """The score of each record for each target, larger for a member; NaN with fewer shadow models than `least`."""

        def share(block: ShadowScores) -> Float[np.ndarray, "targets views n"]:
            shares, outside = np.empty(block.attacked.shape), ~block.membership[:, None]
            (_, without), (_, times) = left_out(block), counts(block)
            for row, x in enumerate(block.attacked):
                of_row = min(row, len(times) - 1)
                lower = _surer(x, block.models, outside).sum(axis=0)
                left = np.take_along_axis(block.models, np.maximum(without[of_row], 0)[None, None], axis=0)[0]
                shares[row] = (lower - _surer(x, left, without[of_row] >= 0)) / np.maximum(times[of_row], 1)
            return shares

        return scored(shadowed, self.least, share)


def _surer(x: np.ndarray, models: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """1 if the target has higher log-odds than a model, 0.5 if equal, else 0; 0 for models that are not `counted`."""
    return np.where(counted, (np.sign(x - models) + 1) / 2, 0.0)


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


ATTACKS = (AttackR(), AttackP())

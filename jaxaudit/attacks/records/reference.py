"""Attack-R: is a model surer of a record than models that never saw it? Ye et al. (2022)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from jaxaudit.attacks.records.attack import Least, Shadowed, counts, enough


@dataclass(frozen=True)
class AttackR:
    """The share of models without the record whose log-odds are lower; equal ones count half.

    With few shadow models there are few different scores, so many records tie.
    """

    name = "attack-r"
    meaning = "Share of the models without the record that are less sure of its class."
    source = "Ye et al. 2022"
    least = Least(outside=1)

    def scores(self, shadowed: Shadowed) -> Float[np.ndarray, "targets n"]:
        """The score of each record under each target; NaN where there are too few models."""
        found = np.full((len(shadowed.attacked), shadowed.models.shape[2]), np.nan)
        for part, block in shadowed.blocks():
            outside, known = ~block.membership[:, None], enough(block, self.least)
            _, times = counts(block)
            for row, x in enumerate(block.attacked):
                below, equal = ((side & outside).sum(axis=0) for side in (block.models < x, block.models == x))
                if block.targets is None:
                    equal = equal - outside[row]  # It equals itself.
                of_row = min(row, len(times) - 1)
                share = (below + equal / 2) / np.maximum(times[of_row], 1)
                found[row, part] = np.where(known[of_row], share.mean(axis=0), np.nan)
        return found

"""An attack on records of your own: how much higher are a model's log-odds than those of the others, on average?

    python own_record_attack.py BANK

It stands beside the built-in attacks, and in their results, tables and pages.
"""

import sys
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

import jaxaudit as ja

TWO_MODELS = ja.attacks.records.Least(together=2)


@dataclass(frozen=True)
class Higher:
    """Takes a record's difficulty off, and compares with models that have the record and models that do not.

    Attributes:
        most: log-odds beyond this count as this, so that no single model decides.
    """

    most: float = float("inf")
    name: str = "higher"
    meaning: str = "Log-odds of the record's class, minus their mean over the other models."
    source: str = "this file"
    least: ja.attacks.records.Least = TWO_MODELS

    def scores(self, shadowed: ja.attacks.records.ShadowScores) -> Float[np.ndarray, "targets records"]:
        """[targets, records], larger for a member."""
        models, attacked = (
            np.minimum(scores, self.most).mean(axis=1) for scores in (shadowed.models, shadowed.attacked)
        )
        above = attacked - models.mean(axis=0)
        # Without targets each shadow model is attacked by the others.
        return above if shadowed.targets is not None else above * len(models) / (len(models) - 1)


if __name__ == "__main__":
    audit = ja.attack(sys.argv[1], attacks=[Higher()])
    print(f"{audit.finding.verdict}: {audit.finding.sentence}")

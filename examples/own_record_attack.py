"""An attack on records of your own: how much higher are a model's log-odds than those of the others, on average?

    python own_record_attack.py BANK
    jaxaudit attack --shadows BANK --attacks stacked,own_record_attack.py:Higher

It stands beside the built-in attacks, and in their results, tables and pages.
"""

import sys
from dataclasses import dataclass
from typing import Any

import jaxaudit as ja
from jaxaudit.attacks.records import ShadowScores
from jaxaudit.attacks.records.attack import Least

TWO_MODELS = Least(together=2)


@dataclass(frozen=True)
class Higher:
    """Takes a record's difficulty off, and compares with models that have the record and models that do not."""

    name: str = "higher"
    meaning: str = "Log-odds of the record's class, minus their mean over the other models."
    source: str = "this file"
    least: Least = TWO_MODELS

    def scores(self, shadowed: ShadowScores) -> Any:
        """[targets, records], larger for a member."""
        models, attacked = shadowed.models.mean(axis=1), shadowed.attacked.mean(axis=1)
        above = attacked - models.mean(axis=0)
        # Without targets each shadow model is attacked by the others.
        return above if shadowed.targets is not None else above * len(models) / (len(models) - 1)


if __name__ == "__main__":
    audit = ja.attack(sys.argv[1], attacks=[Higher()])
    print(f"{audit.finding.verdict}: {audit.finding.sentence}")

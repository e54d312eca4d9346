"""Runs of `attack`, as they are read, checked, shown and compared."""

from collections.abc import Sequence

import numpy as np

from jaxaudit.report.attack.record import AttackRecord
from jaxaudit.report.attack.view import attack_part
from jaxaudit.report.kind import Arrays, Kind, Stored, demand
from jaxaudit.report.page import Picture
from jaxaudit.report.run import Run


def _stored(result: AttackRecord) -> Stored:
    return Stored("outputs.npz", ("truth", *(f"scores_{attack.name}" for attack in result.attacks)))


def _check(result: AttackRecord, arrays: Arrays) -> None:
    names = [attack.name for attack in result.attacks]
    demand(len(set(names)) == len(names) > 0, "it has no attack, or one is named twice")
    demand(result.best_attack in names, "its best attack is none of its attacks")
    demand(0 < result.p_value <= 1, "its p-value is none")
    rates = {len(attack.true_positive_rates) for attack in result.attacks}
    demand(len(rates) == 1, "its attacks have different numbers of true positive rates")
    for attack in result.attacks:
        demand(attack.accuracy.value is not None, "an attack has no accuracy")
        known = (attack.correlation.with_pdtp is None) == (attack.correlation.p_value is None)
        demand(known, "a correlation has no p-value")
    for target in result.targets:
        demand(set(target.accuracy) == set(names), "a target's accuracies are not of the attacks")
    if not arrays:
        return
    truth = arrays["truth"]
    demand(truth.ndim == 2 and truth.dtype == bool and truth.size > 0, "the truth is misshapen")
    for name in names:
        scores = arrays[f"scores_{name}"]
        fits = scores.dtype.kind == "f" and scores.shape == truth.shape and not np.isnan(scores).any()
        demand(fits, f"the scores of {name} are misshapen")


def _compared(runs: Sequence[Run[AttackRecord]]) -> tuple[Picture, ...]:
    from jaxaudit.report.attack.pictures import compared_picture

    return (compared_picture(runs),) if len(runs) > 1 else ()


ATTACK = Kind("attack", AttackRecord, attack_part, _check, _stored, _compared)

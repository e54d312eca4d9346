"""Runs of `attack --shadows`, as they are read, checked, shown and compared."""

from collections.abc import Sequence
from itertools import pairwise

from jaxaudit.report.kind import Arrays, Kind, demand
from jaxaudit.report.page import Picture
from jaxaudit.report.record_attack.beside_pdtp import check_beside
from jaxaudit.report.record_attack.epsilon import Epsilon
from jaxaudit.report.record_attack.record import Rates, RecordAttackRecord
from jaxaudit.report.record_attack.view import record_attack_part
from jaxaudit.report.run import Run


def _check(result: RecordAttackRecord, arrays: Arrays) -> None:
    names = [attack.name for attack in result.attacks]
    demand(len(set(names)) == len(names) > 0, "it has no attack, or one is named twice")
    demand(result.decided_by == names[0], "its first attack is not the one that decides")
    for attack in result.attacks:
        _check_rates(attack)
        if attack.of_targets is not None:
            _check_rates(attack.of_targets)
    limits = {tuple(rate.fpr for rate in attack.tpr_at_fpr) for attack in result.attacks}
    demand(len(limits) == 1 and limits != {()}, "its attacks have different false positive rates, or none")
    if result.epsilon is not None:
        _check_epsilon(result.epsilon)
    if result.beside_pdtp is not None:
        check_beside(result.beside_pdtp)
    exposure = result.exposure
    edges, counts = exposure.separation_edges, exposure.separation_counts
    demand(len(edges) == len(counts) + 1 > 1, "its histogram is misshapen")
    demand(all(a < b for a, b in pairwise(edges)), "its histogram is out of order")
    demand(all(count >= 0 for count in counts), "its histogram has a negative number")


def _check_rates(rates: Rates) -> None:
    stated = [[rate.fpr for rate in each] for each in (rates.tpr_at_fpr, rates.realised_fpr)]
    demand(stated[0] == stated[1], "true and false positive rates are not of the same stated ones")
    demand(all(0 < each < 1 for each in stated[0]), "a stated false positive rate is not between 0 and 1")
    for rate in rates.tpr_at_fpr:
        told = rate.resolvable and rate.holds
        demand(told == (rate.value is not None), "a rate is shown that cannot be told, or the reverse")
    shares = {tuple(rate.predictive_value) for rate in rates.tpr_at_fpr}
    demand(len(shares) == 1 and all(_is_share(each) for each in shares.pop()), "its shares of members are no shares")
    points = [rates.roc.fpr, rates.roc.tpr, rates.roc.low, rates.roc.high]
    demand(len({len(each) for each in points}) == 1 and len(points[0]) > 0, "its ROC curve is misshapen")
    demand(all(0 <= value <= 1 for each in points for value in each), "its ROC curve leaves the unit square")


def _check_epsilon(found: Epsilon) -> None:
    demand(found.bound >= 0 and 0 < found.delta < 1 and 0 < found.level < 1, "its epsilon, delta or level is none")
    demand(0 <= found.right <= found.guesses <= found.members + found.non_members, "its guesses are miscounted")


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False


def _compared(runs: Sequence[Run[RecordAttackRecord]]) -> tuple[Picture, ...]:
    from jaxaudit.report.record_attack.pictures import compared_picture

    return (compared_picture(runs),) if len(runs) > 1 else ()


RECORD_ATTACK = Kind("record-attack", RecordAttackRecord, record_attack_part, _check, compared=_compared)

"""Runs of `unlearn`, as they are read, checked, shown and compared."""

from collections.abc import Sequence

import msgspec

from jaxaudit.audits.unlearn.result import ORIGINAL, REFERENCES, RETRAINING
from jaxaudit.report.kind import Arrays, Kind, demand
from jaxaudit.report.page import Picture
from jaxaudit.report.run import Run
from jaxaudit.report.unlearn.record import Method, UnlearnRecord
from jaxaudit.report.unlearn.view import unlearn_part


def _check(result: UnlearnRecord, arrays: Arrays) -> None:
    names = [method.name for method in result.methods]
    demand(len(set(names)) == len(names), "two methods have one name")
    demand({ORIGINAL, RETRAINING} <= set(names), "it has no original, or no retrained models")
    for method in result.methods:
        _check_method(method, result.protocol.seeds)
        demand(
            (method.challenge is None) == (method.u_lira is None), "one of two comparisons with retraining is missing"
        )
        records = result.protocol.forgotten_records
        demand(method.challenge is None or len(method.challenge.epsilon) == records, "epsilons are of other records")
    compared = [method.name for method in result.methods if method.challenge is not None]
    demand(not compared or RETRAINING in compared, "methods are compared with retraining, and it is not")
    measured = [method.scores.efficacy is not None and method.scores.bound is not None for method in result.methods]
    demand(any(measured), "no method has an efficacy and its bound")
    judged = [method.conclusion for method in result.methods if method.conclusion is not None]
    demand(not judged or result.finding.verdict in judged, "its finding is that of no method")
    demand(result.caveats == list(result.finding.caveats), "its caveats are not those of its finding")


def _check_method(method: Method, seeds: int) -> None:
    for name, spread in msgspec.structs.asdict(method.scores).items():
        demand(spread is None or len(spread.values) == seeds > 0, f"scores of {name} and seeds differ in number")
    finding, conclusion = method.finding, method.conclusion
    demand((finding is None) == (method.name in REFERENCES), "a finding is missing or out of place")
    demand(conclusion == (None if finding is None else finding.verdict), "a conclusion is not that of its finding")
    differs = any(place.verdict in ("above", "below") for place in method.places.values())
    demand(finding is None or (conclusion == "distinguishable") == differs, "a conclusion is not that of its places")


def _compared(runs: Sequence[Run[UnlearnRecord]]) -> tuple[Picture, ...]:
    from jaxaudit.report.unlearn.pictures import compared_picture

    return (compared_picture(runs),) if len(runs) > 1 else ()


UNLEARN = Kind("unlearn", UnlearnRecord, unlearn_part, _check, compared=_compared)

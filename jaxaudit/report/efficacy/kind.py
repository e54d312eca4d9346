"""Runs of `efficacy`, as they are read, checked, shown and compared."""

from collections.abc import Sequence

from jaxaudit.report.efficacy.record import EfficacyRecord
from jaxaudit.report.efficacy.view import efficacy_part
from jaxaudit.report.kind import Arrays, Kind, demand
from jaxaudit.report.page import Picture
from jaxaudit.report.run import Run


def _check(result: EfficacyRecord, arrays: Arrays) -> None:
    names = [model.name for model in result.models]
    demand(len(set(names)) == len(names) > 0, "it has no weights, or two have one name")
    roles = [model.role for model in result.models]
    demand(
        roles == ["judged", *["reference"] * (len(roles) - 1)], "its first weights, and they alone, are to be judged"
    )
    layers = {tuple(layer.name for layer in model.layers) for model in result.models}
    demand(len(layers) == 1, "its weights have different layers")
    demand(len(result.records) <= result.records_measured, "it lists more records than were measured")
    for record in result.records:
        demand(set(record.information) == set(names), "a record's information is not of the weights")
    demand(result.caveats == list(result.finding.caveats), "its caveats are not those of its finding")


def _compared(runs: Sequence[Run[EfficacyRecord]]) -> tuple[Picture, ...]:
    from jaxaudit.report.efficacy.pictures import compared_picture

    return (compared_picture(runs),) if len(runs) > 1 else ()


EFFICACY = Kind("efficacy", EfficacyRecord, efficacy_part, _check, compared=_compared)

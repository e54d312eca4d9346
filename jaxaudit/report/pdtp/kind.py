"""Runs of `pdtp`, as they are read, checked, shown and compared."""

from collections.abc import Sequence

import numpy as np

from jaxaudit.audits.pdtp.result import distribution
from jaxaudit.report.kind import Arrays, Kind, Stored, demand
from jaxaudit.report.page import Picture
from jaxaudit.report.pdtp.record import PDTPRecord
from jaxaudit.report.pdtp.view import pdtp_part
from jaxaudit.report.record import as_float
from jaxaudit.report.run import Run

NONE = np.zeros(0)
MOST_RECORDS = 10_000_000
"""Of which a page draws each."""
VERDICTS = {True: "publish", False: "do not publish", None: "inconclusive"}


def _stored(result: PDTPRecord) -> Stored | None:
    """PDTP of every record, where the result lists the riskiest only."""
    if len(result.records) == result.records_measured:
        return None
    return Stored("records.parquet", ("pdtp",), result.records_measured)


def _check(result: PDTPRecord, arrays: Arrays) -> None:
    measured = result.records_measured
    demand(len(result.records) <= measured <= result.training_records, "it measured more records than there are")
    demand(measured <= MOST_RECORDS, f"it measured more than {MOST_RECORDS:,} records")
    bars = [(bar.name, as_float(bar.above), as_float(bar.up_to), bar.breaks_dtp_1) for bar in result.distribution]
    demand(bars == [bar[:4] for bar in distribution(NONE, NONE)], "its distribution has other edges")
    demand(sum(bar.records for bar in result.distribution) == measured, "its distribution is not of its records")
    verdict = VERDICTS[result.publish]
    demand(result.verdict == result.finding.verdict == verdict, "it has two verdicts")
    for name, values in arrays.items():
        fits = values.dtype == np.float64 and len(values) == measured
        demand(fits and bool((values >= 0).all()), f"the {name} of its records are misshapen")
    reduction = result.reduction
    if reduction is not None:
        steps = len(reduction.removed)
        demand(len(reduction.max_pdtp) == steps + 1, "steps and values of its reduction differ in number")


def _compared(runs: Sequence[Run[PDTPRecord]]) -> tuple[Picture, ...]:
    from jaxaudit.report.pdtp.pictures import compared_picture

    return (compared_picture(runs),) if len(runs) > 1 else ()


PDTP = Kind("pdtp", PDTPRecord, pdtp_part, _check, _stored, _compared)

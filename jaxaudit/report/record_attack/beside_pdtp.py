"""PDTP beside the deciding attack: as JSON, and in words and a table."""

from typing import Annotated

import numpy as np
from msgspec import Meta

from jaxaudit.audits.record_attack.result import RecordAudit
from jaxaudit.errors import visible
from jaxaudit.report.kind import demand
from jaxaudit.report.numbers import number as shown
from jaxaudit.report.page import Cells
from jaxaudit.report.record import Extended, Number, Part, as_float, extended, number

MOST_POINTS = 5_000
"""Records that the result lists and the chart has; of more, these with the largest PDTP."""
Count = Annotated[int, Meta(ge=0)]


class BesidePDTP(Part):
    """PDTP beside the attack that decides; `both` to `neither` count records by what they are at risk by.

    At risk: a PDTP above 1 nat; named in half or more of the models trained on the record. Rank correlations are
    Spearman's, of PDTP with the share of models that name the record and with its separation; null where there is none.
    """

    rank_correlation: Number
    p_value: Number
    separation_correlation: Number
    both: Count
    pdtp_alone: Count
    attack_alone: Count
    neither: Count
    pdtp: list[Extended]
    named: list[float]


def beside_of(found: RecordAudit) -> BesidePDTP | None:
    """What a result says of PDTP; None where it was not given."""
    beside = found.pdtp
    if beside is None:
        return None
    places = np.flatnonzero(beside.compared)
    listed = np.sort(places[np.argsort(-beside.pdtp[places], kind="stable")[:MOST_POINTS]])
    return BesidePDTP(
        rank_correlation=number(beside.rank_correlation.coefficient),
        p_value=number(beside.rank_correlation.p_value),
        separation_correlation=number(beside.with_separation.coefficient),
        both=beside.both,
        pdtp_alone=beside.pdtp_alone,
        attack_alone=beside.attack_alone,
        neither=beside.neither,
        pdtp=[extended(value) for value in beside.pdtp[listed]],
        named=found.vulnerability.named[listed].tolist(),
    )


def check_beside(found: BesidePDTP) -> None:
    """Refuses numbers that do not fit one another."""
    records = found.both + found.pdtp_alone + found.attack_alone + found.neither
    demand(len(found.pdtp) == len(found.named) == min(records, MOST_POINTS), "PDTP and calls are of other records")
    demand(all(as_float(each) >= 0 for each in found.pdtp), "a PDTP is below 0")
    demand(all(0 <= each <= 1 for each in found.named), "a share of models that name a record is none")


def beside_table(found: BesidePDTP, attack: str) -> Cells:
    """Records by what they are at risk by."""
    columns = ("", f"given away by {visible(attack)}", "not given away")
    rows = (
        ("PDTP above 1", f"{found.both:,}", f"{found.pdtp_alone:,}"),
        ("PDTP up to 1", f"{found.attack_alone:,}", f"{found.neither:,}"),
    )
    return Cells("Records at risk by PDTP, and by the attack", columns, rows, columns[1:], on="both")


def beside_words(found: BesidePDTP) -> str:
    """How the two agree, in a sentence."""
    if found.rank_correlation is None:
        return "PDTP and the attack have no rank correlation: one of them is the same for all records."
    both = f"{shown(found.rank_correlation, 2)} (p = {found.p_value or 0:.1g})"
    return (
        f"Rank correlation of PDTP with how often the attack names a record: {both}; with its separation: "
        f"{shown(found.separation_correlation, 2)}. PDTP is of the classifier of its own run, and does not say how "
        "much models differ by anyhow."
    )

"""Tables of single records of an `attack` run: the riskiest, the attacked, and PDTP compared with the attack."""

import math
from collections.abc import Sequence

from jaxaudit.audits.attack.result import AttackedRecord, AttackResult, BesidePDTP, Exposure
from jaxaudit.errors import visible
from jaxaudit.report.numbers import NONE, number_text, precise
from jaxaudit.report.page import PageTable, Where

LISTED, CUT = 60, " (cut)"


def beside_table(comparison: BesidePDTP, attack: str, unit: str) -> PageTable:
    """Numbers of records or groups at risk by both measures, by one, or by neither."""
    columns = ("", f"given away by {visible(attack)}", "not given away")
    rows = (
        ("PDTP above 1", f"{comparison.both:,}", f"{comparison.pdtp_alone:,}"),
        ("PDTP up to 1", f"{comparison.attack_alone:,}", f"{comparison.neither:,}"),
    )
    return PageTable(f"{unit.title()}s at risk by PDTP, and by the attack", columns, rows, columns[1:], on="both")


def beside_words(comparison: BesidePDTP, unit: str) -> str:
    """A sentence on how the two measures agree."""
    if math.isnan(comparison.rank_correlation):
        return f"PDTP and the attack have no rank correlation: one of them is the same for all {unit}s."
    correlation_words = f"{number_text(comparison.rank_correlation, 2)} (p = {comparison.p_value:.1g})"
    return (
        f"Rank correlation of PDTP with how often the attack names a {unit}: {correlation_words}; with its separation: "
        f"{number_text(comparison.separation_correlation, 2)}. PDTP is of the classifier of its own run, and does not "
        "say how much models differ by anyhow."
    )


def records_tables(result: AttackResult, top: int) -> tuple[PageTable, ...]:
    if result.splits is not None:
        ranked = sorted(result.splits.records, key=lambda record: -record.largest_accuracy)
        return _attacked(ranked[:top], "terminal"), _attacked(ranked[:LISTED], "page")
    assert result.exposure is not None
    return _riskiest(result, result.exposure, top, "terminal"), _riskiest(result, result.exposure, LISTED, "page")


def _attacked(listed: Sequence[AttackedRecord], on: Where) -> PageTable:
    numbers = ("record", "accuracy", "PDTP")
    rows = (
        (
            str(record.index),
            number_text(record.largest_accuracy),
            precise(record.pdtp),
            visible(record.strongest_attack),
        )
        for record in listed
    )
    title = f"The {len(listed)} targets with the highest attack accuracy"
    return PageTable(title, (*numbers, "best attack"), tuple(rows), numbers, folded=True, on=on)


def _riskiest(result: AttackResult, exposure: Exposure, count: int, on: Where) -> PageTable:
    listed, grouped = exposure.riskiest[:count], result.groups is not None
    cells_by_column = {
        "group of record" if grouped else "record": [
            f"{visible(record.set)} {record.place}"
            + (f" ({record.copies} cop{'y' if record.copies == 1 else 'ies'})" if record.copies else "")
            for record in listed
        ],
        "records": [f"{record.records:,}" for record in listed if grouped],
        "class": [visible(record.label) or NONE for record in listed if any(shown.label for shown in listed)],
        "named": [f"{record.named:.0%} of {record.models}" for record in listed],
        "interval": [f"{record.named_low:.0%} to {record.named_high:.0%}" for record in listed],
        "separation": [number_text(record.separation) for record in listed],
        "gap (nats)": [precise(record.gap) + (CUT if record.saturated else "") for record in listed],
        "given away by": [
            NONE if record.revealing is None else visible(record.revealing)
            for record in listed
            if any(shown.revealing is not None for shown in listed)
        ],
    }
    columns = tuple(column for column, cells in cells_by_column.items() if cells)
    rows = tuple(zip(*(cells_by_column[column] for column in columns), strict=True))
    title = f"The {len(listed)} {result.unit}s that are given away most" if listed else ""
    numbers = tuple(column for column in ("records", "separation", "gap (nats)") if column in columns)
    return PageTable(title, columns, rows, numbers, folded=True, on=on)

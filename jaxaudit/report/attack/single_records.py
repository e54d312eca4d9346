"""Tables of single records of an `attack` run: the riskiest, the attacked, and PDTP compared with the attack."""

import math
from collections.abc import Sequence

from jaxaudit.audits.attack.result import AttackResult
from jaxaudit.audits.attack.sections import AttackedRecord, BesidePDTP, Exposure
from jaxaudit.errors import visible
from jaxaudit.report.numbers import NONE, number, precise
from jaxaudit.report.page import Cells, Where

LISTED, CUT = 60, " (cut)"


def beside_table(found: BesidePDTP, attack: str) -> Cells:
    """Numbers of records at risk by both measures, by one, or by neither."""
    columns = ("", f"given away by {visible(attack)}", "not given away")
    rows = (
        ("PDTP above 1", f"{found.both:,}", f"{found.pdtp_alone:,}"),
        ("PDTP up to 1", f"{found.attack_alone:,}", f"{found.neither:,}"),
    )
    return Cells("Records at risk by PDTP, and by the attack", columns, rows, columns[1:], on="both")


def beside_words(found: BesidePDTP) -> str:
    """A sentence on how the two measures agree."""
    if math.isnan(found.rank_correlation):
        return "PDTP and the attack have no rank correlation: one of them is the same for all records."
    both = f"{number(found.rank_correlation, 2)} (p = {found.p_value:.1g})"
    return (
        f"Rank correlation of PDTP with how often the attack names a record: {both}; with its separation: "
        f"{number(found.separation_correlation, 2)}. PDTP is of the classifier of its own run, and does not say how "
        "much models differ by anyhow."
    )


def records_tables(result: AttackResult, top: int) -> tuple[Cells, ...]:
    """Tables of single records, with as many rows as a terminal or a page shows."""
    if result.splits is not None:
        ranked = sorted(result.splits.records, key=lambda record: -record.largest_accuracy)
        return _attacked(ranked[:top], "terminal"), _attacked(ranked[:LISTED], "page")
    assert result.exposure is not None
    return _riskiest(result.exposure, top, "terminal"), _riskiest(result.exposure, LISTED, "page")


def _attacked(listed: Sequence[AttackedRecord], on: Where) -> Cells:
    numbers = ("record", "accuracy", "PDTP")
    rows = (
        (str(each.index), number(each.largest_accuracy), precise(each.pdtp), visible(each.strongest_attack))
        for each in listed
    )
    title = f"The {len(listed)} targets with the highest attack accuracy"
    return Cells(title, (*numbers, "best attack"), tuple(rows), numbers, folded=True, on=on)


def _riskiest(exposure: Exposure, count: int, on: Where) -> Cells:
    listed = exposure.riskiest[:count]
    columns = ("record", "class", "named", "interval", "separation", "gap (nats)", "given away by")
    rows = tuple(
        (
            f"{visible(each.set)} {each.place}"
            + (f" ({each.copies} cop{'y' if each.copies == 1 else 'ies'})" if each.copies else ""),
            visible(each.label) or NONE,
            f"{each.named:.0%} of {each.models}",
            f"{each.named_low:.0%} to {each.named_high:.0%}",
            number(each.separation),
            precise(each.gap) + (CUT if each.saturated else ""),
            NONE if each.revealing is None else visible(each.revealing),
        )
        for each in listed
    )
    title = f"The {len(listed)} records that are given away most" if listed else ""
    return Cells(title, columns, rows, ("separation", "gap (nats)"), folded=True, on=on)

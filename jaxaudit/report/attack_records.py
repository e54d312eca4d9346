"""Tables of single records of an `attack` run: the riskiest, the attacked, and PDTP compared with the attack."""

import math
from collections.abc import Sequence

from jaxaudit.audits.attack.result import AttackResult, BesidePDTP, Riskiest
from jaxaudit.errors import visible
from jaxaudit.report.numbers import NONE, count_text, number_text, precise
from jaxaudit.report.page import Column, PageTable, tables_of_first

CUT = " (cut)"


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
        columns = {
            "record": ("index", str),
            "accuracy": ("largest_accuracy", number_text),
            "PDTP": ("pdtp", precise),
            "best attack": ("strongest_attack", visible),
        }
        return tables_of_first(
            "The {} targets with the highest attack accuracy", ranked, top, columns, ("best attack",)
        )
    assert result.exposure is not None
    return _riskiest(result, result.exposure.riskiest, top)


def _riskiest(result: AttackResult, riskiest: Sequence[Riskiest], top: int) -> tuple[PageTable, ...]:
    def place(record: Riskiest) -> str:
        copies = f" ({record.copies} cop{'y' if record.copies == 1 else 'ies'})" if record.copies else ""
        return f"{visible(record.set)} {record.place}{copies}"

    grouped = result.groups is not None
    columns: dict[str, Column] = {"group of record" if grouped else "record": place}
    if grouped:
        columns["records"] = ("records", count_text)
    if any(record.label for record in riskiest):
        columns["class"] = lambda record: visible(record.label) or NONE
    columns |= {
        "named": lambda record: f"{record.named:.0%} of {record.models}",
        "interval": lambda record: f"{record.named_low:.0%} to {record.named_high:.0%}",
        "separation": ("separation", number_text),
        "gap (nats)": lambda record: precise(record.gap) + (CUT if record.saturated else ""),
    }
    if any(record.revealing is not None for record in riskiest):
        columns["given away by"] = lambda record: NONE if record.revealing is None else visible(record.revealing)
    words = set(columns) - {"records", "separation", "gap (nats)"}
    return tables_of_first(f"The {{}} {result.unit}s that are given away most", riskiest, top, columns, tuple(words))

"""Tables of single records of an `attack` run: the riskiest, and the attacked."""

from collections.abc import Sequence

from jaxaudit.audits.attack.result import AttackResult, Riskiest
from jaxaudit.errors import visible
from jaxaudit.report.numbers import NONE, count_text, number_text, precise
from jaxaudit.report.page import Column, PageTable, tables_of_first

CUT = " (cut)"


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

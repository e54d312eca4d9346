"""The content of a `pdtp` run for the terminal and the page, and its charts."""

import math
from collections.abc import Sequence

from jaxaudit.audits.finding import Tone
from jaxaudit.audits.pdtp.result import GroupRisk, PDTPResult, Risk, check_pdtp_result
from jaxaudit.errors import visible
from jaxaudit.plots import charts as plot
from jaxaudit.plots.style import chart
from jaxaudit.report.kinds import Run, RunKind, record_type
from jaxaudit.report.numbers import count_text, number_text, text
from jaxaudit.report.page import Answer, PageTable, Picture, RunContent, Where, table_of, tables_of_first
from jaxaudit.report.sources import terms

BAR = 40
MOVES = {1: "more with it", 0: "not moved", -1: "less with it"}


def pdtp_part(run: Run[PDTPResult]) -> RunContent:
    result = run.result
    data = text(run.provenance.data.get("name"))

    return RunContent(
        "Which records does this kind of classifier expose?",
        f"The classifier ({visible(result.model)}) was trained here on {data}, with and without each of "
        f"{_left_out(result)}; no model of yours was judged. PDTP is "
        "how much this changes the output on the record: the larger it is, the more the output reveals that the "
        "classifier was trained on the record.",
        (_answer(result),),
        (
            _distribution(result, "terminal"),
            *_groups(result.groups or ()),
            *_records(result),
            _numbers(result),
        ),
        _legend(result),
        terms("PDTP", "DTP-1", "nat", "seed floor", "bins"),
        (
            "PDTP is measured, not tested: the rule has no error rate. Another random seed alone moves a record by up "
            f"to {number_text(result.seed_floor.max)} nats.",
        ),
        pictures=(_picture(result),),
    )


def _answer(result: PDTPResult) -> Answer:
    measured = f"{result.records_measured:,}"
    return Answer(
        "",
        result.finding,
        "largest PDTP in nats (DTP-1 allows 1)",
        number_text(result.max_pdtp),
        "",
        (
            ("Records above 1", f"{result.above_1:,} of {measured}"),
            ("Records above their seed floor", f"{result.seed_floor.above:,} of {measured}"),
            ("DTP bound over all inputs", _bound(result.dtp_bound, "not available for this learner")),
            ("Target accuracy", _accuracy(result)),
        ),
    )


def _left_out(result: PDTPResult) -> str:
    records = f"{result.records_measured:,} records"
    return records if result.groups is None else f"{len(result.groups):,} groups of {records}"


def _legend(result: PDTPResult) -> tuple[str, ...]:
    floor = "Seed floor: PDTP from another seed alone, with no record left out; mean and max over seeds."
    accuracy = f"Target accuracy: {_accuracy(result)}."
    return (*result.finding.reasons, *((floor,) if result.seed_floor.seeded else ()), accuracy)


def _accuracy(result: PDTPResult) -> str:
    return f"{result.train_accuracy:.1%} train"


def _bound(value: float | None, none: str) -> str:
    return none if value is None else f"{number_text(value)} nats"


def _distribution(result: PDTPResult, on: Where) -> PageTable:
    bars = result.distribution
    most = max(bar.records for bar in bars)
    tones: dict[str, Tone] = {bar.name: "bad" for bar in bars if bar.breaks_dtp_1 and bar.records}
    columns = {"PDTP (nats)": ("name", str), "records": ("records", count_text)}
    if on == "terminal":
        columns[" "] = lambda bar: "█" * math.ceil(BAR * bar.records / most)
    elif result.seed_floor.seeded:
        columns["records by seed floor"] = ("by_seed_floor", count_text)
    return table_of("Records by PDTP", bars, columns, (" ",), tones=tones, on=on)


def _groups(groups: Sequence[GroupRisk]) -> tuple[PageTable, ...]:
    columns = {
        "group of record": ("first", str),
        "records": ("records", count_text),
        "PDTP": ("pdtp", number_text),
        "floor max": ("seed_floor_max", number_text),
    }
    ranked = sorted(groups, key=lambda group: -group.pdtp)
    return tables_of_first("The {} riskiest groups, by their record of the largest PDTP", ranked, columns, top=10)


def _records(result: PDTPResult) -> tuple[PageTable, ...]:
    columns = {"record": ("index", str), "PDTP": ("pdtp", number_text)}
    if result.seed_floor.seeded:
        columns["seed floor"] = ("seed_floor", number_text)
        columns["floor max"] = ("seed_floor_max", number_text)
    columns |= {"copies": ("duplicates", count_text), "class that moves": _moves}
    title = "The {} riskiest records, numbered from 0"
    riskiest = sorted(result.records, key=lambda record: -record.pdtp)
    return tables_of_first(title, riskiest, columns, ("class that moves",), 10)


def _moves(record: Risk) -> str:
    alone = ", the only record of its class" if record.only_member_of_its_class else ""
    return f"{visible(record.class_)}, {MOVES[record.direction]}{alone}"


def _picture(result: PDTPResult) -> Picture:
    lines = " Horizontal lines count the same records by seed floor." if result.seed_floor.seeded else ""
    return Picture(
        "distribution",
        "Number of records by PDTP",
        f"Bars count records on a logarithmic axis. Records right of the line break the DTP-1 rule.{lines}",
        chart(lambda axes: plot.draw_distribution(axes, result)),
        _distribution(result, "page"),
    )


def _numbers(result: PDTPResult) -> PageTable:
    shown = [
        ("Largest PDTP", _bound(result.max_pdtp, "none")),
        ("Largest seed floor", _bound(result.seed_floor.max, "")),
    ]
    shown += [
        (f"PDTP that {float(share):.0%} of records do not exceed", _bound(value, "none"))
        for share, value in result.quantiles.items()
    ]
    counts = {
        "Records above 1 without bins": result.above_1_without_bins,
        "Records above 1 within their seed floor": result.above_1_within_floor,
        "Records with copies": result.copies,
        "Only records of their class": result.lone_members,
    }
    shown += [(name, f"{count:,}") for name, count in counts.items()]
    return PageTable("Numbers", ("what", "value"), tuple(shown), ("value",))


PDTP = RunKind("pdtp", record_type("pdtp", PDTPResult), pdtp_part, check_pdtp_result)

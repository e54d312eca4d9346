"""The content of a `pdtp` run for the terminal and the page."""

import math
from collections.abc import Sequence

from jaxaudit.audits.pdtp.result import Bar, GroupRisk, PDTPResult, Reduction, Risk, check_pdtp_result
from jaxaudit.errors import visible
from jaxaudit.metrics.pdtp import DTP_1
from jaxaudit.report.glossary import terms
from jaxaudit.report.kinds import RunKind, StoredArrays
from jaxaudit.report.numbers import number_text, precise, text
from jaxaudit.report.page import Answer, PageTable, RunContent, Where
from jaxaudit.report.record import Run, record_type

LISTED = 50
BAR = 40
MOVES = {1: "more with it", 0: "not moved", -1: "less with it"}


def pdtp_part(run: Run[PDTPResult], top: int = 10) -> RunContent:
    """The content of a run of `pdtp`; `top` is the number of records that a terminal lists."""
    result = run.result
    learner = text(run.provenance.options.get("model"))
    data = text(run.provenance.data.get("name"))

    return RunContent(
        f"May the {_model(result)} be published?",
        f"The {_model(result)} ({learner}) was trained on {data} with and without each of {_left_out(result)}. PDTP is "
        "how much this changes the output on the record: the larger it is, the more the output reveals that the "
        f"{_model(result)} was trained on the record.",
        (_answer(result),),
        (
            _distribution(result.distribution),
            *_groups(result.groups or (), top, "terminal"),
            *_groups(result.groups or (), LISTED, "page"),
            _riskiest(result, top),
            *(() if result.reduction is None else (_reduction(result.reduction),)),
            _numbers(result),
            _records(result),
        ),
        _legend(result),
        terms("PDTP", "DTP-1", "nat", "seed floor", "bins"),
        (
            "PDTP is measured, not tested: the rule has no error rate. Another random seed alone moves a record by up "
            f"to {number_text(result.seed_floor.max)} nats.",
        ),
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
            *_accuracy(result).items(),
        ),
    )


def _model(result: PDTPResult) -> str:
    return "classifier" if result.texts is None else "language model"


def _left_out(result: PDTPResult) -> str:
    records = f"{result.records_measured:,} records"
    return records if result.groups is None else f"{len(result.groups):,} groups of {records}"


def _legend(result: PDTPResult) -> tuple[str, ...]:
    floor = "Seed floor: PDTP from another seed alone, with no record left out; mean and max over seeds."
    accuracy = (f"{name}: {value}." for name, value in _accuracy(result).items())
    return (*result.finding.reasons, *((floor,) if result.seed_floor.seeded else ()), *accuracy)


def _accuracy(result: PDTPResult) -> dict[str, str]:
    return {} if result.train_accuracy is None else {"Target accuracy": f"{result.train_accuracy:.1%} train"}


def _bound(value: float | None, none: str) -> str:
    return none if value is None else f"{number_text(value)} nats"


def _distribution(bars: Sequence[Bar]) -> PageTable:
    most = max(*(bar.records for bar in bars), 1)
    return PageTable(
        "Records by PDTP",
        ("PDTP (nats)", "records", " "),
        tuple((bar.name, f"{bar.records:,}", _bar(bar.records / most)) for bar in bars),
        ("PDTP (nats)", "records"),
        tones={bar.name: "bad" for bar in bars if bar.breaks_dtp_1 and bar.records},
        on="terminal",
    )


def _bar(share: float) -> str:
    return "█" * math.ceil(BAR * share)


def _riskiest(result: PDTPResult, top: int) -> PageTable:
    records = result.by_risk()[:top]
    seeded = result.seed_floor.seeded
    numbers = ("record", "PDTP", *(("seed floor", "floor max") if seeded else ()), "copies")

    def row(record: Risk) -> tuple[str, ...]:
        floor = (number_text(record.seed_floor), number_text(record.seed_floor_max)) if seeded else ()
        return (str(record.index), number_text(record.pdtp), *floor, f"{record.duplicates:,}", _moves(record))

    title = f"The {len(records):,} riskiest records, numbered from 0"
    return PageTable(title, (*numbers, "class that moves"), tuple(map(row, records)), numbers, on="terminal")


def _groups(groups: Sequence[GroupRisk], top: int, on: Where) -> tuple[PageTable, ...]:
    shown = sorted(groups, key=lambda group: -group.pdtp)[:top]
    columns = ("group of record", "records", "PDTP", "floor max")
    rows = (
        (str(group.first), f"{group.records:,}", number_text(group.pdtp), number_text(group.seed_floor_max))
        for group in shown
    )
    title = f"The {len(shown):,} riskiest groups, by their record of the largest PDTP"
    return (PageTable(title, columns, tuple(rows), columns, on=on),) if groups else ()


def _moves(record: Risk) -> str:
    alone = ", the only record of its class" if record.only_member_of_its_class else ""
    return f"{visible(record.class_)}, {MOVES[record.direction]}{alone}"


def _reduction(reduction: Reduction) -> PageTable:
    values = reduction.max_pdtp
    scale = max(value for value in (*values, DTP_1) if math.isfinite(value))
    removed = ("none", *map(str, reduction.removed))
    numbers = ("removed", "record", "largest PDTP")
    return PageTable(
        "Largest PDTP as the riskiest record is removed",
        (*numbers, " "),
        tuple(
            (str(step), record, number_text(value), _bar(min(value / scale, 1.0)))
            for step, (record, value) in enumerate(zip(removed, values, strict=True))
        ),
        numbers,
        on="terminal",
    )


def _numbers(result: PDTPResult) -> PageTable:
    rows: list[tuple[str, float]] = [("Largest PDTP", result.max_pdtp), ("Largest seed floor", result.seed_floor.max)]
    for share, value in result.quantiles.items():
        rows.append((f"PDTP that {float(share):.0%} of records do not exceed", value))
    shown = [(name, _bound(value, "none")) for name, value in rows]
    none = "not available for this learner"
    shown += [
        ("No record of any training set moves an output by more than", _bound(result.bound, none)),
        ("No measured record moves an output on any input by more than", _bound(result.dtp_bound, none)),
        ("Records above 1 without bins", f"{result.above_1_without_bins:,}"),
        ("Records above 1 within their seed floor", f"{result.above_1_within_floor:,}"),
        ("Records with copies", f"{result.copies:,}"),
    ]
    if result.train_accuracy is not None:
        shown += [
            ("Only records of their class", f"{result.lone_members:,}"),
            ("Accuracy on the measured records", f"{result.train_accuracy:.1%}"),
        ]
    return PageTable("Numbers", ("what", "value"), tuple(shown), ("value",))


def _records(result: PDTPResult) -> PageTable:
    records = result.by_risk()[:LISTED]
    numbers = ("record", "PDTP", "without bins", "seed floor", "floor max", "copies")
    return PageTable(
        f"The {len(records)} riskiest records (all of them are in records.csv)",
        (*numbers, "class that moves"),
        tuple(
            (
                str(record.index),
                *map(precise, (record.pdtp, record.exact_pdtp, record.seed_floor, record.seed_floor_max)),
                f"{record.duplicates:,}",
                _moves(record),
            )
            for record in records
        ),
        numbers,
        folded=True,
    )


def _stored(result: PDTPResult) -> StoredArrays | None:
    """The file with PDTP of every record, if the result lists only the riskiest."""
    if len(result.records) == result.records_measured:
        return None
    return StoredArrays("records.parquet", ("pdtp",), result.records_measured)


PDTP = RunKind("pdtp", record_type("pdtp", PDTPResult), pdtp_part, check_pdtp_result, _stored)

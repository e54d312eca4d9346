"""The content of a `pdtp` run for the terminal and the page, and its charts."""

import math
from collections.abc import Sequence

import numpy as np

from jaxaudit.audits.pdtp.result import (
    EDGES,
    Bar,
    GroupRisk,
    PDTPResult,
    Reduction,
    Risk,
    check_pdtp_result,
    draw_bars,
    draw_riskiest,
)
from jaxaudit.errors import visible
from jaxaudit.metrics.pdtp import DTP_1
from jaxaudit.plots import pdtp as plot
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.kinds import RunKind, StoredArrays
from jaxaudit.report.numbers import number_text, precise, text
from jaxaudit.report.page import Answer, PageTable, Picture, RunContent, Where
from jaxaudit.report.record import Run, record_type
from jaxaudit.report.sources import terms

LISTED = 50
BAR = 40
MOVES = {1: "more with it", 0: "not moved", -1: "less with it"}


def pdtp_part(run: Run[PDTPResult], top: int = 10) -> RunContent:
    result = run.result
    data = text(run.provenance.data.get("name"))

    return RunContent(
        f"Which records does this kind of {_model(result)} expose?",
        f"The {_model(result)} ({visible(result.model)}) was trained here on {data}, with and without each of "
        f"{_left_out(result)}; no model of yours was judged. PDTP is "
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


DRAWN = 12


def pictures(run: Run[PDTPResult]) -> tuple[Picture, ...]:
    reduction = run.result.reduction
    return (
        _distribution_picture(run.result),
        _riskiest_picture(run.result),
        *(() if reduction is None else (_reduction_picture(reduction),)),
    )


def _distribution_picture(result: PDTPResult) -> Picture:
    bars, seeded = result.distribution, result.seed_floor.seeded
    numbers = ("records by PDTP", *(("by seed floor",) if seeded else ()))
    return Picture(
        "distribution",
        "Number of records by PDTP",
        "; ".join(f"{bar.name} nats: {bar.records:,}" for bar in bars if bar.records),
        "Bars count records on a logarithmic axis. Records right of the line break the DTP-1 rule."
        + (" Horizontal lines count the same records by seed floor." if seeded else ""),
        chart(lambda axes: draw_bars(axes, result)),
        PageTable(
            "Records by PDTP",
            ("nats", *numbers),
            tuple((bar.name, f"{bar.records:,}", *((f"{bar.by_seed_floor:,}",) if seeded else ())) for bar in bars),
            numbers,
        ),
    )


def compared(runs: Sequence[Run[PDTPResult]]) -> tuple[Picture]:
    """The share of records with a PDTP above each value, for several runs in one chart."""
    drawn = [(visible(run.name), _values(run)) for run in runs]
    edges = [edge for edge in EDGES if 0 < edge < np.inf]

    def share(values: np.ndarray, edge: float) -> str:
        return f"{float((values > edge).mean()):.4f}"

    names = tuple(run_name for run_name, _ in drawn)
    picture = Picture(
        "compared-pdtp",
        "Share of records above a PDTP",
        "; ".join(f"{run_name}: {share(values, DTP_1)} of records above 1" for run_name, values in drawn),
        "The further right a curve, the more a classifier leaks. Records right of the line break the DTP-1 rule.",
        chart(lambda axes: plot.draw_shares_above(axes, drawn, limit=DTP_1)),
        PageTable(
            "Share of records above",
            ("PDTP (nats)", *names),
            tuple((f"{edge:g}", *(share(values, edge) for _, values in drawn)) for edge in edges),
            ("PDTP (nats)", *names),
        ),
    )
    return (picture,)


def _values(run: Run[PDTPResult]) -> np.ndarray:
    """PDTP of every measured record; 0 for records that are not among the listed ones."""
    if "pdtp" in run.arrays:
        return run.arrays["pdtp"]
    listed = [record.pdtp for record in run.result.records]
    return np.array([*listed, *[0.0] * (run.result.records_measured - len(listed))])


def _riskiest_picture(result: PDTPResult) -> Picture:
    risks, seeded = result.by_risk()[:DRAWN], result.seed_floor.seeded
    floors = " The grey bar ends at the largest seed floor of the record; its tick marks the mean."
    return Picture(
        "riskiest",
        "The riskiest records",
        "; ".join(f"record {risk.index}: {number_text(risk.pdtp)}" for risk in risks),
        "A mark is a record's PDTP; a diamond breaks the DTP-1 rule." + (floors if seeded else ""),
        chart(lambda axes: draw_riskiest(axes, result, DRAWN), row_height(len(risks)) + 0.2),
        PageTable(
            "The riskiest records",
            ("record", "PDTP", "seed floor", "floor max"),
            tuple(
                (f"record {risk.index}", *map(number_text, (risk.pdtp, risk.seed_floor, risk.seed_floor_max)))
                for risk in risks
            ),
            ("PDTP", "seed floor", "floor max"),
        ),
    )


def _reduction_picture(reduction: Reduction) -> Picture:
    largest = np.array(reduction.max_pdtp)
    removed = ["none", *map(str, reduction.removed)]
    return Picture(
        "reduction",
        "The largest PDTP as the riskiest record is removed",
        f"From {number_text(largest[0])} before the first removal to {number_text(largest[-1])} after "
        f"{len(largest) - 1}.",
        "Removing a record exposes similar records, so the largest PDTP can rise again.",
        chart(lambda axes: plot.draw_reduction(axes, largest, limit=DTP_1)),
        PageTable(
            "After each removal",
            ("removed so far", "record removed", "largest PDTP"),
            tuple(
                (str(step), record, number_text(value))
                for step, (record, value) in enumerate(zip(removed, largest.tolist(), strict=True))
            ),
            ("removed so far", "largest PDTP"),
        ),
    )

"""The content of a `pdtp` run for the terminal and the page, and its charts."""

import math
from collections.abc import Sequence

import numpy as np

from jaxaudit.audits.pdtp.result import GroupRisk, PDTPResult, Reduction, Risk, check_pdtp_result
from jaxaudit.errors import visible
from jaxaudit.metrics.pdtp import DTP_1
from jaxaudit.plots import pdtp as plot
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.kinds import RunKind
from jaxaudit.report.numbers import count_text, number_text, text
from jaxaudit.report.page import Answer, PageTable, Picture, RunContent, Where, table_of, tables_of_first
from jaxaudit.report.record import Run, record_type
from jaxaudit.report.sources import terms

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
            _distribution(result, "terminal"),
            *_groups(result.groups or (), top),
            *_records(result, top),
            *(() if result.reduction is None else (_reduction(result.reduction, "terminal"),)),
            _numbers(result),
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


def _distribution(result: PDTPResult, on: Where) -> PageTable:
    bars = result.distribution
    most, tones = (
        max(*(bar.records for bar in bars), 1),
        {bar.name: "bad" for bar in bars if bar.breaks_dtp_1 and bar.records},
    )
    columns = {"PDTP (nats)": ("name", str), "records": ("records", count_text)}
    if on == "terminal":
        columns[" "] = lambda bar: _bar(bar.records / most)
    elif result.seed_floor.seeded:
        columns["records by seed floor"] = ("by_seed_floor", count_text)
    return table_of("Records by PDTP", bars, columns, (" ",), tones=tones, on=on)


def _bar(share: float) -> str:
    return "█" * math.ceil(BAR * share)


def _groups(groups: Sequence[GroupRisk], top: int) -> tuple[PageTable, ...]:
    columns = {
        "group of record": ("first", str),
        "records": ("records", count_text),
        "PDTP": ("pdtp", number_text),
        "floor max": ("seed_floor_max", number_text),
    }
    ranked = sorted(groups, key=lambda group: -group.pdtp)
    return tables_of_first("The {} riskiest groups, by their record of the largest PDTP", ranked, top, columns)


def _records(result: PDTPResult, top: int) -> tuple[PageTable, ...]:
    columns = {"record": ("index", str), "PDTP": ("pdtp", number_text)}
    if result.seed_floor.seeded:
        columns["seed floor"] = ("seed_floor", number_text)
        columns["floor max"] = ("seed_floor_max", number_text)
    columns |= {"copies": ("duplicates", count_text), "class that moves": _moves}
    title = "The {} riskiest records, numbered from 0"
    return tables_of_first(title, result.by_risk(), top, columns, ("class that moves",))


def _moves(record: Risk) -> str:
    alone = ", the only record of its class" if record.only_member_of_its_class else ""
    return f"{visible(record.class_)}, {MOVES[record.direction]}{alone}"


def _reduction(reduction: Reduction, on: Where) -> PageTable:
    values = reduction.max_pdtp
    scale = max(value for value in (*values, DTP_1) if math.isfinite(value))
    columns = {
        "removed": ("0", str),
        "record": ("1", str),
        "largest PDTP": ("2", number_text),
    }
    if on == "terminal":
        columns[" "] = lambda row: _bar(min(row[2] / scale, 1.0))
    rows = zip(range(len(values)), ("none", *map(str, reduction.removed)), values, strict=True)
    return table_of("Largest PDTP as the riskiest record is removed", rows, columns, (" ",), on=on)


def _numbers(result: PDTPResult) -> PageTable:
    rows: list[tuple[str, float]] = [("Largest PDTP", result.max_pdtp), ("Largest seed floor", result.seed_floor.max)]
    for share, value in result.quantiles.items():
        rows.append((f"PDTP that {float(share):.0%} of records do not exceed", value))
    shown = [(name, _bound(value, "none")) for name, value in rows]
    none = "not available for this learner"
    shown += [
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


DRAWN = 12


def pictures(run: Run[PDTPResult]) -> tuple[Picture, ...]:
    result, reduction = run.result, run.result.reduction
    seeded, risks = result.seed_floor.seeded, result.by_risk()[:DRAWN]
    floors = " The grey bar ends at the largest seed floor of the record; its tick marks the mean."
    drawn = [
        Picture(
            "distribution",
            "Number of records by PDTP",
            "; ".join(f"{bar.name} nats: {bar.records:,}" for bar in result.distribution if bar.records),
            "Bars count records on a logarithmic axis. Records right of the line break the DTP-1 rule."
            + (" Horizontal lines count the same records by seed floor." if seeded else ""),
            chart(lambda axes: plot.draw_distribution(axes, result)),
            _distribution(result, "page"),
        ),
        Picture(
            "riskiest",
            "The riskiest records",
            "; ".join(f"record {risk.index}: {number_text(risk.pdtp)}" for risk in risks),
            "A mark is a record's PDTP; a diamond breaks the DTP-1 rule." + (floors if seeded else ""),
            chart(lambda axes: plot.draw_risks(axes, risks, limit=DTP_1, seeded=seeded), row_height(len(risks)) + 0.2),
            _records(result, DRAWN)[0],
        ),
    ]
    if reduction is not None:
        values = reduction.max_pdtp
        drawn.append(
            Picture(
                "reduction",
                "The largest PDTP as the riskiest record is removed",
                f"From {number_text(values[0])} before the first removal to {number_text(values[-1])} after "
                f"{len(values) - 1}.",
                "Removing a record exposes similar records, so the largest PDTP can rise again.",
                chart(lambda axes: plot.draw_reduction(axes, np.array(values), limit=DTP_1)),
                _reduction(reduction, "page"),
            )
        )
    return tuple(drawn)


def compared(runs: Sequence[Run[PDTPResult]]) -> tuple[Picture]:
    """The share of records with a PDTP above each edge of the distribution, for several runs in one chart."""
    edges = [bar.up_to for bar in runs[0].result.distribution[:-1]]
    drawn = {visible(run.name): _shares_above(run.result) for run in runs}
    columns = {
        "PDTP (nats)": lambda row: f"{row[1]:g}",
        **{name: lambda row, shares=shares: f"{shares[row[0]]:.4f}" for name, shares in drawn.items()},
    }
    at_limit = edges.index(DTP_1)
    picture = Picture(
        "compared-pdtp",
        "Share of records above a PDTP",
        "; ".join(f"{name}: {shares[at_limit]:.4f} of records above 1" for name, shares in drawn.items()),
        "The further right a curve, the more a classifier leaks. Records right of the line break the DTP-1 rule.",
        chart(lambda axes: plot.draw_shares_above(axes, edges, drawn, limit=DTP_1)),
        table_of("Share of records above", enumerate(edges), columns),
    )
    return (picture,)


def _shares_above(result: PDTPResult) -> np.ndarray:
    """The share of records above the upper edge of each bar but the last."""
    counts = np.array([bar.records for bar in result.distribution])
    return 1 - counts.cumsum()[:-1] / result.records_measured


PDTP = RunKind("pdtp", record_type("pdtp", PDTPResult), pdtp_part, check_pdtp_result, pictures, compared)

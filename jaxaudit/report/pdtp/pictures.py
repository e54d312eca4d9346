"""The charts of a `pdtp` run."""

from collections.abc import Sequence

import numpy as np

from jaxaudit.audits.pdtp.charts import draw_bars, draw_riskiest
from jaxaudit.audits.pdtp.result import EDGES, PDTPResult, Reduction
from jaxaudit.errors import visible
from jaxaudit.metrics.pdtp import DTP_1
from jaxaudit.plots import pdtp as plot
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.numbers import number_text
from jaxaudit.report.page import PageTable, Picture
from jaxaudit.report.record import Run

DRAWN = 12


def pictures(run: Run[PDTPResult]) -> tuple[Picture, ...]:
    """All charts of a run."""
    reduction = run.result.reduction
    return (
        _distribution(run.result),
        _riskiest(run.result),
        *(() if reduction is None else (_reduction(reduction),)),
    )


def _distribution(result: PDTPResult) -> Picture:
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


def _riskiest(result: PDTPResult) -> Picture:
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


def _reduction(reduction: Reduction) -> Picture:
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

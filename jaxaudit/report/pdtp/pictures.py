"""The charts of a `pdtp` run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.plots import pdtp as plot
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.report.numbers import nats, number
from jaxaudit.report.page import Cells, Picture
from jaxaudit.report.run import Run, named

DRAWN = 12


def values_of(run: Run) -> np.ndarray:
    """PDTP of every record that is at hand."""
    if "pdtp" in run.arrays:
        return run.arrays["pdtp"]
    return np.array([nats(record["pdtp"]) for record in run.result["records"]])


def distribution_picture(run: Run) -> Picture:
    result = run.result
    values = values_of(run)
    floors = run.arrays.get("seed_floor", np.array([nats(record["seed_floor"]) for record in result["records"]]))
    seeded = result["seed_floor"]["seeded"]
    counts, floor_counts = plot.count(values), plot.count(floors)

    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_distribution(axes, values, floors if seeded else None)
        return figure

    numbers = ("records by PDTP", *(("by seed floor",) if seeded else ()))
    rows = zip(plot.NAMES, counts.tolist(), floor_counts.tolist(), strict=True)
    part = "" if len(values) == result["records_measured"] else f" Only the riskiest {len(values):,} are shown."
    return Picture(
        "distribution",
        "How many records have which PDTP",
        "; ".join(f"{name} nats: {count:,}" for name, count in zip(plot.NAMES, counts.tolist(), strict=True) if count),
        "Bars count records, on a logarithmic axis, so that single ones show. Right of the line DTP-1 is broken. "
        + ("Lines across count the same records by what another seed alone moves." if seeded else "")
        + part,
        draw,
        Cells(
            "Records by PDTP",
            ("nats", *numbers),
            tuple((name, f"{count:,}", *((f"{floor:,}",) if seeded else ())) for name, count, floor in rows),
            numbers,
            folded=True,
        ),
    )


def shares_picture(name: str, runs: Sequence[Run]) -> Picture:
    """Of several runs, how many of their records have a PDTP above each value."""
    drawn = [(named(run), values_of(run)) for run in runs]
    places = [edge for edge in plot.EDGES if 0 < edge < np.inf]

    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_shares_above(axes, drawn)
        return figure

    def share(values: np.ndarray, edge: float) -> str:
        return f"{float((values > edge).mean()):.4f}"

    names = tuple(each for each, _ in drawn)
    return Picture(
        name,
        "Share of records above a PDTP",
        "; ".join(f"{each}: {share(values, 1.0)} of records above 1" for each, values in drawn),
        "The curve further to the right gives away more about its records. Right of the line the DTP-1 rule is broken.",
        draw,
        Cells(
            "Share of records above",
            ("PDTP (nats)", *names),
            tuple((f"{edge:g}", *(share(values, edge) for _, values in drawn)) for edge in places),
            ("PDTP (nats)", *names),
            folded=True,
        ),
    )


def by_risk(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return sorted(result["records"], key=lambda record: -nats(record["pdtp"]))


def riskiest_picture(result: Mapping[str, Any]) -> Picture:
    risks = [
        plot.Risk(f"record {each['index']}", *(nats(each[name]) for name in ("pdtp", "seed_floor", "seed_floor_max")))
        for each in by_risk(result)[:DRAWN]
    ]

    seeded = result["seed_floor"]["seeded"]
    floors = (
        " The grey bar is what seeds alone move the same record by, its tick their mean: a mark beyond its bar is more "
        "than chance."
    )

    def draw() -> Figure:
        figure, axes = canvas(row_height(len(risks)) + 0.2)
        plot.draw_risks(axes, risks, seeded=seeded)
        return figure

    return Picture(
        "riskiest",
        "The riskiest records",
        "; ".join(f"{risk.name}: {number(risk.pdtp)}" for risk in risks),
        "A mark is a record's PDTP; a diamond, one that breaks the rule." + (floors if seeded else ""),
        draw,
        Cells(
            "The riskiest records",
            ("record", "PDTP", "seed floor", "its largest"),
            tuple((risk.name, number(risk.pdtp), number(risk.floor), number(risk.floor_max)) for risk in risks),
            ("PDTP", "seed floor", "its largest"),
            folded=True,
        ),
    )


def reduction_picture(reduction: Mapping[str, Any]) -> Picture:
    largest = np.array([nats(value) for value in reduction["max_pdtp"]])

    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_reduction(axes, largest)
        return figure

    removed = ["none", *(f"{record}" for record in reduction["removed"])]
    return Picture(
        "reduction",
        "The largest PDTP as the riskiest record is removed",
        f"From {number(largest[0])} at first to {number(largest[-1])} after {len(largest) - 1} removals.",
        "Removing a record exposes others that it had stood beside, so the curve rises and falls like a saw.",
        draw,
        Cells(
            "After each removal",
            ("removed so far", "record removed", "largest PDTP"),
            tuple(
                (str(step), record, number(value))
                for step, (record, value) in enumerate(zip(removed, largest.tolist(), strict=True))
            ),
            ("removed so far", "largest PDTP"),
            folded=True,
        ),
    )

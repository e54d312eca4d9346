"""The chart of a `power` run."""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.audits.power.finding import percent
from jaxaudit.plots.power import WANTED, Line, draw_probabilities
from jaxaudit.plots.style import canvas
from jaxaudit.report.page import Picture
from jaxaudit.report.power.record import PowerRecord
from jaxaudit.report.power.view import given_of, sizes_table
from jaxaudit.report.run import Run


def power_pictures(run: Run[PowerRecord]) -> tuple[Picture, ...]:
    """Detection probability by used fraction, a line for each size."""
    result = run.result
    lines = [
        Line(
            size.query,
            size.holdout,
            np.array([each.fraction for each in size.chances]),
            np.array([each.chance_noticed for each in size.chances]),
            size.given,
        )
        for size in result.sizes
    ]

    def draw() -> Figure:
        figure, axes = canvas()
        draw_probabilities(axes, lines, result.fraction)
        return figure

    seen = (f"{percent(each.fraction)}: {100 * each.chance_noticed:.0f}%" for each in given_of(result).chances)
    return (
        Picture(
            "detection",
            "Probability of detection by used fraction",
            f"At the sizes given, by used fraction: {'; '.join(seen)}.",
            f"A line for each size: query + holdout records. Upright: the fraction asked about. Level: {WANTED:.0%}.",
            draw,
            replace(sizes_table(result, "page"), folded=True),
        ),
    )

"""The charts of an `efficacy` run."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.errors import visible
from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import canvas, row_height
from jaxaudit.report.efficacy.record import EfficacyRecord
from jaxaudit.report.numbers import precise
from jaxaudit.report.page import Cells, Picture
from jaxaudit.report.record import as_float
from jaxaudit.report.run import Run, named


def efficacy_pictures(run: Run[EfficacyRecord]) -> tuple[Picture, ...]:
    """All charts of a run."""
    drawn = _drawn(run.result)
    return _efficacies("efficacy", "Efficacy of all weights", drawn), _bounds(drawn)


def compared_picture(runs: Sequence[Run[EfficacyRecord]]) -> Picture:
    """Efficacy of all weights of several runs."""
    drawn = [each._replace(name=f"{named(run)}: {each.name}") for run in runs for each in _drawn(run.result)]
    return _efficacies("compared-efficacy", "Efficacy of all weights of these runs", drawn)


def _drawn(result: EfficacyRecord) -> list[plot.Method]:
    """The weights in question and their references."""
    return [
        plot.Method(visible(model.name), np.array([as_float(model.efficacy)]), np.array([as_float(model.bound)]), None)
        for model in result.models
    ]


def _numbers(drawn: Sequence[plot.Method]) -> Cells:
    return Cells(
        "Efficacy and bound",
        ("weights", "efficacy", "bound"),
        tuple((each.name, precise(float(each.efficacy[0])), precise(float(each.bound[0]))) for each in drawn),
        ("efficacy", "bound"),
        folded=True,
    )


def _efficacies(name: str, title: str, drawn: Sequence[plot.Method]) -> Picture:
    def draw() -> Figure:
        figure, axes = canvas(row_height(len(drawn)))
        plot.draw_efficacies(axes, drawn, None)
        return figure

    return Picture(
        name,
        title,
        "; ".join(f"{each.name}: {precise(float(each.efficacy[0]))}" for each in drawn),
        "On a logarithmic axis: the further left, the less is exposed. A triangle is an infinite value.",
        draw,
        _numbers(drawn),
    )


def _bounds(drawn: Sequence[plot.Method]) -> Picture:
    def draw() -> Figure:
        figure, axes = canvas()
        plot.draw_bounds(axes, drawn)
        return figure

    return Picture(
        "bound",
        "Efficacy against its bound",
        "Every mark lies on or above the line where the two are equal.",
        "The bound is never below the efficacy. The nearer a mark to the dotted line, the tighter the bound.",
        draw,
        _numbers(drawn),
    )

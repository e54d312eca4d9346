"""The chart that audits of information share, none of which knows another: efficacy against its bound."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import canvas
from jaxaudit.report.page import Cells, Picture


def bounds_picture(drawn: Sequence[plot.Method], numbers: Cells) -> Picture:
    """Efficacy against its upper bound, with the numbers beneath."""

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
        numbers,
    )

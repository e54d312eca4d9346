"""The chart of used fractions of a query set."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from jaxaudit.plots.style import BLUE, INK, dress, legend, name_rows


class Row(NamedTuple):
    """A test of one target: the used fraction, its interval and upper limit, and the minimum detectable fraction.

    Shares are from 0 to 1, NaN where there is none.
    """

    name: str
    share: float
    low: float
    high: float
    upper: float
    least: float


def draw_shares(axes: Axes, rows: Sequence[Row], fraction: str = "used fraction") -> None:
    """The fraction, by this name, with its interval and limit, one row per test, and the minimum detectable one."""
    for place, row in enumerate(rows):
        bar = {"color": BLUE, "linewidth": 6, "alpha": 0.35, "solid_capstyle": "butt"}
        axes.plot([row.low, row.high], [place, place], **bar)
        axes.plot([row.share], [place], "D", color=BLUE, markersize=6, label=fraction if not place else None)
        limit = {"color": BLUE, "markersize": 7, "linestyle": "none", "label": None if place else "upper limit"}
        axes.plot([row.upper], [place], "<", **limit)
        tick = {"color": INK, "markersize": 15, "markeredgewidth": 1.8, "linestyle": "none"}
        axes.plot([row.least], [place], "|", label="min. detectable" if not place else None, **tick)
    dress(axes, "fraction of the query set")
    name_rows(axes, [row.name for row in rows])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks(np.linspace(0, 1, 5))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    legend(axes, 2)

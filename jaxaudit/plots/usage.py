"""How much of a query set the tests of use say was used."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from jaxaudit.plots.style import BLUE, INK, dress, legend, name_rows


class Row(NamedTuple):
    """A test of one target: the share that looks used, its interval, and the least that would have shown.

    Shares are from 0 to 1, NaN where there is none.
    """

    name: str
    share: float
    low: float
    high: float
    least: float


def draw_shares(axes: Axes, rows: Sequence[Row]) -> None:
    """The used share with its interval, a row a test, beside the least share whose use would have shown."""
    for place, row in enumerate(rows):
        bar = {"color": BLUE, "linewidth": 6, "alpha": 0.35, "solid_capstyle": "butt"}
        axes.plot([row.low, row.high], [place, place], **bar)
        axes.plot([row.share], [place], "D", color=BLUE, markersize=6, label="looks used" if not place else None)
        tick = {"color": INK, "markersize": 15, "markeredgewidth": 1.8, "linestyle": "none"}
        axes.plot([row.least], [place], "|", label="least seen" if not place else None, **tick)
    dress(axes, "share of the query set")
    name_rows(axes, [row.name for row in rows])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks(np.linspace(0, 1, 5))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    legend(axes, 2)

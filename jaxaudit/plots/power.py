"""The chart of detection probabilities."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from jaxaudit.plots.style import DASHES, MARKERS, MUTED, dress, legend, logarithmic, series_line

WANTED = 0.95
"""The desired probability of detection."""

Fractions = Float[np.ndarray, " fractions"]


class Line(NamedTuple):
    """The detection probability at each used fraction, for one size of query set and holdout.

    Fractions and probabilities are from 0 to 1. The size that the user gave is highlighted.
    """

    query: int
    holdout: int
    fractions: Fractions
    probabilities: Fractions
    is_given: bool

    @property
    def name(self) -> str:
        """The line's name: both numbers of records."""
        return f"{self.query:,} + {self.holdout:,}{' (given)' if self.is_given else ''}"


def draw_probabilities(axes: Axes, lines: Sequence[Line], wanted_fraction: float) -> None:
    """Draws a line for each size: used fraction across, on a logarithmic axis, and the probability of detection up.

    A vertical line marks the fraction `wanted_fraction`, a horizontal one the probability `WANTED`.
    """
    for place, line in enumerate(lines):
        sizes = {"linewidth": 2.6, "markersize": 6} if line.is_given else {"linewidth": 1.4, "markersize": 4.5}
        how: dict[str, Any] = {**sizes, "clip_on": False, "label": line.name, **series_line(place)}
        axes.plot(line.fractions, line.probabilities, MARKERS[place % len(MARKERS)], **how)
    axes.axhline(WANTED, color=MUTED, linewidth=1.2, linestyle=DASHES[2])
    axes.axvline(wanted_fraction, color=MUTED, linewidth=1.2, linestyle=DASHES[3])
    dress(axes, "used fraction of the query set", "probability of detection")
    ticks = np.unique(np.concatenate([line.fractions for line in lines]))
    logarithmic(axes, "x", ticks, [f"{100 * tick:g}%" for tick in ticks], (min(ticks[0], wanted_fraction) / 1.15, 1.15))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    legend(axes, 2)

"""The chart of a result: what `result.plot()` returns."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.plots import power as plot
from jaxaudit.plots.style import canvas

if TYPE_CHECKING:
    from jaxaudit.audits.power.result import Power


def plot_power(power: "Power") -> Figure:
    """Probability of detection by used fraction, a line for each size."""
    from jaxaudit.audits.power.result import FRACTIONS

    figure, axes = canvas()
    fractions = np.array(FRACTIONS)
    lines = [
        plot.Line(size.query, size.holdout, fractions, np.array(size.probabilities), place == power.given)
        for place, size in enumerate(power.sizes)
    ]
    plot.draw_probabilities(axes, lines, power.fraction)
    return figure

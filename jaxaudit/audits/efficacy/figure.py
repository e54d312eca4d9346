"""The charts of a result in one figure: what `result.plot()` returns."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import panels

if TYPE_CHECKING:
    from jaxaudit.audits.efficacy.result import EfficacyAudit


def plot_efficacy(audit: "EfficacyAudit") -> Figure:
    """Efficacy of the judged weights and of the references, and efficacy against its bound."""
    figure, (efficacies, bounds) = panels(2)
    drawn = []
    for each in audit.models:
        efficacy, bound = np.array([each.measured.whole.efficacy]), np.array([each.measured.whole.bound])
        drawn.append(plot.Method(each.name, efficacy, bound, None))
    plot.draw_efficacies(efficacies, drawn, None)
    plot.draw_bounds(bounds, drawn)
    return figure

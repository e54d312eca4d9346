"""The charts of a result in one figure: what `result.plot()` returns."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.plots import ks as plot
from jaxaudit.plots.style import panels

if TYPE_CHECKING:
    from jaxaudit.audits.ks.result import KSAudit


def plot_ks(audit: "KSAudit", target: int = 0) -> Figure:
    """Confidences of one target, on both axes, and rho of all targets and controls against 1."""
    figure, (plain, stretched, ratios) = panels(3)
    judged = audit.targets[target]
    values = judged.rho.values
    typical = 0 if np.isnan(values).all() else int(np.nanargmin(np.abs(values - np.nanmedian(values))))
    samples = [audit.query_confidences[typical], judged.confidences[0], audit.calibration_confidences[typical]]
    gap = plot.widest_gap(samples[0], samples[1])
    for axes in (plain, stretched):
        distance = float(judged.rho.distances[typical])
        plot.draw_confidences(axes, samples, gap, distance, stretched=axes is stretched)
    named = [(each.name, each.rho) for each in audit.targets]
    named += [(f"control {place} (trained on both)", control) for place, control in enumerate(judged.controls, 1)]
    rows = [plot.Row(name, rho.values, rho.median, rho.low, rho.high) for name, rho in named]
    plot.draw_rho(ratios, rows)
    return figure

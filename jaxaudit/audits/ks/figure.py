"""The charts of a result in one figure: what `result.plot()` returns."""

from math import nan
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.errors import InputError
from jaxaudit.metrics.usage import Usage, fraction_name, used_share
from jaxaudit.plots import ks as plot
from jaxaudit.plots.style import canvas, panels, row_height

if TYPE_CHECKING:
    from jaxaudit.audits.ks.result import KSAudit


def plot_ks(audit: "KSAudit", target: int = 0) -> Figure:
    """Confidences of one target, on both axes, and rho of all targets and controls against 1; without rho, used shares.

    Raises:
        InputError: neither rho nor a test of use was made.
    """
    judged = audit.targets[target]
    if judged.rho is None:
        return _plot_shares(audit)
    figure, (plain, stretched, ratios) = panels(3)
    values = judged.rho.values
    typical = 0 if np.isnan(values).all() else int(np.nanargmin(np.abs(values - np.nanmedian(values))))
    samples = [audit.query_confidences[typical], judged.confidences[0], audit.calibration_confidences[typical]]
    gap = plot.widest_gap(samples[0], samples[1])
    for axes in (plain, stretched):
        distance = float(judged.rho.distances[typical])
        plot.draw_confidences(axes, samples, gap, distance, stretched=axes is stretched)
    named = [(each.name, each.rho) for each in audit.targets]
    named += [(f"control {place} (trained on both)", control) for place, control in enumerate(judged.controls, 1)]
    rows = [plot.Row(name, rho.values, rho.median, rho.low, rho.high) for name, rho in named if rho is not None]
    plot.draw_rho(ratios, rows)
    return figure


def _plot_shares(audit: "KSAudit") -> Figure:
    """The used fraction of every target by every test of use."""
    rows = [
        _share_of(f"{target.name} ({usage.method})" if len(target.usage) > 1 else target.name, usage)
        for target in audit.targets
        for usage in target.usage
    ]
    if not rows:
        raise InputError("there is nothing to draw: add RhoTest() or a test of use, such as ShadowTest().")
    figure, axes = canvas(row_height(len(rows)) + 0.3)
    fraction = fraction_name(usage.question for target in audit.targets for usage in target.usage)
    plot.draw_shares(axes, rows, fraction)
    return figure


def _share_of(name: str, usage: Usage) -> plot.Share:
    share = used_share(usage)
    value, low, high, upper = (nan,) * 4 if share is None else (*share, usage.upper)
    return plot.Share(name, value, low, high, upper, nan if usage.detectable is None else usage.detectable)

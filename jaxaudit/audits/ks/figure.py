"""The figure that `plot()` returns, and the numbers in it."""

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.audits.ks.result import Rho, TargetResult
from jaxaudit.errors import InputError, visible
from jaxaudit.metrics.usage import fraction_name
from jaxaudit.plots import ks as plot
from jaxaudit.plots.style import canvas, panels, row_height

if TYPE_CHECKING:
    from jaxaudit.audits.ks.result import KSAudit


def plot_ks(audit: "KSAudit", target: int) -> Figure:
    """Confidences of one target on plain and stretched axes, and rho of all; without rho, used fractions."""
    judged = audit.targets[target]
    if judged.rho is None:
        rows = share_rows(audit.targets)
        if not rows:
            raise InputError("there is nothing to draw: add RhoTest() or a test of use, such as ShadowTest().")
        figure, axes = canvas(row_height(len(rows)) + 0.3)
        usages = (usage for target in audit.targets for usage in target.usage)
        plot.draw_shares(axes, rows, fraction_name(usage.question for usage in usages))
        return figure
    figure, (plain, stretched, ratios) = panels(3)
    which = typical(judged.rho)
    samples = [audit.query_confidences[which], audit.target_confidences[target], audit.calibration_confidences[which]]
    gap = plot.widest_gap_at(samples[0], samples[1])
    distance = judged.rho.distances[which]
    for axes in (plain, stretched):
        plot.draw_confidences(axes, samples, gap, distance, stretched=axes is stretched)
    plot.draw_rho(ratios, rho_rows(audit.targets, judged.controls))
    return figure


def typical(rho: Rho) -> int:
    """The replicate whose rho is nearest to the median."""
    values = np.array(rho.values, float)
    if np.isnan(rho.median) or np.isnan(values).all():
        return 0
    return int(np.nanargmin(np.abs(values - rho.median)))


def rho_rows(targets: Sequence[TargetResult], controls: Sequence[Rho]) -> list[plot.RhoRow]:
    """rho of the targets that have it, and of the controls; NaN where a number is missing."""
    rho_by_name = [(visible(target.name), target.rho) for target in targets if target.rho is not None]
    rho_by_name += [(f"control {index} (trained on both)", rho) for index, rho in enumerate(controls, 1)]
    return [
        plot.RhoRow(name, np.array(rho.values, float), *np.array((rho.median, rho.low, rho.high), float).tolist())
        for name, rho in rho_by_name
    ]


def share_rows(targets: Sequence[TargetResult]) -> list[plot.ShareMark]:
    """The used fraction of every target by every test of use; NaN where unknown."""
    several = max(len(target.usage) for target in targets) > 1
    rows = []
    for target in targets:
        for usage in target.usage:
            share = (usage.fraction, usage.fraction_low, usage.fraction_high, usage.upper)
            share = share if usage.has_fraction else (nan,) * 4
            name = visible(target.name) + (f" ({visible(usage.method)})" if several else "")
            rows.append(plot.ShareMark(name, *np.array((*share, usage.detectable), float).tolist()))
    return rows

"""The charts of a result in one figure: what `result.plot()` returns."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from jaxaudit.plots import attack as plot
from jaxaudit.plots.style import panels

if TYPE_CHECKING:
    from jaxaudit.audits.attack.result import AttackAudit


def plot_attack(audit: "AttackAudit") -> Figure:
    """Attack accuracy against PDTP, and ROC curves on linear and logarithmic axes."""
    figure, (targets, linear, logarithmic) = panels(3)
    plot.draw_accuracies(targets, audit.pdtp, [(each.name, each.per_target) for each in audit.attacks])
    curves = [(each.name, plot.operating_curve(each.scores, audit.truth)) for each in audit.attacks]
    for axes in (linear, logarithmic):
        plot.draw_curves(axes, curves, logarithmic=axes is logarithmic)
    return figure

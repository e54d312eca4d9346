"""The charts of a result in one figure: what `result.plot()` returns."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.plots import unlearn as plot
from jaxaudit.plots.style import panels

if TYPE_CHECKING:
    from jaxaudit.audits.unlearn.result import UnlearnAudit


def plot_unlearn(audit: "UnlearnAudit", forget_set: int = 0) -> Figure:
    """Efficacy with the band of retrained models, efficacy against its bound, and the attack, if any."""
    drawn = []
    for method in audit.methods:
        efficacy, bound, attack = (getattr(method.scores, name)[forget_set] for name in ("efficacy", "bound", "attack"))
        drawn.append(plot.Method(method.name, efficacy, bound, None if np.isnan(attack).all() else attack))
    retrained = audit["retraining"].scores.efficacy[forget_set]
    attacked = any(method.attack is not None for method in drawn)
    figure, (efficacies, bounds, *attacks) = panels(3 if attacked else 2)
    plot.draw_efficacies(efficacies, drawn, (float(retrained.min()), float(retrained.max())))
    plot.draw_bounds(bounds, drawn)
    if attacked:
        guess = audit.members_share
        plot.draw_attacks(attacks[0], drawn, None if np.isnan(guess) else guess)
    return figure

"""The figure that `AttackAudit.plot()` returns."""

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.audits.attack.result import AttackResult
from jaxaudit.plots import attack as plot
from jaxaudit.plots.style import panels


def plot_attack(result: AttackResult) -> Figure:
    """ROC curves with the band of the deciding attack, and accuracy against PDTP or the separations of records."""
    figure, (curves, records) = panels(2)
    others = [each for each in result.attacks if each.name != result.decided_by]
    bands = [
        plot.Band(each.name, *(np.array(line) for line in (each.roc.fpr, each.roc.tpr, each.roc.low, each.roc.high)))
        for each in (result.deciding, *others)
    ]
    plot.draw_bands(curves, bands)
    if result.splits is not None:
        asked = result.splits.records
        accuracies = [
            (each.name, np.array([record.accuracy[each.name] for record in asked])) for each in result.attacks
        ]
        plot.draw_accuracies(records, np.array([record.pdtp for record in asked]), accuracies)
    if result.exposure is not None:
        plot.draw_separations(
            records, np.array(result.exposure.separation_edges), np.array(result.exposure.separation_counts)
        )
    return figure

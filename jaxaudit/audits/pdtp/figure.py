"""The charts of a result in one figure: what `result.plot()` returns."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.plots import pdtp as plot
from jaxaudit.plots.style import panels

if TYPE_CHECKING:
    from jaxaudit.audits.pdtp.result import PDTPAudit

MOST_RISKY = 10


def plot_pdtp(audit: "PDTPAudit") -> Figure:
    """The distribution of PDTP, and the riskiest records with their seed floor."""
    figure, (distribution, riskiest) = panels(2)
    bars = [plot.Bar(bar.name, bar.records, bar.by_seed_floor, bar.breaks_dtp_1) for bar in audit.distribution]
    plot.draw_distribution(distribution, bars, seeded=audit.seeded)
    order = np.argsort(-audit.values, kind="stable")[:MOST_RISKY]
    risks = [
        plot.Risk(
            f"record {audit.records[place]}",
            float(audit.values[place]),
            float(audit.floor.mean[place]),
            float(audit.floor.largest[place]),
        )
        for place in order
    ]
    plot.draw_risks(riskiest, risks, seeded=audit.seeded)
    return figure

"""A `pdtp` result as charts, for its figure in Python and for its page: the limit of the rule comes from here."""

import numpy as np
from matplotlib.axes import Axes

from jaxaudit.audits.pdtp.result import PDTPResult
from jaxaudit.metrics.pdtp import DTP_1
from jaxaudit.plots import pdtp as plot


def draw_bars(axes: Axes, result: PDTPResult) -> None:
    """Draws a histogram on `axes`: the number of records by PDTP in nats, and by seed floor if that was measured.

    Bars whose PDTP breaks the rule DTP-1 have another colour.
    """
    bars = result.distribution
    counts, floors = np.array([(bar.records, bar.by_seed_floor) for bar in bars]).T
    within, seeded = sum(not bar.breaks_dtp_1 for bar in bars), result.seed_floor.seeded
    plot.draw_distribution(axes, [bar.name for bar in bars], counts, floors, within=within, seeded=seeded)


def draw_riskiest(axes: Axes, result: PDTPResult, most: int) -> None:
    """Draws PDTP of the `most` records with the largest PDTP, one row each, and their seed floor if measured."""
    risks = result.by_risk()[:most]
    numbers = np.array([(risk.pdtp, risk.seed_floor, risk.seed_floor_max) for risk in risks])
    names = [f"record {risk.index}" for risk in risks]
    plot.draw_risks(axes, names, numbers, limit=DTP_1, seeded=result.seed_floor.seeded)

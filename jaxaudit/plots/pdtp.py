"""The chart of the `pdtp` audit: the distribution of PDTP."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxaudit.plots import style


def draw_distribution(axes: Axes, result: Any) -> None:
    """Draws a histogram of a `PDTPResult`: a bar for each interval of PDTP across, number of records up (logarithmic).

    Bars that break the rule DTP-1 stand out. If the seed floor was measured, a line over each bar has the number of
    records by it (PDTP when only the training seed differs).
    """
    bars, seeded = result.distribution, result.seed_floor.seeded
    names, within = [bar.name for bar in bars], sum(not bar.breaks_dtp_1 for bar in bars)
    counts, floors = np.array([(bar.records, bar.by_seed_floor) for bar in bars]).T
    places = np.arange(len(names))
    limit = within - 0.5
    colours = [style.BLUE if place < within else style.VERMILION for place in places]
    drawn = axes.bar(places, counts, width=0.72, color=colours, linewidth=0, label="by PDTP")
    axes.bar_label(drawn, [f"{count:,}" if count else "" for count in counts], fontsize=style.SIZE, color=style.INK)
    highest = int(counts.max())
    if seeded:
        highest, above = max(highest, int(floors.max())), floors > 0
        ends = places[above] - 0.44, places[above] + 0.44
        axes.hlines(floors[above], *ends, color=style.INK, linewidth=2, label="by seed floor")
    style.dress(axes, "PDTP (nats)", "records")
    ticks = [0, *(10**power for power in range(math.ceil(math.log10(max(highest, 10))) + 1))]
    tick_names = [f"{tick:,}" for tick in ticks]
    style.logarithmic(axes, "y", ticks, tick_names, (0, highest * 4), "symlog", linthresh=1, linscale=0.6)
    axes.set_xticks(places, names, rotation=38, ha="right", rotation_mode="anchor")
    axes.grid(False, axis="x")
    axes.axvline(limit, **style.LIMIT)
    style.write_text(axes, "DTP-1", (limit + 0.06, highest * 1.9), color=style.VERMILION, ha="left", fontweight="bold")
    style.legend(axes, 2)

"""Charts of the `pdtp` audit: the distribution of PDTP, the riskiest records, and the effect of removing them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

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


def draw_risks(axes: Axes, records: Sequence[Any], *, limit: float, seeded: bool) -> None:
    """Draws PDTP of the riskiest records across (nats), `Risk`s, one row for each from the top, and a line at `limit`
    (DTP-1). If `seeded`, a bar and its tick have the largest value and the mean of the seed floor.
    """
    risks = np.array([(risk.pdtp, risk.seed_floor, risk.seed_floor_max) for risk in records])
    most = max([*risks[np.isfinite(risks)].tolist(), limit]) * 1.12
    for place, (pdtp, floor, floor_max) in enumerate(risks.tolist()):
        if seeded:
            bar = {"height": 0.56, "color": style.LINE, "linewidth": 0, "zorder": 2}
            name = "seed floor, up to its largest" if not place else None
            axes.barh(place, min(floor_max, most), label=name, **bar)
            axes.plot([min(floor, most)] * 2, [place - 0.28, place + 0.28], color=style.MUTED, linewidth=2)
        mark, colour = ("D", style.VERMILION) if pdtp > limit else ("o", style.BLUE)
        axes.plot([min(pdtp, most)], [place], mark, color=colour, markersize=6, zorder=5, clip_on=False)
        if math.isinf(pdtp):
            style.write_text(axes, "infinite", (most * 0.96, place), ha="right", va="center", color=style.VERMILION)
    axes.axvline(limit, **style.LIMIT, label="DTP-1")
    style.dress(axes, "PDTP (nats)")
    style.name_rows(axes, [f"record {risk.index}" for risk in records])
    axes.set_xlim(0, most)
    style.legend(axes, 2)


def draw_reduction(axes: Axes, largest: Float[np.ndarray, " steps_and_start"], *, limit: float) -> None:
    """Draws the number of removed records across, and up the largest PDTP (nats) of the records that remain.

    The riskiest record is removed repeatedly. A value above the line at `limit` breaks the rule DTP-1.
    """
    steps = np.arange(len(largest))
    finite = largest[np.isfinite(largest)]
    most = max([*finite.tolist(), limit]) * 1.15
    heights = np.minimum(largest, most)
    axes.plot(steps, heights, color=style.BLUE, linewidth=1.6)
    above, warning = largest > limit, {"va": "center", "color": style.VERMILION}
    axes.plot(steps[~above], heights[~above], "o", color=style.BLUE, markersize=4.5)
    axes.plot(steps[above], heights[above], "D", color=style.VERMILION, markersize=5.5, clip_on=False, zorder=5)
    for step in steps[np.isinf(largest)].tolist():
        style.write_text(axes, "infinite", (step + 0.04 * len(largest), most), ha="left", **warning)
    axes.axhline(limit, **style.LIMIT)
    style.dress(axes, "records removed", "largest PDTP (nats)")
    axes.set_ylim(0, most)
    axes.set_xlim(-0.4, len(largest) - 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.write_text(axes, "DTP-1", (len(largest) - 0.75, limit), ha="right", fontweight="bold", **warning)


def draw_shares_above(
    axes: Axes, edges: Sequence[float], runs: Mapping[str, Float[np.ndarray, " edges"]], *, limit: float
) -> None:
    """Draws a line for each run: PDTP across (nats), and up the share of records with a larger PDTP at each of the
    `edges`, both logarithmic.

    A line further right is riskier; records above `limit` break the rule DTP-1.
    """
    for place, (name, shares) in enumerate(runs.items()):
        seen = np.where(shares > 0, shares, np.nan)
        axes.plot(edges, seen, linewidth=1.8, marker="o", label=style.short(name), **style.series_line(place))
    positive = [share for shares in runs.values() for share in shares if share > 0]
    fewest, least, most = min([*positive, 0.1]), 1e-3, max(edges) * 1.3
    style.dress(axes, "PDTP (nats)", "share of records above it")
    ticks = [tick for tick in (0.001, 0.01, 0.1, 1.0, 10.0) if tick <= most]
    style.logarithmic(axes, "x", ticks, [f"{tick:g}" for tick in ticks], (least, most))
    shares = [10.0**-power for power in range(math.ceil(-math.log10(fewest)) + 1)]
    style.logarithmic(axes, "y", shares, [f"{100 * tick:g}%" for tick in shares], (fewest * 0.7, 1.3))
    axes.axvline(limit, **style.LIMIT)
    style.legend(axes, 2 if max(len(style.short(name)) for name in runs) < 18 else 1)

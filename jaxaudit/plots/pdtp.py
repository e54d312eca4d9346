"""Charts of the `pdtp` audit: the distribution of PDTP, the riskiest records, and the effect of removing them."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from jaxaudit.plots import style


def draw_distribution(
    axes: Axes,
    names: Sequence[str],
    counts: Int[np.ndarray, " bars"],
    floors: Int[np.ndarray, " bars"],
    *,
    within: int,
    seeded: bool,
) -> None:
    """Draws a histogram: a bar for each interval of PDTP across, number of records up on a logarithmic axis.

    The first `within` bars keep the rule DTP-1. If `seeded`, a line over each bar has the number of records by seed
    floor (PDTP when only the training seed differs).
    """
    places = np.arange(len(names))
    limit = within - 0.5
    colours = [style.BLUE if place < within else style.VERMILION for place in places]
    axes.bar(places, counts, width=0.72, color=colours, linewidth=0, label="by PDTP")
    highest = int(counts.max())
    if seeded:
        highest = max(highest, int(floors.max()))
        for place, height in zip(places.tolist(), floors.tolist(), strict=True):
            if height:
                ends = [place - 0.44, place + 0.44]
                label = "by seed floor" if height == floors[floors > 0][0] else None
                axes.plot(ends, [height, height], color=style.INK, linewidth=2, label=label)
    for place, height in zip(places.tolist(), counts.tolist(), strict=True):
        if height:
            words = f"{height:,}"
            axes.text(place, height * 1.12, words, ha="center", va="bottom", fontsize=style.SIZE, color=style.INK)
    style.dress(axes, "PDTP (nats)", "records")
    ticks = [0, *(10**power for power in range(math.ceil(math.log10(max(highest, 10))) + 1))]
    tick_names = [f"{tick:,}" for tick in ticks]
    style.logarithmic(axes, "y", ticks, tick_names, (0, highest * 4), "symlog", linthresh=1, linscale=0.6)
    axes.set_xticks(places, names, rotation=38, ha="right", rotation_mode="anchor")
    axes.grid(False, axis="x")
    axes.axvline(limit, **style.LIMIT)
    style.write_text(axes, "DTP-1", (limit + 0.06, highest * 1.9), color=style.VERMILION, ha="left", fontweight="bold")
    style.legend(axes, 2)


def draw_risks(
    axes: Axes, names: Sequence[str], risks: Float[np.ndarray, "records 3"], *, limit: float, seeded: bool
) -> None:
    """Draws PDTP of the riskiest records across (nats), one row for each from the top, and a line at `limit` (DTP-1).

    Columns of `risks` are PDTP, and the mean and the largest value of the seed floor.
    """
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
    style.name_rows(axes, names)
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


def draw_shares_above(axes: Axes, runs: Sequence[tuple[str, Float[np.ndarray, " _"]]], *, limit: float) -> None:
    """Draws a line for each run: PDTP across (nats), and up the share of records with a larger PDTP, both logarithmic.

    A line further right is riskier; records above `limit` break the rule DTP-1.
    """
    least, fewest = 1e-3, min(1 / len(values) for _, values in runs)
    most = max([*(float(v[np.isfinite(v)].max(initial=0.0)) for _, v in runs), limit]) * 1.3
    places = np.geomspace(least, most, 200)
    for place, (name, values) in enumerate(runs):
        shares = 1 - np.searchsorted(np.sort(values), places, side="right") / len(values)
        seen = np.where(shares > 0, shares, np.nan)
        axes.step(places, seen, where="post", linewidth=1.8, label=style.short(name), **style.series_line(place))
    style.dress(axes, "PDTP (nats)", "share of records above it")
    ticks = [tick for tick in (0.001, 0.01, 0.1, 1.0, 10.0) if tick <= most]
    style.logarithmic(axes, "x", ticks, [f"{tick:g}" for tick in ticks], (least, most))
    shares = [10.0**-power for power in range(math.ceil(-math.log10(fewest)) + 1)]
    style.logarithmic(axes, "y", shares, [f"{100 * tick:g}%" for tick in shares], (fewest * 0.7, 1.3))
    axes.axvline(limit, **style.LIMIT)
    style.legend(axes, 2 if max(len(style.short(name)) for name, _ in runs) < 18 else 1)

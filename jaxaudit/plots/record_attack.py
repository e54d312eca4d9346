"""Charts of attacks on records: ROC curves with bands on logarithmic axes, and a histogram of separations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from jaxaudit.plots.style import BLUE, DASHES, INK, MUTED, SERIES, VERMILION, dress, legend

LEAST = 1e-5


class Band(NamedTuple):
    """A ROC curve with its band."""

    name: str
    false_positive: Float[np.ndarray, " points"]
    true_positive: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]


def draw_bands(axes: Axes, curves: Sequence[Band]) -> None:
    """True against false positive rates on logarithmic axes from 1e-5; the first curve has its band."""
    for place, curve in enumerate(curves):
        colour = SERIES[place % len(SERIES)]
        across = np.maximum(curve.false_positive, LEAST)
        if not place:
            axes.fill_between(
                across,
                np.maximum(curve.low, LEAST),
                np.maximum(curve.high, LEAST),
                color=colour,
                alpha=0.2,
                linewidth=0,
                step="post",
            )
        axes.plot(
            across,
            np.maximum(curve.true_positive, LEAST),
            drawstyle="steps-post",
            color=colour,
            linestyle=DASHES[place % len(DASHES)],
            linewidth=2.2 if not place else 1.4,
            label=curve.name,
        )
    guess = np.geomspace(LEAST, 1, 50)
    axes.plot(guess, guess, color=MUTED, linewidth=1.2, linestyle=DASHES[2], label="guessing")
    dress(axes, "false positive rate", "true positive rate")
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [10.0**power for power in range(-5, 1)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(LEAST, 1.05)
    axes.set_ylim(LEAST, 1.05)
    legend(axes, 2)


def draw_separations(axes: Axes, edges: Float[np.ndarray, " edges"], counts: Int[np.ndarray, " bins"]) -> None:
    """How many records have which separation; one half is a record that gives nothing away."""
    axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=BLUE, alpha=0.75, edgecolor="white", linewidth=0.6)
    dress(axes, "separation of models with and without the record", "records")
    axes.axvline(0.5, color=INK, linewidth=1.4, linestyle=DASHES[2])
    axes.set_xlim(0, 1)


def draw_beside_pdtp(
    axes: Axes, pdtp: Float[np.ndarray, " n"], named: Float[np.ndarray, " n"], risky: tuple[float, float]
) -> None:
    """The share of models that name a record against its PDTP in nats; lines where each is at risk."""
    finite = pdtp[np.isfinite(pdtp)]
    most = max(3.0, float(finite.max(initial=0.0))) * 1.3
    axes.plot(
        np.minimum(pdtp, most), named, "o", color=BLUE, markersize=4.5, alpha=0.45, markeredgewidth=0, clip_on=False
    )
    dress(axes, "PDTP (nats)", "share of its models that name it")
    axes.set_xscale("symlog", linthresh=0.01, linscale=0.4)
    ticks = [0.0, *(tick for tick in (0.01, 0.1, 1.0, 10.0) if tick < most)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(-0.001, most)
    axes.set_ylim(-0.03, 1.03)
    axes.axvline(risky[0], color=VERMILION, linewidth=1.6, linestyle=DASHES[1])
    axes.axhline(risky[1], color=VERMILION, linewidth=1.6, linestyle=DASHES[1])

"""Charts of membership attacks: ROC curves, accuracies against PDTP, and the exposure of single records."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from jaxaudit.plots import style
from jaxaudit.plots.style import BLUE, DASHES, INK, MUTED, dress

LEAST = 1e-5
"""The lowest false positive and true positive rate that is drawn."""


def draw_accuracies(axes: Axes, records: Sequence[Any], attacks: Sequence[str]) -> None:
    """Draws a mark for each attack, by its name, and each of the `records`, `AttackedRecord`s: its PDTP across (nats),
    accuracy of the attack up.

    Lines mark the accuracy of guessing, 0.5, and a PDTP of 1 nat. Infinite PDTP is drawn at the right end.
    """
    pdtp = np.array([record.pdtp for record in records])
    most = _most(pdtp, 0.01)
    for place, name in enumerate(attacks):
        accuracies = [record.accuracy[name] for record in records]
        style.draw_marks(axes, place, np.minimum(pdtp, most), accuracies, name, size=4.5, alpha=0.7)
    dress(axes, "PDTP of the target (nats)", "attack accuracy")
    _set_pdtp(axes, most, (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0))
    axes.set_ylim(-0.02, 1.02)
    axes.axhline(0.5, color=MUTED, linewidth=1.4, linestyle=DASHES[2])
    if most > 1:
        axes.axvline(1.0, **style.LIMIT)
    style.legend(axes, 3)


def draw_curves(axes: Axes, curves: Mapping[str, Any]) -> None:
    """Draws ROC curves, each a `Curve` by its name: false positive rate across, true positive rate up, both on
    logarithmic axes from 1e-5.

    The first curve has its confidence band. A line shows guessing.
    """
    for place, (name, curve) in enumerate(curves.items()):
        rates = (curve.fpr, curve.tpr, curve.low, curve.high)
        across, up, low, high = (np.maximum(rate, LEAST) for rate in rates)
        if not place:
            axes.fill_between(across, low, high, color=style.SERIES[0], alpha=0.2, linewidth=0, step="post")
        how: dict[str, Any] = {"drawstyle": "steps-post", "linewidth": 1.4 if place else 2.2, "label": name}
        axes.plot(across, up, **how, **style.series_line(place))
    guess = np.geomspace(LEAST, 1, 50)
    axes.plot(guess, guess, color=MUTED, linewidth=1.2, linestyle=DASHES[2], label="guessing")
    dress(axes, "false positive rate", "true positive rate")
    ticks = [10.0**power for power in range(round(np.log10(LEAST)), 1)]
    for name in "xy":
        style.logarithmic(axes, name, ticks, [f"{tick:g}" for tick in ticks], (LEAST, 1.05))
    style.legend(axes, 2)


def draw_separations(axes: Axes, edges: Sequence[float], counts: Sequence[int], unit: str) -> None:
    """Draws a histogram of the records' separations: separation across, from 0 to 1, number of records up.

    Separation says how well outputs tell models with a record from models without it; 0.5 is by chance. `unit` is what
    the labels call a record, such as a group.
    """
    axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=BLUE, alpha=0.75, edgecolor="white", linewidth=0.6)
    dress(axes, f"separation of models with and without the {unit}", f"{unit}s")
    axes.axvline(0.5, color=INK, linewidth=1.4, linestyle=DASHES[2])
    axes.set_xlim(0, 1)


def _most(pdtp: Float[np.ndarray, " n"], least: float) -> float:
    """The upper end of the axis of PDTP."""
    return max(least, float(pdtp[np.isfinite(pdtp)].max(initial=0.0))) * 1.3


def _set_pdtp(axes: Axes, most: float, ticks: Sequence[float]) -> None:
    """Sets the horizontal axis to PDTP, logarithmic except for the lowest values."""
    shown = [0.0, *(tick for tick in ticks if tick < most)]
    names = [f"{tick:g}" for tick in shown]
    style.logarithmic(axes, "x", shown, names, (-0.001, most), "symlog", linthresh=0.01, linscale=0.4)

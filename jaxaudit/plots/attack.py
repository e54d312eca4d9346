"""Charts of membership attacks: accuracy against PDTP by target, and ROC curves."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes

from jaxaudit.plots.style import BLUE, DASHES, INK, MARKERS, MUTED, SERIES, VERMILION, dress, legend, name_rows

VERTICES = 300


class Curve(NamedTuple):
    """A receiver operating characteristic: the true positive rate at each false positive rate, ties called alike."""

    false_positive: Float[np.ndarray, " thresholds"]
    true_positive: Float[np.ndarray, " thresholds"]


def operating_curve(scores: Float[np.ndarray, "..."], truth: Bool[np.ndarray, "..."]) -> Curve:
    """The curve of scores of which larger ones say `in`.

    >>> operating_curve(np.array([3.0, 2.0, 2.0, 1.0]), np.array([True, True, False, False]))
    Curve(false_positive=array([0. , 0. , 0.5, 1. ]), true_positive=array([0. , 0.5, 1. , 1. ]))
    """
    scores, truth = np.ravel(scores), np.ravel(truth)
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    caught = np.cumsum(truth[order])[last] / max(int(truth.sum()), 1)
    accused = np.cumsum(~truth[order])[last] / max(int((~truth).sum()), 1)
    return Curve(np.concatenate([[0.0], accused]), np.concatenate([[0.0], caught]))


def draw_accuracies(
    axes: Axes, pdtp: Float[np.ndarray, " targets"], attacks: Sequence[tuple[str, Float[np.ndarray, " targets"]]]
) -> None:
    """Accuracy of each attack on each target against the target's PDTP."""
    finite = pdtp[np.isfinite(pdtp)]
    most = max([*finite.tolist(), 0.01]) * 1.3
    for place, (name, accuracies) in enumerate(attacks):
        axes.plot(
            np.minimum(pdtp, most),
            accuracies,
            MARKERS[place % len(MARKERS)],
            color=SERIES[place % len(SERIES)],
            markersize=4.5,
            alpha=0.7,
            markeredgewidth=0,
            label=name,
        )
    dress(axes, "PDTP of the target (nats)", "attack accuracy")
    axes.set_xscale("symlog", linthresh=0.01, linscale=0.4)
    ticks = [0.0, *(tick for tick in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0) if tick < most)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(-0.001, most)
    axes.set_ylim(-0.02, 1.02)
    axes.axhline(0.5, color=MUTED, linewidth=1.4, linestyle=DASHES[2])
    if most > 1:
        axes.axvline(1.0, color=VERMILION, linewidth=1.6, linestyle=DASHES[1])
    legend(axes, 3)


def draw_curves(axes: Axes, curves: Sequence[tuple[str, Curve]], *, logarithmic: bool) -> None:
    """True against false positive rates; on logarithmic axes the left end shows members found with high confidence."""
    least = min([1.0, *(float(c.false_positive[c.false_positive > 0].min(initial=1.0)) for _, c in curves)])
    least = 10.0 ** np.floor(np.log10(least)) if logarithmic else 0.0
    for place, (name, curve) in enumerate(curves):
        across, up = _thin(curve, logarithmic)
        axes.plot(
            np.maximum(across, least * 0.5),
            np.maximum(up, least * 0.5),
            drawstyle="steps-post" if logarithmic else "default",
            color=SERIES[place % len(SERIES)],
            linestyle=DASHES[place % len(DASHES)],
            linewidth=1.8,
            label=name,
        )
    guess = np.geomspace(least, 1, 50) if logarithmic else np.array([0.0, 1.0])
    axes.plot(guess, guess, color=MUTED, linewidth=1.2, linestyle=DASHES[2], label="guessing")
    dress(axes, "false positive rate", "true positive rate")
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = [10.0**power for power in range(round(np.log10(least)), 1)]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlim(least, 1.05)
        axes.set_ylim(least, 1.05)
    else:
        axes.set_xlim(-0.01, 1.01)
        axes.set_ylim(-0.01, 1.01)
    legend(axes, 2)


class Row(NamedTuple):
    """A number of one attack with its interval; NaN where there is none."""

    name: str
    value: float
    low: float
    high: float


def draw_estimates(axes: Axes, rows: Sequence[Row], across: str, chance: float) -> None:
    """Numbers with their intervals, one row each, against guessing."""
    for place, row in enumerate(rows):
        if np.isfinite([row.low, row.high]).all():
            axes.plot([row.low, row.high], [place, place], color=BLUE, linewidth=6, alpha=0.35, solid_capstyle="butt")
        axes.plot([row.value], [place], "D", color=BLUE, markersize=6)
    dress(axes, across)
    axes.axvline(chance, color=INK, linewidth=1.4, linestyle=DASHES[2])
    name_rows(axes, [row.name for row in rows])
    finite = [value for row in rows for value in row[1:] if np.isfinite(value)]
    axes.set_xlim(min([*finite, chance]) - 0.05, max([*finite, chance]) + 0.05)


def _thin(curve: Curve, logarithmic: bool) -> Curve:
    """At most about `VERTICES` points of a curve, spread along it as it is drawn."""
    if len(curve.false_positive) <= VERTICES:
        return curve
    across = np.geomspace(1e-6, 1, VERTICES) if logarithmic else np.linspace(0, 1, VERTICES)
    kept = np.unique(np.searchsorted(curve.false_positive, across, side="right") - 1)
    kept = np.union1d(kept, [0, len(curve.false_positive) - 1])
    return Curve(curve.false_positive[kept], curve.true_positive[kept])

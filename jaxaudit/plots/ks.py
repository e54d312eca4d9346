"""Charts of `ks` and `power`: confidences, used fractions, chances of detection."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from jaxaudit.plots import style
from jaxaudit.plots.style import (
    BLUE,
    DASHES,
    GREEN,
    INK,
    MARKERS,
    MUTED,
    VERMILION,
    draw_interval,
    dress,
    legend,
    logarithmic,
    name_rows,
    series_line,
)

VERTICES = 400
"""The points of a curve, however many records it is of: nearer to one another than pixels of a page."""
LOG_ODDS = 14.0
"""The end of the axis in nats: float32 cannot represent log-odds beyond it."""
ROLES = ("query model", "target", "calibration model")
_LOOKS = {ROLES[0]: (BLUE, DASHES[0]), ROLES[1]: (INK, DASHES[1]), ROLES[2]: (VERMILION, DASHES[2])}

Sample = Float[np.ndarray, " n"]


class Gap(NamedTuple):
    """The widest gap between two empirical CDFs: its size, the smallest confidence there, and both CDFs."""

    distance: float
    confidence: float
    low: float
    high: float


def widest_gap_at(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> Gap:
    """The widest gap between two empirical CDFs."""
    places = np.unique(np.concatenate([first, second]))
    values = np.stack([share_at_most(sample, places) for sample in (first, second)])
    gaps = np.abs(values[0] - values[1])
    widest = int(gaps.argmax())
    low, high = sorted(values[:, widest].tolist())
    return Gap(float(gaps[widest]), float(places[widest]), low, high)


def share_at_most(
    sample: Float[np.ndarray, " n"], places: Float[np.ndarray, " places"]
) -> Float[np.ndarray, " places"]:
    """The empirical CDF of `sample` at `places`.

    >>> share_at_most(np.array([0.2, 0.4, 0.4, 0.9]), np.array([0.1, 0.4, 1.0]))
    array([0.  , 0.75, 1.  ])
    """
    return np.searchsorted(np.sort(sample), places, side="right") / len(sample)


def plotted_log_odds(confidences: Sample) -> Sample:
    """log(p / (1 - p)) in nats, which separates confidences near 1; cut at 14 on both sides."""
    with np.errstate(divide="ignore"):
        odds = np.log(confidences.astype(np.float64)) - np.log1p(-confidences.astype(np.float64))
    return np.clip(odds, -LOG_ODDS, LOG_ODDS)


def draw_confidences(axes: Axes, samples: Sequence[Sample], gap: Gap, distance: float) -> None:
    """Draws empirical CDFs: confidence in the true class across, on an axis of log-odds, and share of query records up.

    `samples` are of the query model, the target and the calibration model; the `gap` of the first two is marked, with
    the `distance` on which the verdict is based.
    """
    places = np.linspace(-LOG_ODDS, LOG_ODDS, VERTICES)
    for role, sample in zip(ROLES, samples, strict=True):
        shares = share_at_most(plotted_log_odds(sample), places)
        colour, dash = _LOOKS[role]
        axes.step(places, shares, where="post", color=colour, linestyle=dash, linewidth=1.8, label=role)
    at = float(plotted_log_odds(np.array([gap.confidence]))[0])
    axes.plot([at, at], [gap.low, gap.high], color=GREEN, linewidth=3, solid_capstyle="butt", zorder=6)
    left, reach = at > 0, 0.06 * LOG_ODDS
    middle = (at - reach if left else at + reach, (gap.low + gap.high) / 2)
    how = {"ha": "right" if left else "left", "va": "center", "color": GREEN, "fontweight": "bold"}
    style.write_text(axes, f"gap {distance:.3f}", middle, **how)
    dress(axes, "confidence in the true class (log-odds axis)", "share of query records")
    axes.set_xlim(-LOG_ODDS, LOG_ODDS)
    axes.set_ylim(-0.02, 1.02)
    ticks = ("0.00001", "0.001", "0.05", "0.5", "0.95", "0.999", "0.99999")
    axes.set_xticks(plotted_log_odds(np.array(ticks, float)).tolist(), ticks)
    legend(axes, 3)


class ShareMark(NamedTuple):
    """One row of `draw_shares`: a test of one target, with fractions of the query set from 0 to 1; NaN if unknown.

    `upper` is the upper limit of the used fraction, and `least` the smallest fraction that the test detects.
    """

    name: str
    share: float
    low: float
    high: float
    upper: float
    least: float


def draw_shares(axes: Axes, rows: Sequence[ShareMark], fraction: str = "used fraction") -> None:
    """Draws used fractions across, one row for each test of a target from the top; `fraction` names the axis."""
    tick = {"color": INK, "markersize": 15, "markeredgewidth": 1.8}
    marks = [
        ("estimate", "share", "D", {"color": BLUE, "markersize": 6}),
        ("upper limit", "upper", "<", {"color": BLUE, "markersize": 7}),
        ("min. detectable", "least", "|", tick),
    ]
    for place, row in enumerate(rows):
        draw_interval(axes, place, row.low, row.high)
        for label, number, mark, how in marks:
            # An estimate may lie below none or above all.
            at = np.clip(getattr(row, number), 0.0, 1.0)
            axes.plot([at], [place], mark, label=None if place else label, linestyle="none", **how)
    dress(axes, fraction)
    name_rows(axes, [row.name for row in rows])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks(np.linspace(0, 1, 5))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    legend(axes, 2)


WANTED = 0.95
"""The desired probability of detection."""


def draw_probabilities(axes: Axes, sizes: Sequence[Any], wanted_fraction: float) -> None:
    """Draws a line for each `Size` of a `PowerResult`: used fraction across, on a logarithmic axis, and the probability
    of detection up.
    """
    ticks = [chance.fraction for chance in sizes[0].chances]
    for place, size in enumerate(sizes):
        of_line = {"linewidth": 2.6, "markersize": 6} if size.given else {"linewidth": 1.4, "markersize": 4.5}
        name = f"{size.query:,} + {size.holdout:,}{' (given)' if size.given else ''}"
        how: dict[str, Any] = {**of_line, "clip_on": False, "label": name, **series_line(place)}
        axes.plot(ticks, [chance.probability for chance in size.chances], MARKERS[place % len(MARKERS)], **how)
    axes.axhline(WANTED, color=MUTED, linewidth=1.2, linestyle=DASHES[2])
    axes.axvline(wanted_fraction, color=MUTED, linewidth=1.2, linestyle=DASHES[3])
    dress(axes, "used fraction of the query set", "probability of detection")
    logarithmic(axes, "x", ticks, [f"{100 * tick:g}%" for tick in ticks], (min(ticks[0], wanted_fraction) / 1.15, 1.15))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    legend(axes, 2)

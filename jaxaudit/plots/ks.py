"""Charts of `ks` and `power`: confidences, rho of every replicate, distances, used fractions, chances of detection."""

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
    LINE,
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


def draw_confidences(axes: Axes, samples: Sequence[Sample], gap: Gap, distance: float, *, stretched: bool) -> None:
    """Draws empirical CDFs: confidence in the true class across, share of query records up.

    `samples` are of the query model, the target and the calibration model; the `gap` of the first two is marked, with
    the `distance` on which the verdict is based. If `stretched`, the axis across is one of log-odds.
    """
    scale = plotted_log_odds if stretched else np.asarray
    low, high = (-LOG_ODDS, LOG_ODDS) if stretched else (0.0, 1.0)
    for role, sample in zip(ROLES, samples, strict=True):
        places, shares = _steps(np.sort(scale(sample)), low, high)
        colour, dash = _LOOKS[role]
        axes.step(places, shares, where="post", color=colour, linestyle=dash, linewidth=1.8, label=role)
    at = float(scale(np.array([gap.confidence]))[0])
    axes.plot([at, at], [gap.low, gap.high], color=GREEN, linewidth=3, solid_capstyle="butt", zorder=6)
    left = at > (low + high) / 2
    reach = 0.03 * (high - low)
    middle = (at - reach if left else at + reach, (gap.low + gap.high) / 2)
    how = {"ha": "right" if left else "left", "va": "center", "color": GREEN, "fontweight": "bold"}
    style.write_text(axes, f"gap {distance:.3f}", middle, **how)
    dress(axes, "confidence in the true class" + (" (log-odds axis)" if stretched else ""), "share of query records")
    axes.set_xlim(low, high) if stretched else axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    if stretched:
        ticks = ("0.00001", "0.001", "0.05", "0.5", "0.95", "0.999", "0.99999")
        axes.set_xticks(plotted_log_odds(np.array(ticks, float)).tolist(), ticks)
    legend(axes, 3)


class RhoRow(NamedTuple):
    """One row of `draw_rho`: a model, its rho in each replicate, their median and its interval; NaN if unknown."""

    name: str
    values: Float[np.ndarray, " replicates"]
    median: float
    low: float
    high: float


def draw_rho(axes: Axes, rows: Sequence[RhoRow]) -> None:
    """Draws rho across, one row for each model from the top: a circle for each replicate, the median and its interval.

    rho is the target's distance from the query models divided by that of the calibration models. A line marks 1: below
    it the query set counts as remembered, above it as forgotten.
    """
    for place, row in enumerate(rows):
        if np.isfinite([row.low, row.high]).all():
            draw_interval(axes, place, row.low, row.high)
        axes.plot(row.values, np.full(len(row.values), place), "o", color=MUTED, markersize=4.5, fillstyle="none")
        axes.plot([row.median], [place], "D", color=BLUE, markersize=6)
    finite = [value for row in rows for value in (*row.values, row.median, row.low, row.high) if np.isfinite(value)]
    dress(axes, "rho")
    most = max([*finite, 1.0]) * 1.12
    axes.axvline(1.0, **style.LIMIT)
    name_rows(axes, [row.name for row in rows])
    axes.set_xlim(0.0, most)
    # Where 1 is near an edge there is room for one of the two only.
    how: dict[str, Any] = {"va": "bottom", "fontsize": style.SIZE, "color": MUTED}
    if most < 3:
        axes.text(1 - 0.02 * most, -0.72, "remembered", ha="right", **how)
    if most > 1.4:
        axes.text(1 + 0.02 * most, -0.72, "forgotten", ha="left", **how)


def draw_distances(axes: Axes, groups: Sequence[tuple[str, Float[np.ndarray, "..."]]]) -> None:
    """Draws Kolmogorov-Smirnov distances across, one row for each group from the top, and the median.

    A band reaches from 0 to the largest of the first group: query models of other seeds.
    """
    for place, (_, values) in enumerate(groups):
        axes.plot(values, np.full(len(values), place), "o", color=BLUE, markersize=5, alpha=0.75, markeredgewidth=0)
        if np.isfinite(values).any():
            axes.plot([float(np.nanmedian(values))], [place], "|", color=INK, markersize=15, markeredgewidth=1.8)
    dress(axes, "distance from a query model")
    floor = groups[0][1]
    if len(floor):
        axes.axvspan(0.0, float(floor.max()), color=LINE, alpha=0.6, linewidth=0)
    name_rows(axes, [name for name, _ in groups])
    finite = [float(value) for _, values in groups for value in values if np.isfinite(value)]
    axes.set_xlim(0.0, min(1.02, 1.08 * max([*finite, 0.05])))


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


class GroupMark(NamedTuple):
    """One row of `draw_groups`: a group, its effect, the middle 95% of effects without use, and its verdict."""

    name: str
    effect: float
    low: float
    high: float
    verdict: str


def draw_groups(axes: Axes, rows: Sequence[GroupMark]) -> None:
    """Draws the effects of groups across, one row a group from the top, each on the bar of what is seen without use."""
    shapes = {"remembered": ("D", VERMILION, VERMILION), "suspected": ("s", BLUE, BLUE)}
    labels = {row.verdict if row.verdict in shapes else "neither": place for place, row in reversed([*enumerate(rows)])}
    for place, row in enumerate(rows):
        axes.plot(
            [row.low, row.high],
            [place] * 2,
            color=LINE,
            linewidth=6,
            solid_capstyle="butt",
            label=None if place else "without use (95%)",
        )
        kind = row.verdict if row.verdict in shapes else "neither"
        shape, edge, face = shapes.get(kind, ("o", MUTED, "none"))
        axes.plot(
            [row.effect],
            [place],
            shape,
            label=kind if labels[kind] == place else None,
            color=edge,
            markerfacecolor=face,
            markersize=6,
            linestyle="none",
        )
    axes.axvline(0, color=MUTED, linewidth=0.8)
    dress(axes, "effect (standard deviations of a record)")
    name_rows(axes, [row.name for row in rows])
    legend(axes, 2)


def _steps(
    ordered: Float[np.ndarray, " n"], low: float, high: float
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
    """An empirical CDF as at most `VERTICES` steps; each covers at most 1 / VERTICES of the axis or of the records."""
    places, last = np.unique(ordered[::-1], return_index=True)
    shares = 1 - last / len(ordered)
    if len(places) > VERTICES:
        span = (places[-1] - places[0]) or 1.0
        along = np.linspace(0, len(places) - 1, VERTICES // 2).astype(int)
        across = np.searchsorted(places, places[0] + span * np.linspace(0, 1, VERTICES // 2), side="right") - 1
        kept = np.unique(np.concatenate([along, across]))
        places, shares = places[kept], shares[kept]
    return np.concatenate([[low], places, [high]]), np.concatenate([[0.0], shares, [1.0]])


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

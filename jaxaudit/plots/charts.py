"""Charts of all audits: confidences, used fractions, chances of detection, PDTP, ROC curves, efficacies."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxaudit.plots.style import (
    BLUE,
    DASHES,
    GREEN,
    INK,
    LIMIT,
    LINE,
    MARKERS,
    MUTED,
    SERIES,
    SIZE,
    VERMILION,
    draw_marks,
    dress,
    legend,
    logarithmic,
    name_rows,
    percent,
    series_line,
    short,
    write_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VERTICES = 400
"""The points of a curve, however many records it is of: nearer to one another than pixels of a page."""
LOG_ODDS = 14.0
"""The end of the axis in nats: float32 cannot represent log-odds beyond it."""
ROLES = ("query model", "target", "calibration model")
_LOOKS = {ROLES[0]: (BLUE, DASHES[0]), ROLES[1]: (INK, DASHES[1]), ROLES[2]: (VERMILION, DASHES[2])}

Sample = Float[np.ndarray, " n"]


class Gap(NamedTuple):
    """The widest gap between two empirical CDFs: the smallest confidence there, and both CDFs."""

    confidence: float
    low: float
    high: float


def widest_gap_at(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> Gap:
    """The widest gap between two empirical CDFs."""
    places = np.unique(np.concatenate([first, second]))
    values = np.stack([share_at_most(sample, places) for sample in (first, second)])
    widest = int(np.abs(values[0] - values[1]).argmax())
    low, high = sorted(values[:, widest].tolist())
    return Gap(float(places[widest]), low, high)


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


def draw_confidences(axes: "Axes", samples: Sequence[Sample], gap: Gap, distance: float) -> None:
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
    write_text(axes, f"gap {distance:.3f}", middle, **how)
    dress(axes, "confidence in the true class (log-odds axis)", "share of query records")
    axes.set_xlim(-LOG_ODDS, LOG_ODDS)
    axes.set_ylim(-0.02, 1.02)
    ticks = ("0.00001", "0.001", "0.05", "0.5", "0.95", "0.999", "0.99999")
    axes.set_xticks(plotted_log_odds(np.array(ticks, float)).tolist(), ticks)
    legend(axes, 3)


def draw_shares(axes: "Axes", rows: Sequence[tuple[str, Any]], fraction: str = "used fraction") -> None:
    """Draws used fractions across, a row for each name and its `Usage` from the top; `fraction` names the axis."""
    tick = {"color": INK, "markersize": 15, "markeredgewidth": 1.8}
    marks = [
        ("estimate", "D", {"color": BLUE, "markersize": 6}),
        ("upper limit", "<", {"color": BLUE, "markersize": 7}),
        ("min. detectable", "|", tick),
    ]
    for place, (_, usage) in enumerate(rows):
        limits = [usage.fraction, usage.upper] if usage.has_fraction else [math.nan] * 2
        if usage.has_fraction:
            ends = [usage.fraction_low, usage.fraction_high]
            axes.plot(ends, [place, place], color=BLUE, linewidth=6, alpha=0.35, solid_capstyle="butt")
        for (label, mark, how), value in zip(marks, [*limits, usage.detectable], strict=True):
            # An estimate may lie below none or above all.
            at = np.clip(math.nan if value is None else value, 0.0, 1.0)
            axes.plot([at], [place], mark, label=None if place else label, linestyle="none", **how)
    dress(axes, fraction)
    name_rows(axes, [name for name, _ in rows])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks(np.linspace(0, 1, 5))
    axes.xaxis.set_major_formatter(percent())
    legend(axes, 2)


WANTED = 0.95
"""The desired probability of detection."""


def draw_probabilities(axes: "Axes", result: Any) -> None:
    """Draws a line for each size: used fraction across, on a logarithmic axis, probability of detection up."""
    ticks, wanted_fraction = list(result.fractions), result.fraction
    for place, size in enumerate(result.sizes):
        of_line = {"linewidth": 2.6, "markersize": 6} if size.given else {"linewidth": 1.4, "markersize": 4.5}
        name = f"{size.query:,} + {size.holdout:,}{' (given)' if size.given else ''}"
        how: dict[str, Any] = {**of_line, "clip_on": False, "label": name, **series_line(place)}
        axes.plot(ticks, size.chances, MARKERS[place % len(MARKERS)], **how)
    axes.axhline(WANTED, color=MUTED, linewidth=1.2, linestyle=DASHES[2])
    axes.axvline(wanted_fraction, color=MUTED, linewidth=1.2, linestyle=DASHES[3])
    dress(axes, "used fraction of the query set", "probability of detection")
    logarithmic(axes, "x", ticks, [f"{100 * tick:g}%" for tick in ticks], (min(ticks[0], wanted_fraction) / 1.15, 1.15))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(percent())
    legend(axes, 2)


def draw_distribution(axes: "Axes", result: Any) -> None:
    """Draws a histogram of a `PDTPResult`: a bar for each interval of PDTP across, number of records up (logarithmic).

    Bars that break the rule DTP-1 stand out. If the seed floor was measured, a line over each bar has the number of
    records by it (PDTP when only the training seed differs).
    """
    bars, seeded = result.distribution, result.seed_floor.seeded
    names, within = [bar.name for bar in bars], sum(not bar.breaks_dtp_1 for bar in bars)
    counts, floors = np.array([(bar.records, bar.by_seed_floor) for bar in bars]).T
    places = np.arange(len(names))
    limit = within - 0.5
    colours = [BLUE if place < within else VERMILION for place in places]
    drawn = axes.bar(places, counts, width=0.72, color=colours, linewidth=0, label="by PDTP")
    axes.bar_label(drawn, [f"{count:,}" if count else "" for count in counts], fontsize=SIZE, color=INK)
    highest = int(counts.max())
    if seeded:
        highest, above = max(highest, int(floors.max())), floors > 0
        ends = places[above] - 0.44, places[above] + 0.44
        axes.hlines(floors[above], *ends, color=INK, linewidth=2, label="by seed floor")
    dress(axes, "PDTP (nats)", "records")
    ticks = [0, *(10**power for power in range(math.ceil(math.log10(max(highest, 10))) + 1))]
    tick_names = [f"{tick:,}" for tick in ticks]
    logarithmic(axes, "y", ticks, tick_names, (0, highest * 4), "symlog", linthresh=1, linscale=0.6)
    axes.set_xticks(places, names, rotation=38, ha="right", rotation_mode="anchor")
    axes.grid(False, axis="x")
    axes.axvline(limit, **LIMIT)
    write_text(axes, "DTP-1", (limit + 0.06, highest * 1.9), color=VERMILION, ha="left", fontweight="bold")
    legend(axes, 2)


LEAST = 1e-5
"""The lowest false positive and true positive rate that is drawn."""


def draw_accuracies(axes: "Axes", records: Sequence[Any], attacks: Sequence[str]) -> None:
    """Draws a mark for each attack and `AttackedRecord`: its PDTP across (nats), accuracy of the attack up.

    Lines mark the accuracy of guessing, 0.5, and a PDTP of 1 nat. Infinite PDTP is drawn at the right end.
    """
    pdtp = np.array([record.pdtp for record in records])
    most = max(0.01, float(pdtp[np.isfinite(pdtp)].max(initial=0.0))) * 1.3
    for place, name in enumerate(attacks):
        accuracies = [record.accuracy[name] for record in records]
        draw_marks(axes, place, np.minimum(pdtp, most), accuracies, name, size=4.5, alpha=0.7)
    dress(axes, "PDTP of the target (nats)", "attack accuracy")
    ticks = [0.0, *(tick for tick in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0) if tick < most)]
    names = [f"{tick:g}" for tick in ticks]
    # Logarithmic except for the lowest values.
    logarithmic(axes, "x", ticks, names, (-0.001, most), "symlog", linthresh=0.01, linscale=0.4)
    axes.set_ylim(-0.02, 1.02)
    axes.axhline(0.5, color=MUTED, linewidth=1.4, linestyle=DASHES[2])
    if most > 1:
        axes.axvline(1.0, **LIMIT)
    legend(axes, 3)


def draw_curves(axes: "Axes", curves: Mapping[str, Any]) -> None:
    """Draws ROC curves by name: false positive rate across, true positive rate up, on logarithmic axes from 1e-5.

    The first curve has its confidence band. A line shows guessing.
    """
    for place, (name, curve) in enumerate(curves.items()):
        rates = (curve.fpr, curve.tpr, curve.low, curve.high)
        across, up, low, high = (np.maximum(rate, LEAST) for rate in rates)
        if not place:
            axes.fill_between(across, low, high, color=SERIES[0], alpha=0.2, linewidth=0, step="post")
        how: dict[str, Any] = {"drawstyle": "steps-post", "linewidth": 1.4 if place else 2.2, "label": name}
        axes.plot(across, up, **how, **series_line(place))
    guess = np.geomspace(LEAST, 1, 50)
    axes.plot(guess, guess, color=MUTED, linewidth=1.2, linestyle=DASHES[2], label="guessing")
    dress(axes, "false positive rate", "true positive rate")
    ticks = [10.0**power for power in range(round(np.log10(LEAST)), 1)]
    for name in "xy":
        logarithmic(axes, name, ticks, [f"{tick:g}" for tick in ticks], (LEAST, 1.05))
    legend(axes, 2)


MARGIN, EDGE = 3.0, 1.5
"""Factors: how far an axis extends beyond the finite values, and how far from its end infinite values are drawn."""


class MethodMarks(NamedTuple):
    """One method's models by seed: efficacy, its upper bound (1 / nats squared), and an attack's mean probability."""

    name: str
    efficacy: Float[np.ndarray, " seeds"]
    bound: Float[np.ndarray, " seeds"]
    attack: Float[np.ndarray, " seeds"] | None


def draw_efficacies(axes: "Axes", methods: Sequence[MethodMarks], band: tuple[float, float] | None) -> None:
    """Draws efficacy across on a logarithmic axis, one row per method: a mark for each model, and the median.

    `band` is the range of retrained models, which is shaded. Infinite efficacies are at the right end.
    """
    low, high = _limits([method.efficacy for method in methods])
    if band is not None:
        ends = max(band[0], low), min(band[1], high)
        axes.axvspan(*ends, color=LINE, alpha=0.7, linewidth=0, label="retrained models")
    for place, method in enumerate(methods):
        inside = _inside(method.efficacy, low, high)
        rows = np.full(len(inside), place)
        endless = np.isinf(method.efficacy)
        axes.plot(inside[~endless], rows[~endless], "o", color=BLUE, markersize=5, alpha=0.65, markeredgewidth=0)
        axes.plot(inside[endless], rows[endless], ">", color=INK, markersize=6)
        axes.plot([float(np.median(inside))], [place], "|", color=INK, markersize=15, markeredgewidth=1.8)
    dress(axes, "efficacy")
    name_rows(axes, [method.name for method in methods])
    _logarithmic(axes, low, high)
    if band is not None:
        legend(axes, 1)


def draw_attacks(axes: "Axes", methods: Sequence[MethodMarks], guess: float | None) -> None:
    """Draws a mark for each model: efficacy across on a logarithmic axis, and up the attack's membership probability.

    A line marks `guess`, the value of an attack without information. Methods without an attack are left out.
    """
    attacked = [method for method in methods if method.attack is not None]
    low, high = _limits([method.efficacy for method in attacked])
    for place, method in enumerate(methods):
        if method.attack is not None:
            draw_marks(axes, place, _inside(method.efficacy, low, high), method.attack, short(method.name))
    if guess is not None:
        axes.axhline(guess, color=MUTED, linewidth=1.4, linestyle=DASHES[2])
    dress(axes, "efficacy", "probability of membership")
    axes.set_ylim(-0.02, 1.02)
    _logarithmic(axes, low, high)
    legend(axes, 3 if max(len(short(method.name)) for method in attacked) < 12 else 2)


def _limits(values: Sequence[Float[np.ndarray, "..."]]) -> tuple[float, float]:
    """The ends of a logarithmic axis for all positive finite numbers; infinite ones are drawn at its end."""
    every = np.concatenate([np.ravel(part) for part in values])
    finite = every[np.isfinite(every) & (every > 0)]
    if not len(finite):
        return 0.1, 10.0
    low, high = float(finite.min()) / MARGIN, float(finite.max()) * MARGIN
    return max(low, 1e-300), min(high, 1e300)


def _inside(values: Float[np.ndarray, "..."], low: float, high: float) -> Float[np.ndarray, "..."]:
    """The positions of values on the axis; values beyond an end are drawn just inside it."""
    return np.clip(values, low * EDGE, high / EDGE)


def _logarithmic(axes: "Axes", low: float, high: float) -> None:
    """Sets ticks of the horizontal axis at powers of ten, few enough to be readable."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    if first > last:
        first = last = round((math.log10(low) + math.log10(high)) / 2)
    powers = list(range(first, last + 1, max(1, math.ceil((last - first) / 5))))
    logarithmic(axes, "x", [10.0**power for power in powers], [_power(power) for power in powers], (low, high))


def _power(power: int) -> str:
    """The label of a power of ten.

    >>> _power(-2), _power(0), _power(7)
    ('0.01', '1', '1e7')
    """
    return f"{10.0**power:g}" if -4 <= power <= 4 else f"1e{power}"

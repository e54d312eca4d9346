"""Charts of unlearning: scores of each method's models, and of retrained models."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from jaxaudit.plots.style import (
    BLUE,
    DASHES,
    INK,
    LINE,
    MUTED,
    draw_marks,
    dress,
    legend,
    logarithmic,
    name_rows,
    short,
)

MARGIN, EDGE = 3.0, 1.5
"""Factors: how far an axis extends beyond the finite values, and how far from its end infinite values are drawn."""


class MethodMarks(NamedTuple):
    """One method's models by seed: efficacy, its upper bound (1 / nats squared), and an attack's mean probability."""

    name: str
    efficacy: Float[np.ndarray, " seeds"]
    bound: Float[np.ndarray, " seeds"]
    attack: Float[np.ndarray, " seeds"] | None


def draw_efficacies(axes: Axes, methods: Sequence[MethodMarks], band: tuple[float, float] | None) -> None:
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
    _logarithmic(axes, "x", low, high)
    if band is not None:
        legend(axes, 1)


def draw_attacks(axes: Axes, methods: Sequence[MethodMarks], guess: float | None) -> None:
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
    _logarithmic(axes, "x", low, high)
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


def _logarithmic(axes: Axes, name: str, low: float, high: float) -> None:
    """Sets ticks at powers of ten, few enough to be readable."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    if first > last:
        first = last = round((math.log10(low) + math.log10(high)) / 2)
    powers = list(range(first, last + 1, max(1, math.ceil((last - first) / 5))))
    logarithmic(axes, name, [10.0**power for power in powers], [_power(power) for power in powers], (low, high))


def _power(power: int) -> str:
    """The label of a power of ten.

    >>> _power(-2), _power(0), _power(7)
    ('0.01', '1', '1e7')
    """
    return f"{10.0**power:g}" if -4 <= power <= 4 else f"1e{power}"

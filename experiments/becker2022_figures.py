"""Figures 1 to 4 of Becker & Liebig (2022) (5 to 8 for CIFAR-10), in one picture of four rows."""

from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from experiments.figures import COLORS, panels

SHOWN = {
    "original": "pre-trained",
    "retraining": "retraining",
    "amnesiac": "amnesiac",
    "fisher": "Fisher",
}
SHADES = ("#b8892b", "#9ecae1", "#6baed6", "#3182bd", "#08519c", "#1b1f3b")


def drawing(record: dict[str, Any]) -> Any:
    """A row a figure: efficacy and bound, before and after, attack probability, efficacy against attack."""
    figure, axes = panels(4, 4, width=13, height=12)
    rows = [axes[start : start + 4] for start in range(0, 16, 4)]
    for column, (name, title) in enumerate(SHOWN.items()):
        scores = record["methods"][name]
        distributions(rows[0][column], record["counts"], scores["efficacy"], scores["bound"])
        rows[0][column].set_title(f"{title}: efficacy, bound dashed")
        distributions(rows[2][column], record["counts"], scores["attack"], None)
        rows[2][column].set_title(f"{title}: mean attack probability")
        scatter(rows[3][column], record["counts"], scores)
        rows[3][column].set_title(f"{title}: efficacy and attack")
    before_and_after(rows[1], record)
    rows[0][0].set_ylabel("share of seeds at or below")
    rows[2][0].set_ylabel("share of seeds at or below")
    rows[3][0].set_ylabel("mean attack probability")
    for axis in axes:
        spaced_ticks(axis.xaxis)
        spaced_ticks(axis.yaxis)
    rows[0][0].legend(title="images forgotten", fontsize=7, title_fontsize=7)
    return figure


def distributions(axis: Any, counts: list[int], values: Any, bounds: Any) -> None:
    """The distribution over seeds for each number of forgotten images; a single one is left out, as in the paper."""
    for index, count in enumerate(counts):
        if count == 1:
            continue
        for numbers, style in ((values, "-"), (bounds, "--")):
            if numbers is not None:
                finite = np.sort([number for number in numbers[index] if number is not None])
                share = np.arange(1, len(finite) + 1) / len(numbers[index])
                label = f"{count}" if style == "-" else None
                axis.step(finite, share, where="post", color=SHADES[index], linestyle=style, linewidth=1, label=label)
    axis.set_xscale("log")


def before_and_after(axes: list[Any], record: dict[str, Any]) -> None:
    """Figure 2: the efficacy of the whole class, untrained, trained, and after each method; and where the seeds are."""
    names = ("untrained", *SHOWN)
    for axis, field in zip(axes, ("efficacy", "bound", "forgotten_accuracy", "test_accuracy"), strict=True):
        for place, name in enumerate(names):
            numbers = np.array(record["methods"][name][field][-1], float)
            spread = np.linspace(-0.15, 0.15, len(numbers))
            axis.plot(place + spread, numbers, ".", color=COLORS[place], markersize=4)
        if field in ("efficacy", "bound"):
            axis.set_yscale("log")
        axis.set_xticks(range(len(names)), [*("untrained", "pre-tr.", "retrain", "amnesiac", "Fisher")], fontsize=7)
        axis.set_title(f"whole class: {field.replace('_', ' ')}")


def scatter(axis: Any, counts: list[int], scores: dict[str, Any]) -> None:
    """Figure 4: a point a seed and set."""
    for index, count in enumerate(counts):
        pairs = [
            pair for pair in zip(scores["efficacy"][index], scores["attack"][index], strict=True) if None not in pair
        ]
        if pairs:
            axis.plot(*zip(*pairs, strict=True), ".", color=SHADES[index], markersize=4, label=f"{count}")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("efficacy")


def spaced_ticks(axis: Any) -> None:
    """On a logarithmic axis of few decades, ticks with room between them."""
    low, high = axis.get_view_interval()
    decades = np.log10(high / low) if axis.get_scale() == "log" else np.inf
    if decades > 3:
        return
    axis.set_major_locator(MaxNLocator(4) if decades < 1 else LogLocator(subs=(1, 2, 5) if decades < 2 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())

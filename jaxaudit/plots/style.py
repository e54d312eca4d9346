"""The common style of all charts: colours that colour-blind people can distinguish, one line width, little text."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import ArrayLike

INK, MUTED, LINE, PAPER = "#1b2733", "#5a6875", "#d5dbe1", "#ffffff"
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#aa4499", "#e69f00", "#56b4e9"
"""The colours of Okabe & Ito (2008), except for purple: theirs is too pale for text."""

SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)), (0, (10, 3)))
"""A series has a colour and a marker or a dash, so that colour is never the only difference. The numbers of colours and
of markers or dashes have no common divisor, so no pair repeats among 42 series of marks, or 30 lines."""

LIMIT: dict[str, Any] = {"color": VERMILION, "linewidth": 1.6, "linestyle": DASHES[1]}
"""The line of a threshold."""

WIDTH, HEIGHT = 4.6, 3.1
"""The size of a chart in inches: about the width of a phone, so that text is not scaled down there."""
SIZE = 9.0
LONGEST_NAME = 26


def canvas(height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure with one empty chart, and its axes; `height` is in inches."""
    figure, (axes,) = panels(1, height)
    return figure, axes


def chart(draw: Callable[[Axes], object], height: float = HEIGHT) -> Callable[[], Figure]:
    """A function without arguments that makes a figure with one chart.

    Args:
        draw: draws the chart on the axes that it is given.
        height: of the figure, in inches.
    """

    def blank_figure() -> Figure:
        figure, axes = canvas(height)
        draw(axes)
        return figure

    return blank_figure


def panels(count: int, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """A figure with `count` empty charts side by side, and their axes from the left; `height` is in inches."""
    figure = Figure(figsize=(WIDTH * count, height), layout="constrained")
    figure.patch.set_facecolor(PAPER)
    return figure, [figure.add_subplot(1, count, place + 1) for place in range(count)]


def dress(axes: Axes, across: str, up: str = "") -> None:
    """Labels the axes with `across` and `up`, and draws a light frame and a lighter grid."""
    axes.set_facecolor("none")
    axes.set_xlabel(across, color=INK, fontsize=SIZE)
    axes.set_ylabel(up, color=INK, fontsize=SIZE)
    axes.tick_params(which="both", colors=MUTED, labelcolor=INK, labelsize=SIZE, length=3, width=0.8)
    axes.minorticks_off()
    axes.grid(True, color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(MUTED)
        spine.set_linewidth(0.8)


def logarithmic(
    axes: Axes, name: str, ticks: ArrayLike, labels: Sequence[str], ends: Any, scale: str = "log", **how: Any
) -> None:
    """Sets the scale, the ticks and the ends of one axis.

    Args:
        axes: the chart.
        name: the axis: `x` or `y`.
        ticks, labels: the places of the ticks, and the text at each.
        ends: the lowest and the highest value shown.
        scale, how: Matplotlib's name of the scale, and its settings.
    """
    getattr(axes, f"set_{name}scale")(scale, **how)
    getattr(axes, f"set_{name}ticks")(ticks, labels)
    getattr(axes, f"set_{name}lim")(*ends)
    axes.minorticks_off()


def legend(axes: Axes, columns: int) -> None:
    """Puts the legend above the chart, where it covers nothing, in this number of columns."""
    shown = axes.legend(
        fontsize=SIZE,
        labelcolor=INK,
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        frameon=False,
        borderaxespad=0.2,
        handlelength=2.4,
        columnspacing=1.4,
    )
    for text in shown.get_texts():
        text.set_parse_math(False)


def write_text(axes: Axes, words: str, place: tuple[Any, Any], **how: Any) -> Text:
    """Writes text on the chart at `place`, (x, y) in units of the data, on an almost opaque background.

    `how` has settings of Matplotlib's `Axes.text`, which take precedence.
    """
    settings: dict[str, Any] = {"fontsize": SIZE, "color": INK, "zorder": 8, "parse_math": False, **how}
    text = axes.text(float(place[0]), float(place[1]), words, **settings)
    text.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 1.5, "alpha": 0.85})
    return text


def series_line(place: int) -> dict[str, Any]:
    """The colour and the dashes of the line of series number `place`, from 0, as arguments of `Axes.plot`."""
    return {"color": SERIES[place % len(SERIES)], "linestyle": DASHES[place % len(DASHES)]}


def draw_marks(
    axes: Axes, place: int, across: ArrayLike, up: ArrayLike, name: str, *, size: float = 5.0, alpha: float = 0.75
) -> None:
    """Draws the marks of one series, in the colour and shape of series number `place`, from 0.

    Args:
        axes: the chart.
        place: the number of the series.
        across, up: the coordinates of the marks.
        name: the name of the series in the legend.
        size, alpha: of a mark: its size in points, and its opacity from 0 to 1.
    """
    marker, colour = MARKERS[place % len(MARKERS)], SERIES[place % len(SERIES)]
    axes.plot(across, up, marker, color=colour, markersize=size, alpha=alpha, markeredgewidth=0, label=name)


def draw_interval(axes: Axes, row: int, low: float, high: float) -> None:
    """Draws the interval from `low` to `high` on the x axis as a broad bar at y = `row`."""
    axes.plot([low, high], [row, row], color=BLUE, linewidth=6, alpha=0.35, solid_capstyle="butt")


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Writes one name beside each row of a chart, the first name at the top.

    Row i must have been drawn at y = i. The y axis is turned so that row 0 is at the top, its limits fit the rows, and
    its grid is removed. Long names are shortened.
    """
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(False, axis="y")


def row_height(rows: int) -> float:
    """The height in inches of a chart with this number of rows."""
    return max(1.7, min(9.0, 0.95 + 0.3 * rows))


def short(name: str) -> str:
    """Shortens a name from data to one line that fits a chart: its start and end, printable characters only.

    >>> short("a_very_long_name_of_a_file_of_outputs.csv")
    'a_very_long_na…outputs.csv'
    """
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 12]}…{name[-11:]}"

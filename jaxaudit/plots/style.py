"""The common style of all charts: colours that colour-blind people can distinguish, one line width, little text.

Exported as SVG, equal figures give equal bytes.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

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


def canvas(height: float = HEIGHT) -> "tuple[Figure, Axes]":
    """A figure with one empty chart, and its axes; `height` is in inches."""
    figure, (axes,) = panels(1, height)
    return figure, axes


def chart(draw: "Callable[[Axes], object]", height: float = HEIGHT) -> "Callable[[], Figure]":
    """A function without arguments that makes a figure with one chart, by `draw`; `height` is in inches."""

    def blank_figure() -> "Figure":
        figure, axes = canvas(height)
        draw(axes)
        return figure

    return blank_figure


def panels(count: int, height: float = HEIGHT) -> "tuple[Figure, list[Axes]]":
    """A figure with `count` empty charts side by side, and their axes from the left; `height` is in inches."""
    # Imported here, as a run without a page draws nothing, and Matplotlib takes half a second.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH * count, height), layout="constrained")
    figure.patch.set_facecolor(PAPER)
    return figure, [figure.add_subplot(1, count, place + 1) for place in range(count)]


def percent() -> Any:
    """A formatter of shares as percentages."""
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0)


def dress(axes: "Axes", across: str, up: str = "") -> None:
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
    axes: "Axes", name: str, ticks: ArrayLike, labels: Sequence[str], ends: Any, scale: str = "log", **how: Any
) -> None:
    """Sets the scale, the ticks with their labels and the ends of one axis (`x` or `y`); `how` is Matplotlib's."""
    getattr(axes, f"set_{name}scale")(scale, **how)
    getattr(axes, f"set_{name}ticks")(ticks, labels)
    getattr(axes, f"set_{name}lim")(*ends)
    axes.minorticks_off()


def legend(axes: "Axes", columns: int) -> None:
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


def write_text(axes: "Axes", words: str, place: tuple[Any, Any], **how: Any) -> "Text":
    """Writes text on the chart at `place`, (x, y) in units of the data, on an almost opaque background."""
    settings: dict[str, Any] = {"fontsize": SIZE, "color": INK, "zorder": 8, "parse_math": False, **how}
    text = axes.text(float(place[0]), float(place[1]), words, **settings)
    text.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 1.5, "alpha": 0.85})
    return text


def series_line(place: int) -> dict[str, Any]:
    """The colour and the dashes of the line of series number `place`, from 0, as arguments of `Axes.plot`."""
    return {"color": SERIES[place % len(SERIES)], "linestyle": DASHES[place % len(DASHES)]}


def draw_marks(
    axes: "Axes", place: int, across: ArrayLike, up: ArrayLike, name: str, *, size: float = 5.0, alpha: float = 0.75
) -> None:
    """Draws the marks of one series, in the colour and shape of series number `place`, from 0; `size` is in points."""
    marker, colour = MARKERS[place % len(MARKERS)], SERIES[place % len(SERIES)]
    axes.plot(across, up, marker, color=colour, markersize=size, alpha=alpha, markeredgewidth=0, label=name)


def name_rows(axes: "Axes", names: Sequence[str]) -> None:
    """Writes one name beside each row of a chart, the first name at the top; row i must have been drawn at y = i."""
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


Drawn = TypeVar("Drawn")

VARIABLES = {
    globals()[name]: f"--{name.lower()}"
    for name in ("INK", "MUTED", "LINE", "PAPER", "BLUE", "VERMILION", "GREEN", "PURPLE", "ORANGE", "SKY")
}
"""The page's CSS variable for each colour, so that dark mode can have other colours."""
FONT = "var(--sans)"
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.formatter.min_exponent": 9,
}
_PLAIN = {"Creator": None, "Date": None, "Format": None, "Type": None}


def with_default_style(draw: Callable[[], Drawn], key: str = "") -> Drawn:
    """Returns `draw()` with Matplotlib's default style, not the user's; identifiers in SVG are hashes with `key`."""
    import matplotlib
    import matplotlib.style

    # Numbers in a result file of another party may be so large that their ticks overflow.
    quiet, settings = np.errstate(over="ignore"), {**_SETTINGS, "svg.hashsalt": key}
    with matplotlib.style.context("default"), matplotlib.rc_context(settings), warnings.catch_warnings(), quiet:
        # Matplotlib's font may lack letters of file names; the browser has other fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        return draw()


def as_inline_svg(figure: "Figure", key: str, title: str, description: str) -> str:
    """The figure as an `<svg>` element for a page, with the page's CSS colours and a description for screen readers.

    `key` is the figure's alone on its page: no identifier is that of another figure.
    """
    file = StringIO()
    with_default_style(lambda: figure.savefig(file, format="svg", metadata=_PLAIN, transparent=True), key)
    root = ElementTree.fromstring(file.getvalue())
    for element in list(root.iter()):
        for child in [child for child in element if _local(child.tag) in ("metadata", "style")]:
            element.remove(child)
        element.tag = _local(element.tag)
        attributes = {_local(name): _dressed(value) for name, value in element.attrib.items()}
        # Groups are numbered in each figure anew; what is referred to has a hash of its own.
        dropped = {"svg": ("id", "width", "height", "version"), "g": ("id",)}.get(element.tag, ())
        element.attrib.clear()
        element.attrib.update((name, value) for name, value in attributes.items() if name not in dropped)
    root.attrib |= {"role": "img", "aria-labelledby": f"{key}-title {key}-desc", "class": "chart"}
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": f"{key}-{tag}"})
        element.text = words
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """A name of XML without its namespace."""
    return name.split("}")[-1]


def _dressed(value: str) -> str:
    """An attribute with the page's colours and font."""
    value = re.sub(r"(font: [^;']*|font-family: )'[^;]*", rf"\1{FONT}", value)
    for colour, variable in VARIABLES.items():
        value = value.replace(colour, f"var({variable})")
    return value

"""Exports figures as SVG and PNG; equal figures give equal bytes."""

import re
import warnings
from collections.abc import Callable
from io import BytesIO, StringIO
from typing import Any, TypeVar
from xml.etree import ElementTree

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.figure import Figure

from jaxaudit.plots import style

Drawn = TypeVar("Drawn")

VARIABLES = {
    getattr(style, name): f"--{name.lower()}"
    for name in ("INK", "MUTED", "LINE", "PAPER", "BLUE", "VERMILION", "GREEN", "PURPLE", "ORANGE", "SKY")
}
"""The page's CSS variable for each colour, so that dark mode can have other colours."""
FONT = "var(--sans)"
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "jaxaudit",
    "text.parse_math": False,
    "axes.formatter.min_exponent": 9,
}
_PLAIN = {"Creator": None, "Date": None, "Format": None, "Type": None}


def with_default_style(draw: Callable[[], Drawn]) -> Drawn:
    """Returns `draw()`, called with Matplotlib's default style in place of the user's settings."""
    # Numbers in a result file of another party may be so large that their ticks overflow.
    quiet = np.errstate(over="ignore")
    with matplotlib.style.context("default"), matplotlib.rc_context(_SETTINGS), warnings.catch_warnings(), quiet:
        # Matplotlib's font may lack letters of file names; the browser has other fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        return draw()


def as_png(figure: Figure) -> bytes:
    """The figure as a PNG image with 200 dots per inch."""
    file = BytesIO()
    with_default_style(lambda: figure.savefig(file, format="png", dpi=200, metadata={"Software": None}))
    return file.getvalue()


def as_svg(figure: Figure) -> bytes:
    """The figure as an SVG file, in which text stays text."""
    file = StringIO()
    with_default_style(lambda: figure.savefig(file, format="svg", metadata=_PLAIN))
    return file.getvalue().encode()


def as_inline_svg(figure: Figure, key: str, title: str, description: str) -> str:
    """The figure as an `<svg>` element for a page, with the page's CSS colours and a description for screen readers."""
    file = StringIO()
    with_default_style(lambda: figure.savefig(file, format="svg", metadata=_PLAIN, transparent=True))
    root = ElementTree.fromstring(file.getvalue())
    used = set(re.findall(r"#([\w-]+)", " ".join(_references(root))))
    for element in list(root.iter()):
        for child in [child for child in element if _tag(child) in ("metadata", "style")]:
            element.remove(child)
    for element in root.iter():
        element.tag = _tag(element)
        attributes = {name.split("}")[-1]: value for name, value in element.attrib.items()}
        element.attrib.clear()
        for name, value in attributes.items():
            if name == "id":
                if value in used:
                    element.set(name, f"{key}-{value}")
            elif name in ("href", "clip-path", "style"):
                element.set(name, _dressed(value, key))
            else:
                element.set(name, value)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-labelledby": f"{key}-title {key}-desc", "class": "chart"}
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": f"{key}-{tag}"})
        element.text = words
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _tag(element: ElementTree.Element) -> str:
    return element.tag.split("}")[-1]


def _references(root: ElementTree.Element) -> list[str]:
    return [
        value
        for element in root.iter()
        for name, value in element.attrib.items()
        if name.endswith(("href", "clip-path", "style"))
    ]


def _dressed(value: str, key: str) -> str:
    """Rewrites an SVG attribute (a reference or a style) with the page's colours, font and identifiers."""
    value = re.sub(r"(font: [^;']*|font-family: )'[^;]*", rf"\1{FONT}", value)
    for colour, variable in VARIABLES.items():
        value = value.replace(colour, f"var({variable})")
    return re.sub(r"(url\()?#([\w-]+)", rf"\1#{key}-\2", value)

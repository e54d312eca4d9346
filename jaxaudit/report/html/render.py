"""A page as one HTML file: self-contained, without scripts, with every text from data escaped."""

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup, escape

from jaxaudit.errors import visible
from jaxaudit.plots.style import as_inline_svg, with_default_style
from jaxaudit.report.build import build
from jaxaudit.report.html import FIRST_LINES
from jaxaudit.report.page import Page, PageTable, Picture
from jaxaudit.report.record import Run
from jaxaudit.version import __version__

SHORT_TABLE, LONG_TABLE = 8, 30
"""Rows up to which a folded table is kept on one printed page, and above which it is not printed."""


def report_html(runs: Sequence[Run[Any]]) -> str:
    """One HTML file with the results of these runs; the same runs give the same text."""
    return render(build(runs))


def render(page: Page) -> str:
    import jinja2

    room = files("jaxaudit.report.html")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_shown
    )
    environment.filters["prose"] = _prose
    template = environment.from_string((room / "page.html.jinja").read_text(encoding="utf-8"))
    html = template.render(
        page=page,
        style=Markup((room / "page.css").read_text(encoding="utf-8")),
        svg=_svg,
        version=__version__,
        length=_length,
    )
    return FIRST_LINES + html


def _svg(picture: Picture, run: int) -> Markup:
    """A chart of run number `run`, which makes its identifiers its own."""
    figure = with_default_style(picture.draw)
    return Markup(as_inline_svg(figure, f"run{run}-{picture.name}", picture.title, picture.caption))


def _shown(value: object) -> object:
    """A value for a template: text from data without control characters."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _prose(text: str) -> Markup:
    """A caption, with what stands between backticks as code."""
    return Markup(re.sub("`([^`<]+)`", r"<code>\1</code>", str(escape(visible(text)))))


def _length(table: PageTable) -> str:
    """The style class of a table of this length."""
    rows = len(table.rows)
    return "short" if rows <= SHORT_TABLE else "long" if rows > LONG_TABLE else "middle"

"""A run as one HTML file: self-contained, without scripts, with every text from data escaped."""

import re
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from jaxaudit.errors import visible
from jaxaudit.plots.style import as_inline_svg, with_default_style
from jaxaudit.report.kinds import FIRST_LINES, Run, part_of
from jaxaudit.report.page import PageTable, Picture
from jaxaudit.report.sources import papers
from jaxaudit.version import __version__

SHORT_TABLE, LONG_TABLE = 8, 30
"""Rows up to which a folded table is kept on one printed page, and above which it is not printed."""


def report_html(run: Run[Any]) -> str:
    """One HTML file with the result of this run; the same run gives the same text."""
    room = files("jaxaudit.report.html")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_shown
    )
    environment.filters["prose"] = _prose
    part = part_of(run)
    return FIRST_LINES + environment.from_string((room / "page.html.jinja").read_text(encoding="utf-8")).render(
        part=part,
        terms=sorted(dict.fromkeys(part.terms), key=lambda term: term.term.lower()),
        papers=papers(paper.source for paper in run.papers),
        style=Markup((room / "page.css").read_text(encoding="utf-8")),
        svg=_svg,
        version=__version__,
        length=_length,
    )


def _svg(picture: Picture) -> Markup:
    return Markup(as_inline_svg(with_default_style(picture.draw), picture.name, picture.title, picture.caption))


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

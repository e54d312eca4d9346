"""The content of a run as Markdown, for a ticket, a wiki or a model card."""

import re

from jaxaudit.errors import visible
from jaxaudit.report.page import Answer, Cells, Part

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~&$@]|(?<=:)(?=//)|(?<=www)(?=\.))")
_BEGINS = re.compile(r"^(\d*)(?=[.)]\s|[-+](?:\s|$)|[-=]{2})")
"""Beginnings of a text that Markdown would read as a list, a rule or a heading."""


def as_markdown(part: Part) -> str:
    """Question, answers, the page's first table, checks and limitations, in this order. Names from data are escaped.

    The same finding as on the terminal and the page, sentence for sentence.
    """
    lines = [f"## {plain(part.question)}", ""]
    for answer in part.answers:
        lines += [answer_line(answer), ""]
    lines += [line for cells in shown_tables(part)[:1] for line in table_lines(cells)]
    return "\n".join([*lines, *limits(part), f"Repeat: `{repeat_line(part)}`", ""])


def shown_tables(part: Part) -> list[Cells]:
    """The tables that a page does not fold."""
    return [cells for cells in part.tables if cells.on in ("page", "both") and not cells.folded and cells.rows]


def limits(part: Part) -> list[str]:
    """Confidence, checks, limitations and what would change the answer, as lists."""
    listed = {
        "Confidence": tuple(f"{what}: {each.word}{of}. {each.why}" for what, each, of in part.confidences),
        "Checks": tuple(
            f"{check.state}: {check.name}{f' (affects {check.affects} only)' if check.affects else ''}: {check.message}"
            for check in part.checks
        ),
        "Limitations": part.caveats,
        "What would change the answer": part.would_change,
    }
    return [
        line
        for title, items in listed.items()
        if items
        for line in (f"**{title}**", "", *(f"- {plain(item)}" for item in items), "")
    ]


def repeat_line(part: Part) -> str:
    """The command that repeats the run, for a code span."""
    return visible(" ".join(part.repeat.command)).replace("`", "'")


def answer_line(answer: Answer) -> str:
    """The subject of the answer, the verdict, and its sentence."""
    about = f"{plain(answer.about)}: " if answer.about else ""
    finding = answer.finding
    return f"{about}**{plain(finding.verdict)}**. {plain(finding.sentence)}"


def table_lines(cells: Cells) -> list[str]:
    """The title and the rows of a table."""
    rows = [cells.columns, tuple("---" for _ in cells.columns), *cells.rows]
    head = [f"**{plain(cells.title)}**", ""] if cells.title else []
    shown = [row if index == 1 else tuple(map(plain, row)) for index, row in enumerate(rows)]
    return [*head, *(f"| {' | '.join(row)} |" for row in shown), ""]


def plain(text: str) -> str:
    r"""Text escaped so that Markdown shows it unchanged.

    >>> print(plain("a|b <i> `c`"))
    a\|b \<i\> \`c\`
    """
    return _BEGINS.sub(r"\1\\", _SPECIAL.sub(r"\\\1", visible(" ".join(text.split()))))

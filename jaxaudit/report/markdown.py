"""The content of a run as Markdown, for a ticket, a wiki or a model card."""

import re
from collections.abc import Iterable

from jaxaudit.audits.finding import Finding
from jaxaudit.errors import visible
from jaxaudit.report.page import PageTable, RunContent

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~&$@]|(?<=:)(?=//)|(?<=www)(?=\.))")
_BEGINS = re.compile(r"^(\d*)(?=[.)]\s|[-+](?:\s|$)|[-=]{2})")
"""Beginnings of a text that Markdown would read as a list, a rule or a heading."""


def as_markdown(part: RunContent) -> str:
    """Question, answers, the page's first table, what stands beside, checks and limitations; names from data are
    escaped.
    """
    lines = [f"## {escaped_markdown(part.question)}", ""]
    for answer in part.answers:
        subject = answer.subject[:1].upper() + answer.subject[1:] if answer.kind else answer.subject
        lines += [_found(subject, answer.finding), ""]
    for beside in part.beside:
        lines += [_found(beside.about, beside.finding), "", *_table_lines(beside.table)]
    unfolded = (cells for cells in part.tables if cells.on != "terminal" and not cells.folded and cells.rows)
    for cells in [*unfolded][:1]:
        lines += [f"**{escaped_markdown(cells.title)}**", "", *_table_lines(cells)]
    for title, items in _lists(part).items():
        listed = [f"- {escaped_markdown(item)}" for item in dict.fromkeys(items)]
        lines += [f"**{title}**", "", *listed, ""] if listed else []
    command = visible(" ".join(part.repeat.command)).replace("`", "'")
    return "\n".join([*lines, f"Repeat: `{command}`", ""])


def _found(subject: str, finding: Finding) -> str:
    about = f"{escaped_markdown(subject)}: " if subject else ""
    return f"{about}**{escaped_markdown(finding.verdict)}**. {escaped_markdown(finding.sentence)}"


def _table_lines(cells: PageTable) -> list[str]:
    rows = [tuple(cell.replace("\n", ", ") for cell in row) for row in cells.rows]
    head, *shown = [f"| {' | '.join(map(escaped_markdown, row))} |" for row in (cells.columns, *rows)]
    return [head, f"|{' --- |' * len(cells.columns)}", *shown, ""]


def _lists(part: RunContent) -> dict[str, Iterable[str]]:
    """How to read the tables, and how far to trust the answers, by title."""
    return {
        "How to read it": (*part.details, *(note for beside in part.beside for note in beside.notes)),
        "Confidence": (f"{title}{of}: {trust.word}. {trust.why}" for title, trust, of in part.confidences),
        "Checks": (
            f"{check.state}: {check.name}{f' (affects {check.affects} only)' if check.affects else ''}: {check.message}"
            for check in part.checks
        ),
        "Limitations": (*part.caveats, *(caveat for beside in part.beside for caveat in beside.finding.caveats)),
        "Error rates": part.errors,
        "What would change the answer": part.would_change,
        "How it was made": (f"{name}: {value}" for name, value in part.repeat.facts),
    }


def escaped_markdown(text: str) -> str:
    r"""Text escaped so that Markdown shows it unchanged.

    >>> print(escaped_markdown("a|b <i> `c`"))
    a\|b \<i\> \`c\`
    """
    return _BEGINS.sub(r"\1\\", _SPECIAL.sub(r"\\\1", visible(" ".join(text.split()))))

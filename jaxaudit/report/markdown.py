"""What is said of a run, as Markdown for a ticket, a wiki or a model card."""

import re

from jaxaudit.errors import visible
from jaxaudit.report.page import Answer, Cells, Part

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~&$@]|(?<=:)(?=//))")


def as_markdown(part: Part) -> str:
    """Question, answers, the page's first table, checks and limitations, in this order. Names from data are escaped.

    The same finding as on the terminal and the page, sentence for sentence.
    """
    lines = [f"## {_plain(part.question)}", ""]
    for answer in part.answers:
        lines += [_answer(answer), ""]
    tables = [cells for cells in part.tables if cells.on != "terminal" and not cells.folded and cells.rows]
    lines += [line for cells in tables[:1] for line in _table(cells)]
    listed = {
        "Confidence": tuple(f"{each.word}{of}. {each.why}" for each, of in part.confidences),
        "Checks": tuple(
            f"{check.state}: {check.name}{f' (affects {check.affects} only)' if check.affects else ''}: {check.message}"
            for check in part.checks
        ),
        "Limitations": part.caveats,
        "What would change the answer": part.would_change,
    }
    for title, items in listed.items():
        lines += [f"**{title}**", "", *(f"- {_plain(item)}" for item in items), ""] if items else []
    command = visible(" ".join(part.repeat.command)).replace("`", "'")
    return "\n".join([*lines, f"Repeat: `{command}`", ""])


def _answer(answer: Answer) -> str:
    about = f"{_plain(answer.about)}: " if answer.about else ""
    finding = answer.finding
    return f"{about}**{_plain(finding.verdict)}**. {_plain(finding.sentence)}"


def _table(cells: Cells) -> list[str]:
    rows = [cells.columns, tuple("---" for _ in cells.columns), *cells.rows]
    head = [f"**{_plain(cells.title)}**", ""] if cells.title else []
    shown = [row if place == 1 else tuple(map(_plain, row)) for place, row in enumerate(rows)]
    return [*head, *(f"| {' | '.join(row)} |" for row in shown), ""]


def _plain(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(_plain("a|b <i> `c`"))
    a\|b \<i\> \`c\`
    """
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))

"""The content of a run as Markdown, for a ticket or a wiki, or for a model card.

A card is metadata that the Hugging Face Hub reads (`model-index`), and prose.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from jaxaudit.audits.finding import Confidence
from jaxaudit.errors import visible
from jaxaudit.report.page import Answer, Beside, PageTable, RunContent

READ = "How to read it"
FENCE = "---"
"""The line before and after the metadata, which come first in a card."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~&$@]|(?<=:)(?=//)|(?<=www)(?=\.))")
_BEGINS = re.compile(r"^(\d*)(?=[.)]\s|[-+](?:\s|$)|[-=]{2})")
"""Beginnings of a text that Markdown would read as a list, a rule or a heading."""


def as_markdown(part: RunContent) -> str:
    """Question, answers, the page's first table, what stands beside, checks and limitations; names from data are
    escaped.
    """
    lines = [f"## {escaped_markdown(part.question)}", ""]
    for answer in part.answers:
        lines += [answer_line(answer), ""]
    for beside in part.beside:
        lines += [beside_line(beside), "", *table_lines(beside.table)]
    lines += _listed("How to read the tables of groups", [note for beside in part.beside for note in beside.notes])
    repeat = f"Repeat: `{repeat_line(part)}`"
    return "\n".join([*lines, *first_table(part), *_listed(READ, part.notes), *limits(part), repeat, ""])


def _listed(title: str, items: Iterable[str]) -> list[str]:
    """A titled list of these texts, each once; nothing without any."""
    lines = [f"- {escaped_markdown(item)}" for item in dict.fromkeys(items)]
    return [f"**{title}**", "", *lines, ""] if lines else []


def first_table(part: RunContent) -> list[str]:
    """The first table that a page shows unfolded, as lines of Markdown with its title; empty if there is none."""
    for cells in part.tables:
        if cells.on in ("page", "both") and not cells.folded and cells.rows:
            return table_lines(cells)
    return []


def table_lines(cells: PageTable) -> list[str]:
    lines = (tuple(cell.replace("\n", ", ") for cell in row) for row in cells.rows)
    rows = [cells.columns, tuple("---" for _ in cells.columns), *lines]
    head = [f"**{escaped_markdown(cells.title)}**", ""] if cells.title else []
    shown = [row if index == 1 else tuple(map(escaped_markdown, row)) for index, row in enumerate(rows)]
    return [*head, *(f"| {' | '.join(row)} |" for row in shown), ""]


def limits(part: RunContent) -> list[str]:
    """Confidence, checks, limitations and what would change the answer, as lists."""
    listed = {
        "Confidence": tuple(
            f"{title}{of}: {confidence.word}. {confidence.why}" for title, confidence, of in part.confidences
        ),
        "Checks": tuple(
            f"{check.state}: {check.name}{f' (affects {check.affects} only)' if check.affects else ''}: {check.message}"
            for check in part.checks
        ),
        "Limitations": part.caveats,
        "What would change the answer": part.would_change,
    }
    return [line for title, items in listed.items() for line in _listed(title, items)]


def repeat_line(part: RunContent) -> str:
    return visible(" ".join(part.repeat.command)).replace("`", "'")


def answer_line(answer: Answer) -> str:
    subject = answer.subject
    about = f"{escaped_markdown(subject[:1].upper() + subject[1:] if answer.kind else subject)}: " if subject else ""
    finding = answer.finding
    return f"{about}**{escaped_markdown(finding.verdict)}**. {escaped_markdown(finding.sentence)}"


def beside_line(beside: Beside) -> str:
    """A finding beside the answers, and what must be known to read it."""
    finding = beside.finding
    caveats = "".join(f" {escaped_markdown(caveat)}" for caveat in finding.caveats)
    verdict = f"**{escaped_markdown(finding.verdict)}**. {escaped_markdown(finding.sentence)}{caveats}"
    return f"{escaped_markdown(beside.about)}: {verdict}"


def escaped_markdown(text: str) -> str:
    r"""Text escaped so that Markdown shows it unchanged.

    >>> print(escaped_markdown("a|b <i> `c`"))
    a\|b \<i\> \`c\`
    """
    return _BEGINS.sub(r"\1\\", _SPECIAL.sub(r"\\\1", visible(" ".join(text.split()))))


def as_card(parts: Sequence[RunContent]) -> str:
    """The metadata of all runs as one block of YAML, and a section for each. Every text in the metadata is a quoted
    JSON scalar, so a name from data cannot change their structure.
    """
    return "\n".join([FENCE, *_metadata(parts), FENCE, "", *(line for part in parts for line in _section(part))])


def _metadata(parts: Sequence[RunContent]) -> Iterator[str]:
    yield "model-index:"
    yield f"- name: {_text(parts[0].name)}  # replace this by the name of your model"
    yield "  results:"
    for part in parts:
        data = next((value for _, label, value in part.repeat.data.rows if label == "name"), "data of the provider")
        for answer in part.answers:
            yield "  - task:"
            yield f"      type: {_text('other')}"
            yield f"      name: {_text(part.question)}"
            yield "    dataset:"
            yield f"      type: {_text(_slug(data))}"
            yield f"      name: {_text(data)}"
            yield "    metrics:"
            finding = answer.finding
            yield from _metric("verdict", finding.verdict, "", finding.confidence, part, answer)
            trust = finding.confidence if answer.trust is None else answer.trust
            yield from _metric(answer.measure, _number(answer.number), answer.interval, trust, part, answer)


def _metric(
    name: str, value: str | float, interval: str, confidence: Confidence, part: RunContent, answer: Answer
) -> Iterator[str]:
    facts = dict(part.repeat.facts)
    args = {
        "about": answer.subject,
        "interval": interval,
        "confidence": confidence.word,
        "seed": facts.get("Seed", ""),
        "program": facts.get("Program", ""),
    }
    yield f"    - type: {_text(_slug(name))}"
    yield f"      name: {_text(name)}"
    yield f"      value: {_text(value) if isinstance(value, str) else json.dumps(value)}"
    yield "      args:"
    yield from (f"        {key}: {_text(text)}" for key, text in args.items() if text)


def _section(part: RunContent) -> Iterator[str]:
    facts = dict(part.repeat.facts)
    yield from (
        "## Audit of what the model remembers",
        "",
        f"**{escaped_markdown(part.question)}** {escaped_markdown(part.intro)}",
        "",
    )
    for answer in part.answers:
        yield f"- {answer_line(answer)}{_measured(answer)}"
    yield from (f"- {beside_line(beside)}" for beside in part.beside)
    yield ""
    yield from first_table(part)
    yield from _listed(READ, part.notes)
    yield from _listed("Error rates", part.errors)
    yield from limits(part)
    versions = ", ".join(" ".join(row) for row in part.repeat.versions.rows)
    lines = (
        f"Seed: {facts.get('Seed', 'none')}",
        f"{facts.get('Program', '')} ({versions})",
        f"Device: {facts.get('Device', '')}",
        f"Started: {facts.get('Started', '')}",
    )
    yield from (
        "**How it was made**",
        "",
        *(f"- {escaped_markdown(line)}" for line in lines),
        f"- Repeat: `{repeat_line(part)}`",
        "",
    )


def _measured(answer: Answer) -> str:
    """The main number as a further sentence; empty if the finding's own sentence gives it."""
    sentence = answer.finding.sentence
    if answer.measure.lower() in sentence.lower() or answer.around_number:
        return ""
    between, name = f", {escaped_markdown(answer.interval)}" if answer.interval else "", answer.measure
    return f" {escaped_markdown(name[:1].upper() + name[1:])}: {escaped_markdown(answer.number)}{between}."


def _number(shown: str) -> str | float:
    """A displayed number as a number; other text unchanged.

    >>> _number("1,234.5"), _number("12%"), _number("none"), _number("infinite"), _number("under 0.1%")
    (1234.5, 0.12, 'none', 'infinite', 'under 0.1%')
    """
    if not re.fullmatch(r"-?[\d,]*\.?\d+(e[+-]?\d+)?%?", shown):
        return shown
    value = float(shown.replace(",", "").rstrip("%"))
    return round(value / 100, 12) if shown.endswith("%") else value


def _slug(text: str) -> str:
    """Small letters, digits and hyphens.

    >>> _slug("largest PDTP in nats (DTP-1 allows 1)")
    'largest-pdtp-in-nats-dtp-1-allows-1'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "other"


def _text(text: str) -> str:
    """A quoted scalar of YAML. Letters stay unescaped; a lone surrogate, which JSON allows, is invalid in YAML."""
    return json.dumps(visible(" ".join(text.split())), ensure_ascii=False)

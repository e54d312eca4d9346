"""The output of a run on a terminal of 80 columns."""

from collections.abc import Iterator
from dataclasses import replace

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxaudit.audits.finding import Tone, plural
from jaxaudit.errors import visible
from jaxaudit.report.page import Answer, Beside, PageTable, RunContent

STYLE: dict[Tone, str] = {"good": "bold green", "bad": "bold red", "open": "bold yellow"}
ROWS = 10
"""How many rows of a finding beside the answers are shown without `--details`."""
STATE = {"failed": "FAILED", "warning": "warning"}


def as_terminal(part: RunContent, hint: str = "") -> RenderableType:
    """Question, verdicts, tables, checks and limitations, in this order; with a `hint` how to see the rest, only what
    is needed to read the verdict, and its first limitation.
    """
    details = not hint
    where = ("both", "terminal", "details") if details else ("both", "terminal")
    tables = [_table(cells) for cells in part.tables if cells.on in where and cells.rows]
    # Why there is no verdict stands in the answer's sentence alone.
    tabled = part.tabled and not details and len(part.answers) > 1
    spoken = [answer for answer in part.answers if not tabled or answer.finding.tone == "open"]
    unsure = ("weak",) if not details else ("weak", "fair", "strong")
    return Group(
        Text(visible(part.question), "bold"),
        *map(_answer, spoken),
        Text(),
        *(line for table in tables for line in (*table, Text())),
        *(line for beside in part.beside for line in _beside(beside, hint)),
        *(_line(text, "dim") for text in dict.fromkeys((*part.legend, *(part.details if details else ())))),
        *(
            _line(f"{title}{of}: {confidence.word}. {confidence.why}")
            for title, confidence, of in part.confidences
            if confidence.word in unsure
        ),
        *_checks(part, hint),
        *(_line(f"limitation: {text}", "dim") for text in part.caveats[: None if details else 1]),
        *(_line(f"to do: {text}") for text in part.would_change),
    )


def _answer(answer: Answer) -> RenderableType:
    finding = answer.finding
    about = [(f"{visible(answer.about)}: ", "bold")] if answer.about else []
    words = Text.assemble(*about, (visible(finding.verdict), STYLE[finding.tone]), f". {visible(finding.sentence)}")
    return Padding(words, (0, 0, 0, 2))


def _beside(beside: Beside, hint: str) -> Iterator[RenderableType]:
    """A finding beside the answers; with a hint its first rows alone, and no limitation."""
    finding, every = beside.finding, beside.table.rows
    rows = every[:ROWS] if hint else every
    rest = f" The first {ROWS} of {len(every):,} are shown." if len(rows) < len(every) else ""
    title = f"{beside.about}: {finding.sentence}{rest}"
    yield from _table(replace(beside.table, title=title, rows=rows))
    yield from (_line(text, "dim") for text in beside.notes)
    if not hint:
        yield from (_line(text, "dim") for text in (finding.confidence.why, *finding.caveats))
    yield Text()


def _table(cells: PageTable) -> tuple[RenderableType, ...]:
    # No blanks at the edges, and none but the box's between columns: eight columns are to fit 80 characters.
    table = Table(
        box=SIMPLE,
        pad_edge=False,
        show_edge=False,
        padding=0 if len(cells.columns) > 6 else (0, 1, 0, 0),
    )
    for column in cells.columns:
        number = column in cells.numbers
        # A person's words may be long: they are folded rather than cut off.
        head = "\n".join(map(visible, column.split("\n")))
        table.add_column(head, justify="right" if number else "left", no_wrap=number, overflow="fold", max_width=40)
    for row in cells.rows:
        lines = (
            [Text(visible(line), STYLE[cells.tones[line]] if line in cells.tones else "") for line in cell.split("\n")]
            for cell in row
        )
        table.add_row(*map(Text("\n").join, lines))
    return (Text(visible(cells.title), "italic"), table) if cells.title and not cells.bare else (table,)


def _checks(part: RunContent, hint: str) -> list[RenderableType]:
    """Failed checks in full (with a hint, those no verdict rests on as a number); passed ones by number or name."""
    lines: list[RenderableType] = []
    failed = [check for check in part.checks if check.state != "passed"]
    for check in failed:
        if not hint or not check.affects:
            affects = f" (affects {visible(check.affects)} only)" if check.affects else ""
            parts = ((f"{STATE[check.state]} ", "bold red"), (f"{visible(check.name)}{affects}: ", "bold"))
            lines.append(Padding(Text.assemble(*parts, visible(check.message)), (0, 0, 0, 1)))
    every = [check for answer in part.answers for check in answer.finding.checks]
    not_all = {check.name for check in every if check.state != "passed"}
    passed = dict.fromkeys(visible(check.name) for check in every if check.name not in not_all)
    if not hint:
        return [*lines, _line(f"checks passed: {', '.join(passed)}", "dim")] if passed else lines
    aside = [check for check in failed if check.affects]
    counts = [f"{plural(len(passed), 'check')} passed"] if passed else []
    counts += [f"{len(aside)} failed on what decides nothing"] if aside else []
    further = len(part.caveats) - 1
    counts += [plural(further, "more limitation")] if further > 0 else []
    counted = f"{', '.join(counts)}. " if counts else ""
    return [*lines, _line(f"{counted}{hint}", "dim")]


def _line(text: str, style: str = "") -> RenderableType:
    return Padding(Text(visible(text), style), (0, 0, 0, 1))

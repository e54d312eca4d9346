"""The content of a report: plain text, tables and charts. Terminal text and HTML only lay out the same `RunContent`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from jaxaudit.audits.finding import Checked, Confidence, Finding, Tone, in_order
from jaxaudit.report.sources import Term

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Item = TypeVar("Item")

Where = Literal["both", "page", "terminal", "details"]
LISTED = 50
"""The most records, or groups, that a page lists."""


@dataclass(frozen=True)
class PageTable:
    """A table.

    Attributes:
        columns: names of the columns; those also in `numbers` are numeric and aligned to the right.
        rows: texts, one per column. Names and cells may have several lines, which a page wraps as needed.
        folded, bare: whether a page shows it collapsed, and a terminal without its title.
        tones: which lines of cells are good, bad or open.
        on: where it is shown; `details` are a page, and a terminal with `--details`.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...] = ()
    folded: bool = False
    tones: Mapping[str, Tone] = field(default_factory=dict)
    on: Where = "page"
    bare: bool = False


Column = Callable[[Any], str] | tuple[str, Callable[[Any], str]]
"""A cell of a table, from what its row is of: a function, or the path to a value (fields and places, `1.name`) and how
the value is shown.
"""


ColumnsByHead = dict[str, Column]


def table_of(
    title: str, items: Iterable[Any], columns: Mapping[str, Column], words: Collection[str] = (), **how: Any
) -> PageTable:
    """A table with a row for each item. Columns are numeric but for those in `words`."""
    rows = tuple(tuple(_cell(item, column) for column in columns.values()) for item in items)
    return PageTable(title, tuple(columns), rows, tuple(name for name in columns if name not in words), **how)


def _cell(item: Any, column: Column) -> str:
    if callable(column):
        return column(item)
    path, shown = column
    for part in path.split("."):
        item = item[int(part)] if part.isdigit() else getattr(item, part)
    return shown(item)


def tables_of_first(
    title: str, items: Sequence[Any], columns: Mapping[str, Column], words: Collection[str] = (), top: int = 5
) -> tuple[PageTable, ...]:
    """The first `top` items for a terminal, and the first `LISTED` for a page; the title has their number at `{}`."""
    shown = ((items[:top], "terminal"), (items[:LISTED], "page"))
    return tuple(
        table_of(title.format(f"{len(some):,}"), some, columns, words, folded=True, on=on) for some, on in shown
    )


class Picture(NamedTuple):
    """A chart of more numbers than are read in a table; `name` has letters, digits and hyphens, `caption` says how to
    read it, and `numbers` has its numbers, also for readers who cannot see it.
    """

    name: str
    title: str
    caption: str
    draw: "Callable[[], Figure]"
    numbers: PageTable


class DrawnShare(NamedTuple):
    """A share on a line from 0 to 100%, as a card draws it: `estimate` may lie outside [0, 1], its limits may not."""

    estimate: float | None
    low: float
    high: float
    limit: float
    limit_words: str


class Answer(NamedTuple):
    """One answer, about a target, classifier or method (empty if the question names it).

    The main number has a name (`measure`), is formatted, and has its interval with the level, if available. `facts` are
    names and values shown with it. `trust` is the confidence in the main number, `bar` a drawing of it.
    """

    about: str
    finding: Finding
    measure: str
    number: str
    interval: str
    facts: tuple[tuple[str, str], ...] = ()
    trust: Confidence | None = None
    bar: DrawnShare | None = None

    @property
    def confidences(self) -> tuple[tuple[str, Confidence], ...]:
        """How far to trust the verdict, and the main number if that differs; each with a label."""
        if self.trust is None:
            return (("confidence", self.finding.confidence),)
        return ("confidence in the verdict", self.finding.confidence), (f"confidence in the {self.measure}", self.trust)


class Repeat(NamedTuple):
    """How to repeat a run: the command in pieces that must not be broken across lines, facts, and all that is known."""

    command: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    record: PageTable


class Beside(NamedTuple):
    """A finding beside the answers, such as that on the groups of a target. `conditions`: what `--fail-on` may name of
    it. `table`: what it rests on, whose first rows a terminal shows without `--details`. `notes`: how to read it.
    """

    about: str
    finding: Finding
    conditions: tuple[str, ...]
    table: PageTable
    notes: tuple[str, ...]


WORSE = {"gives-records-away": {"gives-some-away"}}
"""Verdicts that a gate on milder ones, on the right, stops too: what gives records away gives some away."""
NO_REPEAT = Repeat((), (), PageTable("", (), ()))


class RunContent(NamedTuple):
    """The content of one run; its name and how to repeat it are added by `part_of`.

    Attributes:
        intro: what was done, for readers who have not read the papers.
        legend: what is needed to read the terminal's tables; `details`: to read all tables.
        errors: how often the answers are wrong, in sentences.
        tabled: whether a table of the terminal has the verdict of every answer.
    """

    question: str
    intro: str
    answers: tuple[Answer, ...]
    tables: tuple[PageTable, ...]
    legend: tuple[str, ...]
    terms: tuple[Term, ...]
    errors: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    tabled: bool = False
    beside: tuple[Beside, ...] = ()
    pictures: tuple[Picture, ...] = ()
    name: str = ""
    repeat: Repeat = NO_REPEAT

    @property
    def conditions(self) -> set[str]:
        """What `--fail-on` may name of the run: the verdicts, milder ones in them, and what stands beside them."""
        verdicts = {answer.finding.verdict.replace(" ", "-") for answer in self.answers}
        milder = (WORSE.get(verdict, set()) for verdict in verdicts)
        return verdicts.union(*milder, *(beside.conditions for beside in self.beside))

    @property
    def checks(self) -> tuple[Checked, ...]:
        """Every check of the answers once, with the names of the answers that it concerns, unless it concerns all. If a
        failed check decides no verdict, it is shown as in the first answer.
        """
        aside: dict[tuple[str, str], Checked] = {}
        checks_of_answers = [
            (
                answer,
                [
                    aside.setdefault((check.name, check.affects), check) if check.affects else check
                    for check in answer.finding.checks
                ],
            )
            for answer in self.answers
        ]
        shared = ((check, _of(owners, self.answers)) for check, owners in _shared(checks_of_answers))
        return in_order(msgspec.structs.replace(check, name=check.name + owners) for check, owners in shared)

    @property
    def caveats(self) -> tuple[str, ...]:
        """The limitations of the answers, each once: those of all answers first."""
        shared = _shared((answer, answer.finding.caveats) for answer in self.answers)
        return tuple(caveat for caveat, owners in sorted(shared, key=lambda pair: -len(pair[1])))

    @property
    def would_change(self) -> tuple[str, ...]:
        """What would change the answers, each once."""
        return tuple(dict.fromkeys(advice for answer in self.answers for advice in answer.finding.would_change))

    @property
    def confidences(self) -> tuple[tuple[str, Confidence, str], ...]:
        """How far to trust the answers, each statement once: its label, and the names of the answers, if not all."""
        shared = _shared((answer, answer.confidences) for answer in self.answers)
        return tuple((title, confidence, _of(owners, self.answers)) for (title, confidence), owners in shared)


def _shared(pairs: Iterable[tuple[Answer, Sequence[Item]]]) -> list[tuple[Item, list[Answer]]]:
    """Each distinct statement about the answers once, with the answers that it concerns."""
    answers_of_value: dict[Item, list[Answer]] = {}
    for answer, values in pairs:
        # Two tests may say the same of one answer.
        for one in dict.fromkeys(values):
            answers_of_value.setdefault(one, []).append(answer)
    return list(answers_of_value.items())


def _of(owners: Sequence[Answer], answers: Sequence[Answer]) -> str:
    return "" if len(owners) == len(answers) else f" ({', '.join(answer.about for answer in owners)})"

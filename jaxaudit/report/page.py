"""What is said of a run, before it is a terminal's text or HTML: plain text, tables, and charts.

Both are made of the same `Part`. They lay out; they decide nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import msgspec

from jaxaudit.audits.finding import Checked, Confidence, Finding, Tone, in_order
from jaxaudit.report.glossary import Term

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Said = TypeVar("Said")
FIRST_LINES = "<!DOCTYPE html>\n<!-- a report of jaxaudit -->\n"
"""What a file begins with that a report may be written over."""

Where = Literal["both", "page", "terminal"]


@dataclass(frozen=True)
class Cells:
    """A table.

    Attributes:
        title: what it is of.
        columns: their names; those of numbers are in `numbers` too, and set to the right.
        rows: texts, as many as there are columns. A cell may have several lines.
        numbers: see `columns`.
        folded: whether the page closes it until asked for.
        tones: which cell texts are good, bad or open news.
        on: where it is shown.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...] = ()
    folded: bool = False
    tones: Mapping[str, Tone] = field(default_factory=dict)
    on: Where = "page"


class Picture(NamedTuple):
    """A chart.

    Attributes:
        name: letters, digits and hyphens; of its file.
        title: what it shows.
        seen: what there is to see, for who cannot see it.
        caption: how to read it.
        draw: makes the figure.
        numbers: every number in it.
    """

    name: str
    title: str
    seen: str
    caption: str
    draw: "Callable[[], Figure]"
    numbers: Cells


class Answer(NamedTuple):
    """One answer.

    Attributes:
        about: whom or what it is about; empty where the question says so.
        finding: what was decided.
        measure: what its main number is called.
        number: as shown.
        interval: as shown, with its level; empty where there is none.
        facts: name and value of what else belongs beside it.
        alone: the verdict where nothing else of this stands beside it; empty where it is the same.
    """

    about: str
    finding: Finding
    measure: str
    number: str
    interval: str
    facts: tuple[tuple[str, str], ...] = ()
    alone: str = ""


class Repeat(NamedTuple):
    """What makes the run again; the command in pieces that stay on a line."""

    command: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    data: Cells
    versions: Cells
    options: Cells


class Part(NamedTuple):
    """What is said of one run.

    Attributes:
        name: the run's.
        kind: the command.
        question: what was asked.
        intro: what was done, for who has not read the papers.
        answers: one a target, classifier or method.
        tables: its tables; each says where it is shown.
        pictures: makes its charts, which a terminal does not ask for.
        legend: how to read the terminal's tables.
        repeat: how the run is made again.
        terms: of the glossary.
    """

    name: str
    kind: str
    question: str
    intro: str
    answers: tuple[Answer, ...]
    tables: tuple[Cells, ...]
    pictures: Callable[[], tuple[Picture, ...]]
    legend: tuple[str, ...]
    repeat: Repeat
    terms: tuple[Term, ...]

    @property
    def checks(self) -> tuple[Checked, ...]:
        """Every check of the answers once, with the names of those it is about where these are not all.

        Of one that failed and that no verdict rests on, the first answer's stands for all.
        """
        aside: dict[tuple[str, str], Checked] = {}

        def first(each: Checked) -> Checked:
            return aside.setdefault((each.name, each.affects), each) if each.affects else each

        return in_order(
            msgspec.structs.replace(each, name=each.name + _of(whose, self.answers))
            for each, whose in _shared((answer, list(map(first, answer.finding.checks))) for answer in self.answers)
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """The limitations of the answers, each once."""
        return tuple(dict.fromkeys(each for answer in self.answers for each in answer.finding.caveats))

    @property
    def would_change(self) -> tuple[str, ...]:
        """What would change the answers, each once."""
        return tuple(dict.fromkeys(each for answer in self.answers for each in answer.finding.would_change))

    @property
    def confidences(self) -> tuple[tuple[Confidence, str], ...]:
        """How far to trust the answers, once for those that have the same reasons: with their names, if not all."""
        shared = _shared((answer, (answer.finding.confidence,)) for answer in self.answers)
        return tuple((each, _of(whose, self.answers)) for each, whose in shared)


class Page(NamedTuple):
    """The whole page.

    Attributes:
        title: of the page.
        parts: a run each.
        together: what several runs have in common, in one table.
        pictures: several runs in one chart.
        terms: of all parts.
        papers: the sources in full.
    """

    title: str
    parts: tuple[Part, ...]
    together: Cells | None
    pictures: tuple[Picture, ...]
    terms: tuple[Term, ...]
    papers: tuple[str, ...]


def _shared(said: Iterable[tuple[Answer, Sequence[Said]]]) -> list[tuple[Said, list[Answer]]]:
    """What was said of each answer, each once, with the answers it was said of."""
    found: dict[Said, list[Answer]] = {}
    for answer, each in said:
        for one in each:
            found.setdefault(one, []).append(answer)
    return list(found.items())


def _of(whose: Sequence[Answer], answers: Sequence[Answer]) -> str:
    return "" if len(whose) == len(answers) else f" ({', '.join(answer.about for answer in whose)})"

"""What a page says, before it is HTML: plain text, tables, and charts with what there is to see in them."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from matplotlib.figure import Figure

Tone = Literal["good", "bad", "open"]
State = Literal["passed", "warning", "failed"]


class Cells(NamedTuple):
    """A table.

    Attributes:
        title: what it is of.
        columns: their names; those of numbers are in `numbers` too, and set to the right.
        rows: texts, as many as there are columns.
        folded: whether it is closed until asked for.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...] = ()
    folded: bool = False


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
    draw: Callable[[], Figure]
    numbers: Cells


class Confidence(NamedTuple):
    """How far to trust an answer, in a word, and why."""

    word: Literal["none", "weak", "fair", "strong"]
    why: str


class Answer(NamedTuple):
    """One answer.

    Attributes:
        about: whom or what it is about.
        verdict: in a word or two.
        tone: of the verdict.
        sentence: the verdict as a sentence.
        measure: what the number is called.
        number: as shown.
        interval: as shown, with its level; empty where there is none.
        confidence: it deserves.
        facts: name and value of what else belongs beside it.
        alone: the verdict where nothing else of this stands beside it; empty where it is the same.
    """

    about: str
    verdict: str
    tone: Tone
    sentence: str
    measure: str
    number: str
    interval: str
    confidence: Confidence
    facts: tuple[tuple[str, str], ...] = ()
    alone: str = ""


class Checked(NamedTuple):
    """One thing that could have made the answer wrong."""

    name: str
    state: State
    words: str


class Repeat(NamedTuple):
    """What makes the run again; the command in pieces that stay on a line."""

    command: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    data: Cells
    versions: Cells
    options: Cells


class Part(NamedTuple):
    """What the page says of one run."""

    name: str
    kind: str
    question: str
    intro: str
    answers: tuple[Answer, ...]
    checks: tuple[Checked, ...]
    pictures: tuple[Picture, ...]
    details: tuple[Cells, ...]
    notes: tuple[str, ...]
    repeat: Repeat
    terms: tuple[str, ...]


class Page(NamedTuple):
    """The whole page.

    Attributes:
        title: of the page.
        parts: a run each.
        together: what several runs have in common, in one table.
        pictures: several runs in one chart.
        terms: term, meaning and source.
        papers: the sources in full.
    """

    title: str
    parts: tuple[Part, ...]
    together: Cells | None
    pictures: tuple[Picture, ...]
    terms: tuple[tuple[str, str, str], ...]
    papers: tuple[str, ...]

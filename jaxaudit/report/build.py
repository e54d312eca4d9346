"""Builds a page from runs: each run by itself, and all of them side by side.

A page is a value before it is HTML. `report/build.py` makes a `Page` of plain text, tables and charts from runs, and
`report/html/render.py` makes HTML of it: autoescaped, no script, a content policy that forbids fetching. Charts are
made when a page asks for them; a terminal does not. A chart is drawn once; on the page its colours become variables, so
that dark mode and print have their own, and its text stays text. Runs read from disk are decoded strictly, and arrays
held against the result, before anything is drawn.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxaudit.errors import InputError, visible
from jaxaudit.report.glossary import papers, sorted_terms
from jaxaudit.report.kinds import NAMES, charts, run_kind
from jaxaudit.report.page import Page, PageTable, RunContent
from jaxaudit.report.record import Run
from jaxaudit.report.repeat import repeat

MOST_RUNS = 24


def build(runs: Sequence[Run[Any]]) -> Page:
    """The page of these runs, in this order.

    Raises:
        InputError: there is no run, or there are more than fit a page.
    """
    if len(runs) < 1 or len(runs) > MOST_RUNS:
        raise InputError(f"a report shows 1 to {MOST_RUNS} runs; {len(runs)} were given.")
    runs = _apart(runs)
    parts = [part_of(run) for run in runs]
    several = len(parts) > 1
    terms = sorted_terms(term for part in parts for term in part.terms)
    alike = {name: [run for run in runs if run.kind == name] for name in NAMES}
    compared = [
        charts(name).compared(same_kind)
        for name, same_kind in alike.items()
        if len(same_kind) > 1 and run_kind(name).charted
    ]
    return Page(
        "Runs side by side" if several else parts[0].question,
        tuple(parts),
        _together(parts) if several else None,
        tuple(picture for pictures in compared for picture in pictures),
        terms,
        papers(source for run, part in zip(runs, parts, strict=True) for source in _sources(run, part)),
    )


def _sources(run: Run[Any], part: RunContent) -> list[str]:
    """The papers that the numbers of a run rest on; of a run that does not say so, those of its terms."""
    return [term.source for term in part.terms] if run.papers is None else [paper.source for paper in run.papers]


def part_of(run: Run[Any], top: int = 10) -> RunContent:
    """The content of one run; `top` is the number of records that a terminal lists."""
    kind = run_kind(run.kind)
    part = kind.view(run, top)._replace(name=visible(run.name), kind=run.kind, repeat=repeat(run.provenance))
    # What draws charts is imported only where they are drawn.
    return part._replace(pictures=lambda: charts(run.kind).pictures(run)) if kind.charted else part


def _apart(runs: Sequence[Run[Any]]) -> list[Run[Any]]:
    """The runs with distinct names."""
    counts, seen, named_runs = Counter(run.name for run in runs), Counter[str](), []
    for run in runs:
        seen[run.name] += 1
        named_runs.append(replace(run, name=f"{run.name} ({seen[run.name]})") if counts[run.name] > 1 else run)
    return named_runs


def _together(parts: Sequence[RunContent]) -> PageTable:
    return PageTable(
        "All answers",
        ("run", "question", "about", "verdict", "measure", "number", "interval", "confidence"),
        tuple(
            (
                part.name,
                part.question,
                answer.about,
                answer.alone or answer.finding.verdict,
                answer.measure,
                answer.number,
                answer.interval or "none",
                answer.finding.confidence.word,
            )
            for part in parts
            for answer in part.answers
        ),
        ("number",),
    )

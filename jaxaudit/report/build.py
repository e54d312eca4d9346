"""Builds a page from runs: each run by itself, all of them side by side, and how to repeat each.

A page is plain text, tables and charts before `html/render.py` makes HTML of it. Runs read from disk are decoded
strictly, and arrays held against the result, before anything is drawn.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from jaxaudit.errors import InputError, visible
from jaxaudit.report.kinds import run_kind
from jaxaudit.report.numbers import text
from jaxaudit.report.page import Page, PageTable, Repeat, RunContent, table_of
from jaxaudit.report.record import Provenance, Run
from jaxaudit.report.sources import papers, sorted_terms
from jaxaudit.report.words import in_words

MOST_RUNS = 24


def build(runs: Sequence[Run[Any]]) -> Page:
    """The page of these runs, in this order; no run, or more than fit a page, are an `InputError`."""
    if len(runs) < 1 or len(runs) > MOST_RUNS:
        raise InputError(f"a report shows 1 to {MOST_RUNS} runs; {len(runs)} were given.")
    runs = _apart(runs)
    parts = [part_of(run) for run in runs]
    several = len(parts) > 1
    terms = sorted_terms(term for part in parts for term in part.terms)
    return Page(
        "Runs side by side" if several else parts[0].question,
        tuple(parts),
        _together(parts) if several else None,
        terms,
        papers(paper.source for run in runs for paper in run.papers),
    )


def part_of(run: Run[Any], top: int = 10) -> RunContent:
    """The content of one run; `top` is the number of records that a terminal lists."""
    part = run_kind(run.kind).view(run, top)._replace(name=visible(run.name), repeat=repeat(run.provenance))
    names = run.provenance.options.get("name")
    names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    alone = part.answers[0].about if len(part.answers) == 1 else ""
    return in_words(part, names, alone)


def _apart(runs: Sequence[Run[Any]]) -> list[Run[Any]]:
    counts, seen, named_runs = Counter(run.name for run in runs), Counter[str](), []
    for run in runs:
        seen[run.name] += 1
        named_runs.append(replace(run, name=f"{run.name} ({seen[run.name]})") if counts[run.name] > 1 else run)
    return named_runs


def _together(parts: Sequence[RunContent]) -> PageTable:
    columns = {
        "run": ("0.name", str),
        "question": ("0.question", str),
        "about": ("1.about", str),
        "verdict": lambda pair: pair[1].alone or pair[1].finding.verdict,
        "measure": ("1.measure", str),
        "number": ("1.number", str),
        "interval": lambda pair: pair[1].interval or "none",
        "confidence": ("1.finding.confidence.word", str),
    }
    return table_of(
        "All answers", [(part, answer) for part in parts for answer in part.answers], columns, set(columns) - {"number"}
    )


def repeat(provenance: Provenance) -> Repeat:
    """The command, and everything else that is known of the run."""
    devices = f", {text(provenance.devices)} devices" if provenance.devices != 1 else ""
    facts = [
        ("Seed", str(provenance.seed)),
        ("Started", f"{visible(provenance.started)} and took {provenance.seconds:,.0f} seconds"),
        ("Device", f"{visible(provenance.device)}{devices}, {text(provenance.cores)} cores"),
        ("Program", f"jaxaudit {visible(provenance.jaxaudit)}, Python {text(provenance.python)}"),
    ]
    values = {name: value for name, value in structs.asdict(provenance).items() if name != "command"}
    record = PageTable("Everything that the run was made of", ("what", "value"), tuple(_flat("", values)))
    return Repeat(tuple(_pieces(provenance.command)), tuple(facts), record)


def _pieces(words: Sequence[str]) -> list[str]:
    """The command as text, in pieces of an option with its value.

    >>> _pieces(["jaxaudit", "ks", "--query", "my data.npz", "--json"])
    ['jaxaudit ks', "--query 'my data.npz'", '--json']
    """
    pieces: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not pieces:
            pieces.append([])
        pieces[-1].append(word)
    return [visible(shlex.join(piece)) for piece in pieces]


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """A row for each fact within a value, with the names that lead to it; none for what there is not."""
    if isinstance(value, dict):
        return [row for key, part in value.items() for row in _flat(f"{name} {key}".replace("_", " "), part)]
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return [row for part in value for row in _flat(name, part)]
    return [] if value in (None, []) else [(visible(name.strip()), text(value))]

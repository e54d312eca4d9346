"""The content of a `power` run for the terminal and the page, from its result alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jaxaudit.audits.ks.scores import ScoresTest
from jaxaudit.audits.ks.tests_of_use.holdout import HoldoutTest
from jaxaudit.audits.ks.tests_of_use.members import MembersTest
from jaxaudit.audits.power.result import (
    NEEDED,
    REMEMBERS,
    By,
    Conclusion,
    PowerResult,
    Size,
    check_power_result,
    fraction_text,
)
from jaxaudit.errors import visible
from jaxaudit.metrics.effect import POWER as WANTED
from jaxaudit.metrics.power import Separation
from jaxaudit.metrics.usage import STATED_FRACTION
from jaxaudit.report.kinds import Arrays, RunKind
from jaxaudit.report.numbers import NONE, number_text, precise, sets_of
from jaxaudit.report.page import Answer, PageTable, Picture, RunContent, Where
from jaxaudit.report.record import Run, record_type
from jaxaudit.report.sources import terms

HEAD = "What could be concluded of a target, at the sizes given"
SCALED = (
    "Called `forgotten`, if never used: with known members and shadow models, and with members alone, by how much the "
    "target remembers"
)
WITH_MODELS: By = "members and shadow models"
WITH: dict[By, str] = {
    WITH_MODELS: "members and models",
    "members": "members alone",
    "holdout": "holdout only",
}
MUCH = dict(zip(REMEMBERS, ("as much", "a half", "a quarter"), strict=True))
"""Names of the multiples of what the shadow models memorise."""
CANNOT = "cannot be"
ABOUT = (
    "It also shows what could be concluded of a target that remembers as much of what it used as the shadow models do, "
    "a half of that, or a quarter: nobody knows beforehand how much it is. "
    f"With a holdout only, `forgotten` {CANNOT} concluded: it needs {NEEDED}."
)
HOW_TO_READ = (
    f"With a holdout only, `forgotten` {CANNOT} concluded: it needs {NEEDED}. With models: shadow models are trained, "
    "too. Members alone: no shadow models are trained.",
    "Remembers: how much a target remembers of what it used, in what the shadow models do; nobody knows it "
    "beforehand. Memory: the difference between known members and holdout, in standard errors. Unused: the target "
    "never used the query set. `forgotten`: the upper limit of the used fraction (one-sided, 95%) is at most "
    f"{100 * STATED_FRACTION:g}%.",
)
WHERE: tuple[Where, ...] = ("terminal", "page")
BY_SIZE = "Probability of detecting use of part of the query set"
BY_MODELS = "By number of shadow models, at the sizes given"
LARGER = "The same query set with larger holdouts"


def power_part(run: Run[PowerResult], top: int = 0) -> RunContent:
    result, scored = run.result, "scores" in run.provenance.data
    size_given = result.given
    columns = ("shadow models", "min. detectable")
    seen = [f"{fraction_text(chance.fraction)}: {_percent(chance.probability)}" for chance in size_given.chances]
    by_models = tuple((str(row.models), _fraction(row.min_detectable)) for row in result.by_models)
    # If the records do not suffice, the finding already gives the number that would.
    suffice = [_needed(result)] if result.finding.verdict == "sufficient" else []
    return RunContent(
        f"Are there enough records to detect use of {fraction_text(result.fraction)} of the query set?",
        f"{_about(run)} {ABOUT}",
        (
            Answer(
                "",
                result.finding,
                "minimum detectable fraction",
                _fraction(size_given.min_detectable),
                "",
                (
                    ("Records given", f"{size_given.query:,} query, {size_given.holdout:,} holdout"),
                    ("Fraction asked about", fraction_text(result.fraction)),
                    *(("Records that suffice", needed) for needed in suffice),
                ),
            ),
        ),
        (
            *(table for on in WHERE for table in (_concluded(result, on, scored), _forgotten(result, on, scored))),
            *(_detection(BY_SIZE, result.sizes, on) for on in WHERE),
            *(_detection(LARGER, result.holdouts, on) for on in WHERE),
            *(() if scored else (PageTable(BY_MODELS, columns, by_models, columns, on="both"),)),
            _separation(result),
        ),
        (
            "*: the sizes given. Min. detectable: the smallest used fraction that would be detected with 95% "
            "probability.",
            *(f"Records that suffice to detect {fraction_text(result.fraction)} use: {needed}." for needed in suffice),
            *(HOW_TO_READ[1:] if scored else HOW_TO_READ),
        ),
        terms(
            "query set", "calibration set", "holdout", "shadow model", "minimum detectable fraction", "known members"
        ),
        (f"Planned for the test of scores. {ScoresTest.errors}",)
        if scored
        else (f"Planned for the holdout test. {HoldoutTest.errors}", f"And for the members test. {MembersTest.errors}"),
        pictures=lambda: (
            Picture(
                "detection",
                "Probability of detection by used fraction",
                f"At the sizes given, by used fraction: {'; '.join(seen)}.",
                "A line for each size: query + holdout records. Upright: the fraction asked about. "
                f"Level: {WANTED:.0%}.",
                result.plot,
                replace(_detection(BY_SIZE, result.sizes, "page"), folded=True),
            ),
        ),
    )


def _detection(title: str, sizes: Sequence[Size], on: Where) -> PageTable:
    breaks = "\n" if on == "terminal" else " "
    columns = (
        *(f"{name}{breaks}records" for name in ("query", "holdout")),
        *(f"{fraction_text(chance.fraction)}{breaks}used" for chance in sizes[0].chances),
        f"min.{breaks}detectable",
    )
    rows = (
        (
            f"{'*' if size.given else ''}{size.query:,}",
            f"{size.holdout:,}",
            *(_percent(chance.probability) for chance in size.chances),
            _fraction(size.min_detectable),
        )
        for size in sizes
    )
    return PageTable(title, columns, tuple(rows), columns, on=on)


def _separation(result: PowerResult) -> PageTable:
    measured = result.separation, result.memory.helped, result.memory.alone
    columns = ("holdout test", "members test, with shadow models", "members test, alone")

    def row(title: str, read: Callable[[Separation], float]) -> tuple[str, ...]:
        return title, *(precise(read(separation)) for separation in measured)

    rows = (
        row("mean score of records in training less that of others", lambda separation: separation.difference),
        row("variance of the scores of records in training", lambda separation: separation.inside),
        row("variance of the scores of others", lambda separation: separation.outside),
        row("variance of the difference between models", lambda separation: separation.between),
        row(
            "distance of a target with data of its own, in that of a shadow model",
            lambda separation: separation.stretch,
        ),
        row("shadow models", lambda separation: float(separation.models)),
    )
    return PageTable("Scores of the shadow models", ("what", *columns), rows, columns, folded=True)


def _needed(result: PowerResult) -> str:
    needed = result.records_needed
    return "no number is enough" if needed is None else f"{needed:,} query, {needed:,} holdout"


def _about(run: Run[PowerResult]) -> str:
    count, sets = run.result.separation.models, sets_of(run.provenance.data)
    detects = "of the query set the holdout test would detect, for a target of such a recipe"
    if sets.scores is not None:
        return (
            f"{count} models of the table {visible(sets.scores.name)} show how far scores separate records "
            f"that were used from others, and so how small a used fraction {detects}."
        )
    if sets.shadows is not None:
        return (
            f"{count} shadow models of {visible(sets.shadows.name)} were each trained on random records of "
            "query set and holdout. How far the test's score separates the two shows how small a used fraction "
            f"{detects}."
        )
    return (
        f"{count} shadow models were each trained on a random half of the query set and a share of the calibration "
        f"set. How far the test's score separates the two halves shows how small a used fraction {detects} with "
        "data of its own."
    )


def _fraction(value: float | None) -> str:
    return NONE if value is None else fraction_text(value)


def _concluded(result: PowerResult, on: Where, scored: bool) -> PageTable:
    """Probabilities of each verdict by available evidence and by how much a target memorises, at the given sizes."""
    titles = ("unused:\nforgotten", "all used:\nnot forgotten", "25% used:\nnot forgotten")
    columns = tuple(_laid(title, on) for title in ("with", "remembers", "memory", *titles))
    rows = (
        (
            WITH[conclusion.by],
            MUCH.get(conclusion.remembers, f"{conclusion.remembers:g}"),
            number_text(conclusion.memory, 1),
            *map(_percent, (conclusion.forgotten, conclusion.all_used, conclusion.part_used)),
        )
        for conclusion in result.concluded
        if not (scored and conclusion.by == WITH_MODELS)
    )
    return PageTable(HEAD, columns, tuple(rows), columns[2:], on=on)


def _forgotten(result: PowerResult, on: Where, scored: bool) -> PageTable:
    """The probability of `forgotten` by numbers of records, evidence, and how much a target memorises."""
    kinds: tuple[By, ...] = ("members",) if scored else (WITH_MODELS, "members")
    columns = (
        *(f"{name}\nrecords" for name in ("query", "holdout", "member")),
        *(f"{short}\n{much}" for short in ("models:", "alone:")[-len(kinds) :] for much in MUCH.values()),
    )
    columns = tuple(_laid(title, on) for title in columns)
    by_sizes: dict[tuple[int, int, int], list[Conclusion]] = {}
    for conclusion in result.conclusions:
        if conclusion.by in kinds:
            by_sizes.setdefault((conclusion.query, conclusion.holdout, conclusion.members), []).append(conclusion)
    sizes_given = (result.given.query, result.given.holdout, result.concluded[0].members)
    rows = (
        (
            f"{'*' if sizes == sizes_given else ''}{sizes[0]:,}",
            *(f"{records:,}" for records in sizes[1:]),
            *(_percent(conclusion.forgotten) for conclusion in row),
        )
        for sizes, row in by_sizes.items()
    )
    return PageTable(SCALED, columns, tuple(rows), columns, on=on)


def _laid(text: str, on: Where) -> str:
    """Text with line breaks on a terminal, and without them on a page."""
    return text if on == "terminal" else text.replace("\n", " ")


def _percent(chance: float | None) -> str:
    return CANNOT if chance is None else f"{100 * chance:.0f}%"


def _check(result: Any, arrays: Arrays) -> None:
    check_power_result(result, arrays)
    sets_of(result.provenance.data)


POWER = RunKind("power", record_type("power", PowerResult), power_part, _check, charted=False)

"""The content of a `power` run for the terminal and the page, from its result alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jaxaudit.audits.ks.scores import ScoresTest
from jaxaudit.audits.ks.tests.holdout import HoldoutTest
from jaxaudit.audits.ks.tests.members import MembersTest
from jaxaudit.audits.power.finding import NEEDED, percent
from jaxaudit.audits.power.result import REMEMBERS, By, PowerResult, Size, check
from jaxaudit.errors import visible
from jaxaudit.metrics.effect import POWER as WANTED
from jaxaudit.metrics.power import Separation
from jaxaudit.metrics.usage import STATED_FRACTION
from jaxaudit.report.glossary import terms
from jaxaudit.report.kinds import Arrays, Kind
from jaxaudit.report.numbers import NONE, number, precise
from jaxaudit.report.page import Answer, Cells, Part, Picture, Where
from jaxaudit.report.record import Run, record_type
from jaxaudit.report.sets import sets_of

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
    "too. Members alone: nothing is trained.",
    "Remembers: how much a target remembers of what it used, in what the shadow models do; nobody knows it "
    "beforehand. Memory: the difference between known members and holdout, in standard errors. Unused: the target "
    "never used the query set. `forgotten`: the upper limit of the used fraction (one-sided, 95%) is at most "
    f"{100 * STATED_FRACTION:g}%.",
)
WHERE: tuple[Where, ...] = ("terminal", "page")
BY_SIZE = "Probability of detecting use of part of the query set"
BY_MODELS = "By number of shadow models, at the sizes given"
LARGER = "The same query set with larger holdouts"


def power_part(run: Run[PowerResult], top: int = 0) -> Part:
    """The content of a run of `power`, which lists no records: `top` has no effect."""
    result, scored = run.result, "scores" in run.provenance.data
    given = result.given
    columns = ("shadow models", "min. detectable")
    seen = [f"{percent(each.fraction)}: {_percent(each.probability)}" for each in given.chances]
    by_models = tuple((str(each.models), _fraction(each.min_detectable)) for each in result.by_models)
    # If the records do not suffice, the finding already gives the number that would.
    suffice = [_needed(result)] if result.finding.verdict == "sufficient" else []
    return Part(
        f"Are there enough records to detect use of {percent(result.fraction)} of the query set?",
        f"{_about(run)} {ABOUT}",
        (
            Answer(
                "",
                result.finding,
                "minimum detectable fraction",
                _fraction(given.min_detectable),
                "",
                (
                    ("Records given", f"{given.query:,} query, {given.holdout:,} holdout"),
                    ("Fraction asked about", percent(result.fraction)),
                    *(("Records that suffice", needed) for needed in suffice),
                ),
            ),
        ),
        (
            *(table(result, on, scored) for on in WHERE for table in (_concluded, _scaled)),
            *(_detection(BY_SIZE, result.sizes, on) for on in WHERE),
            *(_detection(LARGER, result.holdouts, on) for on in WHERE),
            *(() if scored else (Cells(BY_MODELS, columns, by_models, columns, on="both"),)),
            _separation(result),
        ),
        (
            "*: the sizes given. Min. detectable: the smallest used fraction that would be detected with 95% "
            "probability.",
            *(f"Records that suffice to detect {percent(result.fraction)} use: {needed}." for needed in suffice),
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


def _detection(title: str, sizes: Sequence[Size], on: Where) -> Cells:
    breaks = "\n" if on == "terminal" else " "
    columns = (
        *(f"{name}{breaks}records" for name in ("query", "holdout")),
        *(f"{percent(each.fraction)}{breaks}used" for each in sizes[0].chances),
        f"min.{breaks}detectable",
    )
    rows = (
        (
            f"{'*' if size.given else ''}{size.query:,}",
            f"{size.holdout:,}",
            *(_percent(each.probability) for each in size.chances),
            _fraction(size.min_detectable),
        )
        for size in sizes
    )
    return Cells(title, columns, tuple(rows), columns, on=on)


def _separation(result: PowerResult) -> Cells:
    measured = result.separation, result.memory.helped, result.memory.alone
    columns = ("holdout test", "members test, with shadow models", "members test, alone")

    def row(what: str, read: Callable[[Separation], float]) -> tuple[str, ...]:
        return what, *(precise(read(each)) for each in measured)

    rows = (
        row("mean score of records in training less that of others", lambda each: each.difference),
        row("variance of the scores of records in training", lambda each: each.inside),
        row("variance of the scores of others", lambda each: each.outside),
        row("variance of the difference between models", lambda each: each.between),
        row("distance of a target with data of its own, in that of a shadow model", lambda each: each.stretch),
        row("shadow models", lambda each: float(each.models)),
    )
    return Cells("Scores of the shadow models", ("what", *columns), rows, columns, folded=True)


def _needed(result: PowerResult) -> str:
    needed = result.records_needed
    return "no number is enough" if needed is None else f"{needed:,} query, {needed:,} holdout"


def _about(run: Run[PowerResult]) -> str:
    count, sets = run.result.separation.models, sets_of(run.provenance.data)
    detects = "of the query set the holdout test would detect, for a target of such a design"
    if sets.scores is not None:
        return (
            f"{count} models of the table {visible(sets.scores.name)} show how far scores separate records "
            f"that were used from others, and so how small a used fraction {detects}."
        )
    if sets.shadows is not None:
        return (
            f"{count} shadow models of {visible(sets.shadows.name)} were each trained on random records of "
            "query set and holdout. How far their membership scores separate the two shows how small a used fraction "
            f"{detects}."
        )
    return (
        f"{count} shadow models were each trained on a random half of the query set and a share of the calibration "
        f"set. How far their membership scores separate the two halves shows how small a used fraction {detects} with "
        "data of its own."
    )


def _fraction(value: float | None) -> str:
    return NONE if value is None else percent(value)


def _concluded(result: PowerResult, on: Where, scored: bool) -> Cells:
    """Probabilities of each verdict by available evidence and by how much a target memorises, at the given sizes."""
    what = ("unused:\nforgotten", "all used:\nnot forgotten", "25% used:\nnot forgotten")
    columns = tuple(_laid(each, on) for each in ("with", "remembers", "memory", *what))
    rows = (
        (
            WITH[each.by],
            MUCH.get(each.remembers, f"{each.remembers:g}"),
            number(each.memory, 1),
            *map(_percent, (each.forgotten, each.all_used, each.part_used)),
        )
        for each in result.concluded
        if not (scored and each.by == WITH_MODELS)
    )
    return Cells(HEAD, columns, tuple(rows), columns[2:], on=on)


def _scaled(result: PowerResult, on: Where, scored: bool) -> Cells:
    """The probability of `forgotten` by numbers of records, evidence, and how much a target memorises."""
    kinds: tuple[By, ...] = ("members",) if scored else (WITH_MODELS, "members")
    columns = (
        *(f"{name}\nrecords" for name in ("query", "holdout", "member")),
        *(f"{short}\n{much}" for short in ("models:", "alone:")[-len(kinds) :] for much in MUCH.values()),
    )
    columns = tuple(_laid(each, on) for each in columns)
    found = {(each.query, each.holdout, each.by, each.remembers): each for each in result.conclusions}
    given, rows = (result.given.query, result.given.holdout), []
    for query, holdout in dict.fromkeys((each.query, each.holdout) for each in result.conclusions):
        cells = [found[query, holdout, by, factor] for by in kinds for factor in REMEMBERS]
        rows.append(
            (
                f"{'*' if (query, holdout) == given else ''}{query:,}",
                f"{holdout:,}",
                f"{cells[0].members:,}",
                *(_percent(each.forgotten) for each in cells),
            )
        )
    return Cells(SCALED, columns, tuple(rows), columns, on=on)


def _laid(text: str, on: Where) -> str:
    """Text with line breaks on a terminal, and without them on a page."""
    return text if on == "terminal" else text.replace("\n", " ")


def _percent(chance: float | None) -> str:
    return CANNOT if chance is None else f"{100 * chance:.0f}%"


def _check(result: Any, arrays: Arrays) -> None:
    """Holds a run that was read against itself: its numbers, and the sets that its provenance names."""
    check(result, arrays)
    sets_of(result.provenance.data)


POWER = Kind("power", record_type("power", PowerResult), power_part, _check, charted=False)

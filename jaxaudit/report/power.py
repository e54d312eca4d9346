"""The content of a `power` run for the terminal and the page, from its result alone."""

from collections.abc import Sequence

from jaxaudit.audits.ks.scores import ScoresTest
from jaxaudit.audits.ks.tests_of_use.holdout import HoldoutTest
from jaxaudit.audits.ks.tests_of_use.members import MembersTest
from jaxaudit.audits.power.result import (
    NEEDED,
    REMEMBERS,
    By,
    PowerResult,
    Size,
    check_power_result,
    fraction_text,
)
from jaxaudit.errors import visible
from jaxaudit.metrics.usage import POWER as WANTED
from jaxaudit.metrics.usage import STATED_FRACTION
from jaxaudit.plots import charts as plot
from jaxaudit.plots.style import chart
from jaxaudit.report.kinds import Run, RunKind, record_type
from jaxaudit.report.numbers import NONE, compared_sets, count_text, number_text
from jaxaudit.report.page import Answer, PageTable, Picture, RunContent, Where, table_of
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
BY_SIZE = "Probability of detecting use of part of the query set"
LARGER = "The same query set with larger holdouts"


def power_part(run: Run[PowerResult]) -> RunContent:
    result, scored = run.result, "scores" in run.provenance.data
    size_given = result.given
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
            _concluded(result, scored),
            _forgotten(result, scored),
            _detection(BY_SIZE, result, result.sizes, "terminal"),
            _detection(LARGER, result, result.holdouts, "both"),
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
        pictures=(_picture(result),),
    )


def _picture(result: PowerResult) -> Picture:
    return Picture(
        "detection",
        "Probability of detection by used fraction",
        f"A line for each size: query + holdout records. Upright: the fraction asked about. Level: {WANTED:.0%}.",
        chart(lambda axes: plot.draw_probabilities(axes, result)),
        _detection(BY_SIZE, result, result.sizes, "page"),
    )


def _detection(title: str, result: PowerResult, sizes: Sequence[Size], on: Where) -> PageTable:
    columns = {
        "query\nrecords": _query,
        "holdout\nrecords": ("holdout", count_text),
        **{
            f"{fraction_text(used)}\nused": lambda size, at=at: _percent(size.chances[at])
            for at, used in enumerate(result.fractions)
        },
        "min.\ndetectable": ("min_detectable", _fraction),
    }
    return table_of(title, sizes, columns, on=on)


def _query(size: Size) -> str:
    return f"{'*' if size.given else ''}{size.query:,}"


def _needed(result: PowerResult) -> str:
    needed = result.records_needed
    return "no number is enough" if needed is None else f"{needed:,} query, {needed:,} holdout"


def _about(run: Run[PowerResult]) -> str:
    count, sets = run.result.separation.models, compared_sets(run.provenance.data)
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


def _concluded(result: PowerResult, scored: bool) -> PageTable:
    """Probabilities of each verdict by available evidence and by how much a target memorises, at the given sizes."""
    concluded = [row for row in result.given.conclusions if not (scored and row.by == WITH_MODELS)]
    columns = {
        "with": lambda row: WITH[row.by],
        "remembers": lambda row: MUCH.get(row.remembers, f"{row.remembers:g}"),
        "memory": lambda row: number_text(row.memory, 1),
        "unused:\nforgotten": ("forgotten", _percent),
        "all used:\nnot forgotten": ("all_used", _percent),
        "25% used:\nnot forgotten": ("part_used", _percent),
    }
    return table_of(HEAD, concluded, columns, ("with", "remembers"), on="both")


def _forgotten(result: PowerResult, scored: bool) -> PageTable:
    """The probability of `forgotten` by numbers of records, evidence, and how much a target memorises."""
    kinds: dict[By, str] = {"members": "alone:"} if scored else {WITH_MODELS: "models:", "members": "alone:"}
    rows = [(size, [row for row in size.conclusions if row.by in kinds]) for size in result.sizes]
    heads = [f"{short}\n{much}" for short in kinds.values() for much in MUCH.values()]
    columns = {
        "query\nrecords": ("0", _query),
        "holdout\nrecords": ("0.holdout", count_text),
        "member\nrecords": ("1.0.members", count_text),
        **{head: (f"1.{at}.forgotten", _percent) for at, head in enumerate(heads)},
    }
    return table_of(SCALED, rows, columns, on="both")


def _percent(chance: float | None) -> str:
    return CANNOT if chance is None else f"{100 * chance:.0f}%"


POWER = RunKind("power", record_type("power", PowerResult), power_part, check_power_result)

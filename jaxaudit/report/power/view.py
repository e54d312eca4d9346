"""The content of a `power` run for the terminal and the page."""

from collections.abc import Callable, Sequence

from jaxaudit.audits.ks.tests.holdout import HoldoutTest
from jaxaudit.audits.ks.tests.members import MembersTest
from jaxaudit.audits.power.finding import percent
from jaxaudit.errors import visible
from jaxaudit.report.glossary import terms
from jaxaudit.report.numbers import NONE, precise
from jaxaudit.report.page import Answer, Cells, Part, Picture, Where
from jaxaudit.report.power.conclusions import ABOUT, HOW_TO_READ, concluded_table, scaled_table
from jaxaudit.report.power.record import PowerRecord, Separation, Size
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

LARGER = "The same query set with larger holdouts"


def power_part(run: Run[PowerRecord], top: int = 0) -> Part:
    """The content of a run of `power`, which lists no records: `top` has no effect."""
    result = run.result
    given = given_of(result)
    # Where they do not suffice, the finding says how many would, with those that the minimum detectable fraction takes.
    enough = result.finding.verdict == "sufficient"

    def pictures() -> tuple[Picture, ...]:
        from jaxaudit.report.power.pictures import power_pictures

        return power_pictures(run)

    return Part(
        named(run),
        run.kind,
        f"Are there enough records to detect use of {percent(result.fraction)} of the query set?",
        f"{_about(result)} {ABOUT}" if result.conclusions else _about(result),
        (
            Answer(
                "",
                result.finding,
                "minimum detectable fraction",
                _fraction(given.least_noticed),
                "",
                (
                    ("Records given", f"{given.query:,} query, {given.holdout:,} holdout"),
                    ("Fraction asked about", percent(result.fraction)),
                    *((("Records that suffice", _needed(result)),) if enough else ()),
                ),
            ),
        ),
        (
            *_concluded(result, "terminal"),
            *_concluded(result, "page"),
            sizes_table(result, "terminal"),
            sizes_table(result, "page"),
            _detection(LARGER, result.holdouts, "terminal"),
            _detection(LARGER, result.holdouts, "page"),
            _by_models(result),
            _separation(result),
        ),
        pictures,
        (
            "*: the sizes given. Min. detectable: the smallest used fraction that would be detected with 95% "
            "probability.",
            *(
                (f"Records that suffice to detect {percent(result.fraction)} use: {_needed(result)}.",)
                if enough
                else ()
            ),
            *(HOW_TO_READ if result.conclusions else ()),
        ),
        repeat(result.provenance),
        terms(
            "query set", "calibration set", "holdout", "shadow model", "minimum detectable fraction", "known members"
        ),
        (
            f"Planned for the holdout test. {HoldoutTest.errors}",
            *((f"And for the members test. {MembersTest.errors}",) if result.conclusions else ()),
        ),
    )


def given_of(result: PowerRecord) -> Size:
    """What was found for the sizes given."""
    return next(size for size in result.sizes if size.given)


def sizes_table(result: PowerRecord, on: Where) -> Cells:
    """The probability of detection by size and used fraction, and the minimum detectable fraction."""
    return _detection("Probability of detecting use of part of the query set", result.sizes, on)


def _concluded(result: PowerRecord, on: Where) -> tuple[Cells, ...]:
    """What could be concluded, at the sizes given and at others; nothing in results that did not ask."""
    size = given_of(result)
    here = [each for each in result.conclusions if (each.query, each.holdout) == (size.query, size.holdout)]
    if not here:
        return ()
    return concluded_table(here, on), scaled_table(result.conclusions, (size.query, size.holdout), on)


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
            *(f"{100 * each.chance_noticed:.0f}%" for each in size.chances),
            _fraction(size.least_noticed),
        )
        for size in sizes
    )
    return Cells(title, columns, tuple(rows), columns, on=on)


def _by_models(result: PowerRecord) -> Cells:
    rows = ((str(each.models), _fraction(each.least_noticed)) for each in result.shadow_models)
    columns = ("shadow models", "min. detectable")
    return Cells("By number of shadow models, at the sizes given", columns, tuple(rows), columns, on="both")


def _separation(result: PowerRecord) -> Cells:
    measured, columns = [result.separation], ("holdout test",)
    if result.memory is not None:
        measured += [result.memory.helped, result.memory.alone]
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


def _needed(result: PowerRecord) -> str:
    needed = result.records_needed
    return "no number is enough" if needed is None else f"{needed:,} query, {needed:,} holdout"


def _about(result: PowerRecord) -> str:
    """What was measured."""
    count, data = result.separation.models, result.provenance.data
    detects = "of the query set the holdout test would detect, for a target of such a design"
    if "shadows" in data:
        return (
            f"{count} shadow models of {visible(str(data['shadows']['name']))} were each trained on random records of "
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

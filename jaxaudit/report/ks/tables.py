"""The tables of a `ks` run, how its numbers are shown, and what it compared, in words."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from jaxaudit.audits.ks.result import KSResult, Rates, TargetResult, TestResult, TofuDetails, Usage
from jaxaudit.audits.ks.tests_of_use.test import TONES
from jaxaudit.audits.ks.tests_of_use.test import percent_text as fraction_text
from jaxaudit.errors import visible
from jaxaudit.metrics.over_models import clopper_pearson
from jaxaudit.metrics.usage import WORDING, Question, at_most, fraction_name
from jaxaudit.report.numbers import (
    ComparedSets,
    NamedSet,
    count_text,
    four_decimals,
    level_text,
    number_text,
    precise,
    span,
)
from jaxaudit.report.page import Column, PageTable, table_of
from jaxaudit.report.record import Run

SETS = {"query": "query", "holdout": "holdout", "members": "known member", "reference": "reference"}
UNKNOWN = "unknown"
P_NAMES = {"used": ("p (not used)", "p (all used)"), "left": ("p (none left)", "p (all left)")}
"""The p-values of no use and of full use, by what is asked."""
RATES = "Error rates on these data: each shadow model as a target, judged by the others"


def verdicts(result: KSResult) -> PageTable:
    """The verdict on each target, and the numbers to read with it; those of further tests are in `grid`."""
    targets = result.targets
    truth_title = ["truly\nused"] if any(target.truth for target in targets) else []
    heading = "/".join(WORDING[question].heading for question in questions_of(targets))
    of_use = [f"{heading}\n({level_text(result.level)} interval)", _p_columns(targets)[0]]
    numbers = of_use if any(target.usage for target in targets) else []

    def cells(target: TargetResult, test: str) -> tuple[str, ...]:
        usage, verdict, shown = usage_of(target, test), test_of(target, test).finding.verdict, ("", "")
        if usage is not None:
            # `forgotten` is not to be read without its limit.
            verdict = f"{verdict}\n(at most {at_most(usage.upper)})" if verdict == "forgotten" else verdict
            adjusted = usage.p_never if usage.p_never_adjusted is None else usage.p_never_adjusted
            shown = fraction_interval(usage, " to ", "%"), p_column(adjusted)
        truth = _truth(target) if test == target.method else ""
        return *([truth] if truth_title else ()), verdict, *(shown if numbers else ())

    columns, rows = ("model", *truth_title, "verdict", *numbers), _by_test(targets, cells, further=False)
    return PageTable("", columns, rows, (*truth_title, *numbers), tones=TONES, on="terminal")


def grid(result: KSResult) -> PageTable:
    """All numbers of each target and test, for a terminal with `--details`."""
    targets, level = result.targets, level_text(result.level)
    tests = any(target.usage for target in targets)
    of_use = [*_p_columns(targets), f"{'/'.join(questions_of(targets))}\n({level})", "at\nmost", "min.\ndetect."]
    ratio = ["rho"] if tests else ["rho", f"{level}\ninterval", "paper's rule"]
    columns = ("model", *(of_use if tests else ()), *(ratio if result.noise_floor is not None else ()))

    def cells(target: TargetResult, test: str) -> tuple[str, ...]:
        usage, numbers, rho, ratios = usage_of(target, test), ("",) * 5, target.rho, ()
        if usage is not None:
            p_values = p_column(usage.p_never), p_column(usage.p_fully)
            numbers = *p_values, fraction_interval(usage), upper(usage), percent_cell(usage.detectable)
        if rho is not None:
            ratios = number_text(rho.median, 2), span(rho).replace(" to ", "-") or "none", str(target.paper_rule)
        ratios = ratios[: len(columns) - 1 - len(of_use) * tests]
        return *(numbers if tests else ()), *(ratios if test == target.method else [""] * len(ratios))

    numbers = tuple(column for column in columns if column not in ("model", "paper's rule"))
    rows = _by_test(targets, cells, further=tests)
    return PageTable("", columns, rows, numbers, on="details" if tests else "terminal")


def _by_test(
    targets: Iterable[TargetResult], cells: Callable[[TargetResult, str], tuple[str, ...]], *, further: bool
) -> tuple[tuple[str, ...], ...]:
    """A row for each target by its deciding test; with `further`, below it one for each other, but for rho alone."""
    rows = []
    for target in targets:
        rows.append((visible(target.name), *cells(target, target.method)))
        if further and any(test.name != "rho" for test in further_tests(target)):
            rows += [(f"  {by(test)}", *cells(target, test.name)) for test in further_tests(target)]
    return tuple(rows)


def further_tests(target: TargetResult) -> tuple[TestResult, ...]:
    """The tests beside the deciding one; forget quality and privleak judge nothing, and stand below the tables."""
    return tuple(test for test in target.tests[1:] if not isinstance(test.details, TofuDetails))


def questions_of(targets: Iterable[TargetResult]) -> tuple[Question, ...]:
    """What fractions are of: what was `used`, what is `left`, or both in this order; `used` where there is none."""
    questions = {usage.question for target in targets for usage in target.usage}
    return tuple(question for question in WORDING if question in questions) or ("used",)


def fractions(targets: Iterable[TargetResult]) -> str:
    """What tables and charts call the fractions of these targets."""
    return fraction_name(questions_of(targets))


def _p_columns(targets: Iterable[TargetResult]) -> list[str]:
    return ["\n".join(name.rsplit(" ", 1)) for name in P_NAMES[questions_of(targets)[0]]]


def rates_cells(rates: Sequence[Rates]) -> PageTable:
    """How often the tests err here, with exact 95% intervals (Clopper & Pearson 1934)."""

    def counted(count: int, targets: int) -> str:
        interval_of_share = clopper_pearson(count, targets, 0.95)
        return f"{count / targets:.0%} ({100 * interval_of_share.low:.0f}-{100 * interval_of_share.high:.0f})"

    columns = {
        "test": ("test", str),
        "truly\nused": lambda rate: "none" if rate.used == 0 else f"{rate.used:.0%}",
        "query\nrecords": ("records", count_text),
        "targets": ("targets", str),
        "not\nforgotten": lambda rate: counted(rate.not_forgotten, rate.targets),
        "forgotten": lambda rate: counted(rate.forgotten, rate.targets),
        "inconclusive": lambda rate: counted(rate.inconclusive, rate.targets),
    }
    return table_of(RATES, rates, columns, ("test", "truly\nused"), on="both")


def usage_cells(targets: Sequence[TargetResult]) -> PageTable:
    """One row for each target and test of use: verdict, used fraction, its limits, p-values and reasons."""
    rows = [(target, usage, test_of(target, usage.method)) for target in targets for usage in target.usage]
    fraction, (none, full) = fractions(targets), P_NAMES[questions_of(targets)[0]]
    columns: dict[str, Column] = {
        "target": ("0.name", visible),
        "test": ("2.title", visible),
        "verdict": ("2.finding.verdict", str),
        fraction: ("1", fraction_interval),
        "upper limit": ("1", upper),
        "minimum detectable fraction": ("1.detectable", precise),
        none: ("1.p_never", precise),
    }
    if any(usage.p_never_adjusted is not None for _, usage, _ in rows):
        columns[f"adjusted for {len(targets)} targets"] = lambda row: (
            "-" if row[1].p_never_adjusted is None else precise(row[1].p_never_adjusted)
        )
    columns[full] = ("1.p_fully", precise)
    columns["reasons"] = lambda row: "; ".join(map(visible, row[1].reasons)) or "-"
    title = "Memory of the query set" if questions_of(targets) == ("left",) else "Use of the query set"
    return table_of(title, rows, columns, ("target", "test", "verdict", fraction, "reasons"))


def rho_cells(targets: Sequence[TargetResult]) -> PageTable:
    columns = {
        "target": ("name", visible),
        "verdict by rho": ("rho_verdict", str),
        "rho": ("rho.median", four_decimals),
        "interval": lambda target: span(target.rho, 4) or "none",
        "the paper's rule": ("paper_rule", str),
    }
    with_rho = [target for target in targets if target.rho is not None]
    return table_of("rho", with_rho, columns, set(columns) - {"rho"})


def by(test: TestResult) -> str:
    return f"by the {visible(test.title)}" if test.title.endswith("test") else f"by {visible(test.title)}"


def test_of(target: TargetResult, name: str) -> TestResult:
    return next(test for test in target.tests if test.name == name)


def usage_of(target: TargetResult, name: str) -> Usage | None:
    """The numbers of a test; None if it is no test of use."""
    return next((usage for usage in target.usage if usage.method == name), None)


def fraction_interval(usage: Usage, to: str = "-", percent: str = "") -> str:
    if not usage.has_fraction:
        return UNKNOWN
    low, high = (f"{100 * end:.0f}" for end in (usage.fraction_low, usage.fraction_high))
    return f"{fraction_text(usage.fraction, 0)} ({low}{to}{high}{percent})"


def upper(usage: Usage) -> str:
    """The upper limit of the fraction, where that is known."""
    return at_most(usage.upper) if usage.has_fraction else "-"


def p_column(value: float | None) -> str:
    """A p-value in a column.

    >>> p_column(0.00049), p_column(0.025), p_column(0.3), p_column(1.0), p_column(None)
    ('<.001', '.025', '.30', '1', 'none')
    """
    if value is None:
        return "none"
    if value < 0.001:
        return "<.001"
    return f"{value:.3f}"[1:] if value < 0.0995 else f"{value:.2f}"[1:] if value < 0.995 else "1"


def percent_cell(value: float | None) -> str:
    return "none" if value is None else fraction_text(value)


def _truth(target: TargetResult) -> str:
    if target.truth is None:
        return UNKNOWN
    used = target.truth.used_fraction
    return "none" if used == 0 else f"{used:.0%}" if used >= 0.01 else "under 1%"


def kind_of(target: TargetResult, sets: ComparedSets) -> str:
    """What the name of a target is of: a model of a table, or the target itself, by its file, where it has no name."""
    return "model" if sets.scores is not None and target.name != sets.query.name else "target"


def about(sets: ComparedSets) -> str:
    """The sets, and where the shadow models come from."""

    def set_text(one_set: NamedSet | None) -> str:
        return UNKNOWN if one_set is None else f"{visible(one_set.name)} ({one_set.records:,} records)"

    def sets_present(roles: Mapping[str, str]) -> list[tuple[str, int]]:
        sets_by_words: list[tuple[str, NamedSet | None]] = [
            (words, getattr(sets, role)) for role, words in roles.items()
        ]
        return [(words, one_set.records) for words, one_set in sets_by_words if one_set is not None]

    if sets.scores is not None:
        counts = [f"{records:,} {words}" for words, records in sets_present(SETS)]
        models = [f"{count} {visible(role)}" for role, count in sets.scores.models.items()]
        return (
            f"The table {visible(sets.query.name)} has scores of {', '.join(counts)} records, by these models: "
            f"{', '.join(models)}. No model was trained."
        )
    compared = "The target's outputs are compared with theirs."
    if sets.shadows is not None:
        roles = {"query": "query set", "holdout": "holdout", "calibration": "calibration set"}
        *first, last = [f"the {words} ({records:,})" for words, records in sets_present(roles)]
        return (
            f"The {sets.shadows.models:,} shadow models of the bank {visible(sets.shadows.name)} were trained on "
            f"records of {', '.join(first)}{' and ' if first else ''}{last}. {compared}"
        )
    outputs_text, models = f"The query set is {set_text(sets.query)}.", "No shadow model was trained."
    if sets.holdout is not None:
        beside = ""
        if sets.members is not None:
            beside = f", and on {set_text(sets.members)}, which it is known to have used"
        elif sets.calibration is None:
            beside = ", and with those of the model before the deletion"
        outputs_text += (
            f" The target's outputs on it are compared with those on the holdout, {set_text(sets.holdout)}, which, as "
            f"is stated, nobody trained on{beside}."
        )
        compared = "Its outputs are compared with theirs, too."
    if sets.calibration is not None:
        models = (
            f"Shadow models were trained on the query set, and on {set_text(sets.calibration)}, which shares no record "
            f"with it. {compared}"
        )
    return f"{outputs_text} {models}"


PRIVLEAK = "privleak"
PRIVLEAK_MEANS = "privleak is 0% of a model like the retrained one, and below 0% of one that shows the query set more"


def field_numbers(targets: Sequence[TargetResult]) -> list[str]:
    """Forget quality and privleak, and what they are between retrained models."""
    lines = []
    tofu_by_target = [(target.name, target.tofu) for target in targets if target.tofu is not None]
    for target_name, tofu in tofu_by_target:
        numbers = {
            "forget quality": None if tofu.forget_quality is None else precise(tofu.forget_quality),
            PRIVLEAK: None if tofu.privleak is None else f"{tofu.privleak:.1f}%",
        }
        number_texts = [f"{name} {value}" for name, value in numbers.items() if value is not None]
        if number_texts:
            means = "" if numbers[PRIVLEAK] is None else f"; {PRIVLEAK_MEANS}"
            lines.append(
                f"{visible(target_name)}: {', '.join(number_texts)} (open-unlearning's numbers, which decide "
                f"nothing{means})."
            )
    worth = next((tofu.retrained for _, tofu in tofu_by_target if tofu.retrained is not None), None)
    if worth is not None and worth.share_below is not None:
        lines.append(
            f"Forget quality between {worth.models} retrained models: below {worth.nominal:g} for "
            f"{level_text(worth.share_below)} of pairs; a p-value at its level would be so for "
            f"{level_text(worth.nominal)}."
        )
    return lines


# What may be written of a verdict, and what may not: for whoever puts the answer into a letter or a decision.

NOT_SAID = {
    "forgotten": "That none of the query set was used: {less} is not ruled out. That another model of its maker has "
    "forgotten the query set, or that this one will have when it is trained further.",
    "not forgotten": "That all of the query set was used, or by whom and why. Of a holdout that was not dealt at "
    "random: that use is the only cause, since sets of two sources look like it.",
    "inconclusive": "That the query set was used, or that it was not: the outputs do not tell.",
}
"""By the verdict; `less` is the use that a test of this size may miss."""


def statements(run: Run[KSResult]) -> PageTable:
    """A row a target: a sentence with its numbers, and what these numbers do not say."""
    provenance = run.provenance
    when = f"On {visible(provenance.started[:10])}, jaxaudit {visible(provenance.jaxaudit)} compared outputs"
    rows = [
        (visible(target.name), f"{when} of the target: {visible(target.finding.sentence)}", _not_said(target))
        for target in run.result.targets
    ]
    columns = ("model", "you may write", "you may not write")
    return PageTable("What you may write of it", columns, tuple(rows))


def _not_said(target: TargetResult) -> str:
    usage = target.usage[0] if target.usage else None
    less = "less use" if usage is None else f"use of up to {at_most(usage.upper)}"
    return NOT_SAID[target.verdict].format(less=less)

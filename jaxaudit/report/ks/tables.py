"""The tables of a `ks` run, and how its numbers are shown."""

from collections.abc import Iterable, Sequence

from jaxaudit.audits.finding import Tone
from jaxaudit.audits.ks.result import KSResult, Rates, TargetResult, TestResult, UsageResult
from jaxaudit.audits.ks.tests.test import TONES
from jaxaudit.audits.ks.tests.test import percent as fraction_text
from jaxaudit.errors import visible
from jaxaudit.metrics.usage import WORDING, Question, at_most, fraction_name
from jaxaudit.report.numbers import number, percent, precise, span
from jaxaudit.report.page import Cells

UNKNOWN = "unknown"
P_NAMES = {"used": ("p (not used)", "p (all used)"), "left": ("p (none left)", "p (all left)")}
"""The p-values of no use and of full use, by what is asked."""
RATES = "Error rates on these data: each shadow model as a target, judged by the others"


def verdicts(result: KSResult) -> Cells:
    """The verdict on each target, and the numbers to read with it; further tests stand below, by their names."""
    targets = result.targets
    known = any(target.truth for target in targets)
    questions = "/".join(asked(targets))
    of_use = [f"share {questions}\n({percent(result.level)} interval)", p_columns(targets)[0]]
    numbers = of_use if any(target.usage for target in targets) else []
    columns = ["model", *(["truly\nused"] if known else []), "verdict", *numbers]
    rows: list[tuple[str, ...]] = []
    for target in targets:
        truth = [_truth(target)] if known else []
        shown = _brief(target, target.method) if numbers else ()
        rows.append((visible(target.name), *truth, _verdict(target, target.method), *shown))
        for test in target.tests[1:] if numbers and _several(target) else ():
            shown = _brief(target, test.name)
            rows.append((f"  {by(test)}", *[""] * len(truth), _verdict(target, test.name), *shown))
    limited = {row[1 + known] for row in rows if row[1 + known].startswith("forgotten")}
    tones: dict[str, Tone] = {**TONES, **dict.fromkeys(limited, TONES["forgotten"])}
    return Cells("", tuple(columns), tuple(rows), (*columns[1 : 1 + known], *numbers), tones=tones, on="terminal")


def _verdict(target: TargetResult, test: str) -> str:
    """The verdict by a test; `forgotten` with its upper limit, without which it is not to be read."""
    verdict = test_of(target, test).finding.verdict
    limit = next((usage.upper for usage in target.usage if usage.method == test), None)
    return verdict if verdict != "forgotten" or limit is None else f"{verdict}\n(at most {at_most(limit)})"


def _brief(target: TargetResult, test: str) -> tuple[str, str]:
    """Of one test: the fraction with its interval, and the p-value that the verdict follows."""
    for usage in target.usage:
        if usage.method == test:
            adjusted = usage.p_never if usage.p_never_adjusted is None else usage.p_never_adjusted
            return interval(usage).replace("-", " to ").replace(")", "%)"), p_column(adjusted)
    return "", ""


def grid(result: KSResult) -> Cells:
    """All numbers of each target and test, for a terminal with `--details`."""
    targets = result.targets
    tests = any(target.usage or target.ema for target in targets)
    of_fraction = [f"{'/'.join(asked(targets))}\n({percent(result.level)})", "at\nmost", "min.\ndetect."]
    of_use = [*p_columns(targets), *of_fraction] if tests else []
    ratio = ["rho"] if tests else ["rho", f"{percent(result.level)}\ninterval", "paper's rule"]
    ratio = ratio if result.noise_floor is not None else []
    columns = ["model", *of_use, *ratio]
    rows: list[tuple[str, ...]] = []
    for target in targets:
        numbers = _test_numbers(target, target.method) if tests else ()
        ratios = _ratios(target)[: len(ratio)]
        rows.append((visible(target.name), *numbers, *ratios))
        for test in target.tests[1:] if tests and _several(target) else ():
            rows.append((f"  {by(test)}", *_test_numbers(target, test.name), *[""] * len(ratios)))
    numbers = tuple(column for column in columns if column not in ("model", "paper's rule"))
    return Cells("", tuple(columns), tuple(rows), numbers, on="details" if tests else "terminal")


def asked(targets: Iterable[TargetResult]) -> tuple[Question, ...]:
    """What fractions are of: what was `used`, what is `left`, or both in this order; `used` where there is none."""
    found = {usage.question for target in targets for usage in target.usage}
    return tuple(question for question in WORDING if question in found) or ("used",)


def fractions(targets: Iterable[TargetResult]) -> str:
    """What tables and charts call the fractions of these targets."""
    return fraction_name(asked(targets))


def p_columns(targets: Iterable[TargetResult]) -> list[str]:
    """The titles of the columns of both p-values, in two lines each."""
    return ["\n".join(name.rsplit(" ", 1)) for name in P_NAMES[asked(targets)[0]]]


def _ratios(target: TargetResult) -> tuple[str, ...]:
    """rho, its interval, and what the paper's rule says of it; nothing without rho."""
    rho = target.rho
    if rho is None:
        return ()
    return number(rho.median, 2), span(rho).replace(" to ", "-") or "none", str(target.paper_rule)


def _several(target: TargetResult) -> bool:
    """Whether other tests stand beside the deciding one; rho alone has a column."""
    return any(test.name != "rho" for test in target.tests[1:])


def _test_numbers(target: TargetResult, test: str) -> tuple[str, str, str, str, str]:
    """Of one test: both p-values, the fraction, its upper limit, the minimum detectable one."""
    for usage in target.usage:
        if usage.method == test:
            p_values = p_column(usage.p_never), p_column(usage.p_fully)
            return *p_values, interval(usage), upper(usage), percent_cell(usage.detectable)
    if test == "ema" and target.ema is not None:
        return "", p_column(target.ema.p_value), f"{percent_cell(target.ema.member_share)} flagged", "", ""
    return "", "", "", "", ""


def rates_cells(rates: Sequence[Rates]) -> Cells:
    """How often the tests err here: shadow models as targets of known truth."""
    rows = (
        (
            each.test,
            "none" if each.used == 0 else f"{each.used:.0%}",
            f"{each.records:,}",
            str(each.targets),
            *(_counted(count, each.targets) for count in (each.not_forgotten, each.forgotten, each.inconclusive)),
        )
        for each in rates
    )
    numbers = ("query\nrecords", "targets", "not\nforgotten", "forgotten", "inconclusive")
    return Cells(RATES, ("test", "truly\nused", *numbers), tuple(rows), numbers, on="both")


def _counted(count: int, targets: int) -> str:
    """A share with its exact 95% interval (Clopper & Pearson 1934)."""
    from jaxaudit.metrics.over_models import clopper_pearson

    found = clopper_pearson(count, targets, 0.95)
    return f"{count / targets:.0%} ({100 * found.low:.0f}-{100 * found.high:.0f})"


def usage_cells(targets: Sequence[TargetResult]) -> Cells:
    """All targets' tests of use in full."""
    several = any(usage.p_never_adjusted is not None for target in targets for usage in target.usage)
    rows = [
        (
            visible(target.name),
            visible(test_of(target, usage.method).title),
            test_of(target, usage.method).finding.verdict,
            interval(usage),
            upper(usage),
            precise(usage.detectable),
            precise(usage.p_never),
            *(["-" if usage.p_never_adjusted is None else precise(usage.p_never_adjusted)] if several else []),
            precise(usage.p_fully),
            "; ".join(map(visible, usage.reasons)) or "-",
        )
        for target in targets
        for usage in target.usage
    ]
    rows += [
        (
            *(visible(each.name), "EMA", test_of(each, "ema").finding.verdict),
            *(f"{percent_cell(each.ema.member_share)} flagged", "-", "-", "-", *(["-"] if several else [])),
            *(precise(each.ema.p_value), "-"),
        )
        for each in targets
        if each.ema is not None
    ]
    of_several = [f"adjusted for {len(targets)} targets"] if several else []
    left = asked(targets) == ("left",)
    none, full = P_NAMES[asked(targets)[0]]
    numbers = ("upper limit", "minimum detectable fraction", none, *of_several, full)
    columns = ("target", "test", "verdict", fractions(targets), *numbers, "reasons")
    return Cells("Memory of the query set" if left else "Use of the query set", columns, tuple(rows), numbers)


def rho_cells(targets: Sequence[TargetResult]) -> Cells:
    rows = (
        (
            visible(target.name),
            str(target.rho_verdict),
            number(target.rho.median, 4),
            span(target.rho, 4) or "none",
            str(target.paper_rule),
        )
        for target in targets
        if target.rho is not None
    )
    return Cells("rho", ("target", "verdict by rho", "rho", "interval", "the paper's rule"), tuple(rows), ("rho",))


def replicates(targets: Sequence[TargetResult]) -> Cells:
    numbers = ("replicate", "to the target", "to the calibration model", "rho")
    rows = (
        (visible(target.name), str(place), precise(above), precise(below), precise(value))
        for target in targets
        if target.rho is not None and target.ks is not None
        for place, (above, below, value) in enumerate(
            zip(target.ks.target, target.ks.calibration, target.rho.values, strict=True), 1
        )
    )
    title = "Replicates: rho is the first distance divided by the second"
    return Cells(title, ("target", *numbers), tuple(rows), numbers, folded=True)


def by(test: TestResult) -> str:
    return f"by the {visible(test.title)}" if test.title.endswith("test") else f"by {visible(test.title)}"


def test_of(target: TargetResult, name: str) -> TestResult:
    return next(test for test in target.tests if test.name == name)


def interval(usage: UsageResult) -> str:
    if usage.fraction is None or usage.fraction_low is None or usage.fraction_high is None:
        return UNKNOWN
    return f"{100 * usage.fraction:.0f}% ({100 * usage.fraction_low:.0f}-{100 * usage.fraction_high:.0f})"


def p_unused(usage: UsageResult, targets: int) -> str:
    """The p-value, and what it is where it is adjusted for several targets."""
    alone = precise(usage.p_never)
    if usage.p_never_adjusted is None:
        return alone
    return f"{alone}, adjusted for {targets} targets: {precise(usage.p_never_adjusted)}"


def upper(usage: UsageResult) -> str:
    """The upper limit of the fraction, where that is known."""
    return "-" if usage.fraction is None else at_most(usage.upper)


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

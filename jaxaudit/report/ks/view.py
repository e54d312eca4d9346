"""The content of a `ks` run for the terminal and the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from jaxaudit.audits.finding import Tone
from jaxaudit.audits.ks.tests.test import change_text
from jaxaudit.audits.ks.tests.test import percent as fraction_text
from jaxaudit.errors import visible
from jaxaudit.metrics.before_after import Change as Pair
from jaxaudit.metrics.usage import at_most
from jaxaudit.report.glossary import terms
from jaxaudit.report.ks.record import Change, KSRecord, OfRho, Rates, Resembles, Target, Test, Usage, rho_of, with_rho
from jaxaudit.report.numbers import number, percent, precise, share, span
from jaxaudit.report.page import Answer, Cells, Part, Picture
from jaxaudit.report.record import as_float
from jaxaudit.report.repeat import repeat
from jaxaudit.report.run import Run, named

TONES: dict[str, Tone] = {"forgotten": "good", "not forgotten": "bad", "inconclusive": "open"}
UNKNOWN = "unknown"
RATES = "Error rates on these data: each shadow model as a target, judged by the others"
BEFORE_AFTER = "Used fraction before minus after"
TERMS = ("query set", "calibration set", "target", "interval")
OF_RHO = (
    *("confidence", "query model", "calibration model", "empirical CDF", "Kolmogorov-Smirnov distance", "rho"),
    *("replicate", "noise floor", "positive control", "the paper's rule", "log-odds"),
)
OF_USE = ("used fraction", "upper limit", "detectable fraction", "EMA")


def ks_part(run: Run[KSRecord], top: int = 0) -> Part:
    """The content of a run of `ks`."""
    result = run.result
    targets, data = result.targets, result.provenance.data
    used, made = any(target.usage or target.ema for target in targets), with_rho(targets)

    def pictures() -> tuple[Picture, ...]:
        from jaxaudit.report.ks.pictures import ks_pictures

        return ks_pictures(run)

    return Part(
        named(run),
        run.kind,
        "Has the target forgotten the query set?",
        _about(data),
        tuple(_answer(target, result.level, len(targets)) for target in targets),
        (
            _grid(result),
            *([_rates_cells(result.rates)] if result.rates else []),
            *([_usage_cells(targets)] if used else []),
            _rho_cells(made),
            _replicates(made),
        ),
        pictures,
        _legend(result),
        repeat(result.provenance),
        terms(
            *TERMS,
            *(OF_RHO if made else ()),
            *(OF_USE if used else ()),
            *(("reference",) if "reference" in data else ()),
            *(("shadow bank",) if "shadows" in data else ()),
        ),
    )


def _about(data: Mapping[str, Any]) -> str:
    """The sets, and where the shadow models come from."""

    def said(role: str) -> str:
        return f"{visible(str(data[role]['name']))} ({data[role]['records']:,} records)"

    compared = "The target's outputs are compared with theirs."
    if "shadows" in data:
        bank = data["shadows"]
        roles = {"query": "query set", "holdout": "holdout", "calibration": "calibration set"}
        *first, last = [f"the {roles[role]} ({data[role]['records']:,})" for role in roles if role in data]
        return (
            f"The {bank['models']:,} shadow models of {visible(str(bank['name']))} were trained on records of "
            f"{', '.join(first)}{' and ' if first else ''}{last}. {compared}"
        )
    further = ""
    if "reference" in data:
        further = f" Those of the reference test were also trained on a share of the reference, {said('reference')}."
    shared = "which shares no record with it."
    return (
        f"The query set is {said('query')}. Shadow models were trained on it, and on {said('calibration')}, "
        f"{shared}{further} {compared}"
    )


def _answer(target: Target, level: float, targets: int) -> Answer:
    facts = [] if target.paper_rule is None else [("The paper's rule", str(target.paper_rule))]
    for usage in target.usage:
        title = visible(_test(target, usage.method).title)
        facts += [(f"p(unused), {title}", _p_unused(usage, targets)), (f"p(all used), {title}", precise(usage.p_fully))]
        facts.append((f"Used fraction, upper limit, {title}", _upper(usage)))
        facts.append((f"Minimum detectable fraction, {title}", _percent(usage.detectable)))
    if target.change is not None:
        facts.append((BEFORE_AFTER, _change(target.change)))
    for test in target.tests[1:]:
        facts.append((_by(test).capitalize(), test.finding.verdict))
    if target.resembles is not None:
        facts.append(("Design that it resembles most", _resembles(target.resembles)))
    if target.truth is not None:
        truth = target.truth
        facts.append(("Truth", f"{truth.expected}: it used {share(truth.used_fraction)} of the query set"))
    name, shown, between = _measured(target)
    alone = ""
    if target.verdict == "forgotten" and target.usage and target.usage[0].method == target.method:
        alone = f"forgotten (at most {at_most(target.usage[0].upper)})"
    between = f"{between} ({percent(level)} interval)" if between else ""
    return Answer(visible(target.name), target.finding, name, shown, between, tuple(facts), alone)


def _resembles(found: Resembles) -> str:
    return (
        f"{visible(found.design)} (a shadow model's own design is recognised {percent(found.recognised)} of the time)"
    )


def _by(test: Test) -> str:
    return f"by the {visible(test.title)}" if test.title.endswith("test") else f"by {visible(test.title)}"


def _test(target: Target, name: str) -> Test:
    return next(test for test in target.tests if test.name == name)


def _measured(target: Target) -> tuple[str, str, str]:
    """The number that the deciding test rests on: what it is called, how it is shown, its interval."""
    for usage in target.usage:
        if usage.method == target.method:
            between = f"{_percent(usage.fraction_low)} to {_percent(usage.fraction_high)}"
            known = usage.fraction is not None
            return "estimated used fraction", _percent(usage.fraction) if known else UNKNOWN, between if known else ""
    if target.method == "ema" and target.ema is not None:
        return "query records that look like training records", _percent(target.ema.member_share), ""
    if target.method == "rho" and target.rho is not None:
        return "rho", number(target.rho.median, 2), span(target.rho)
    return "test", visible(_test(target, target.method).title), ""


def _grid(result: KSRecord) -> Cells:
    """The verdict and what it rests on; further tests stand below, by their names."""
    targets = result.targets
    known = any(target.truth for target in targets)
    tests = any(target.usage or target.ema for target in targets)
    name = "target trained on" if all(target.truth for target in targets) else "target"
    interval = f"({percent(result.level)})"
    of_use = ["p\nunused", "p all\nused", f"used\n{interval}", "at\nmost", "min.\ndetect."] if tests else []
    ratio = ["rho"] if tests else ["rho", f"{percent(result.level)}\ninterval", "paper's rule"]
    ratio = ratio if result.noise_floor is not None else []
    columns = [name, *(["truly\nused"] if known else []), "verdict", *of_use, *ratio]
    rows: list[tuple[str, ...]] = []
    for target in targets:
        truth, rho = [_truth(target)] if known else [], rho_of(target)
        numbers = _test_numbers(target, target.method) if tests else ()
        ratios = () if rho is None else _ratios(rho)[: len(ratio)]
        rows.append((visible(target.name), *truth, target.verdict, *numbers, *ratios))
        blank, empty = [""] * len(truth), [""] * len(ratios)
        for test in target.tests[1:] if tests and _several(target) else ():
            rows.append((f"  {_by(test)}", *blank, test.finding.verdict, *_test_numbers(target, test.name), *empty))
    numbers = tuple(column for column in columns if column not in (name, "verdict", "paper's rule"))
    return Cells("", tuple(columns), tuple(rows), numbers, tones=TONES, on="terminal")


def _ratios(rho: OfRho) -> tuple[str, str, str]:
    """rho, its interval, and what the paper's rule says of it."""
    return number(rho.rho.median, 2), span(rho.rho).replace(" to ", "-") or "none", rho.paper_rule


def _several(target: Target) -> bool:
    """Whether other tests stand beside the deciding one; rho alone has a column."""
    return any(test.name != "rho" for test in target.tests[1:])


def _test_numbers(target: Target, test: str) -> tuple[str, str, str, str, str]:
    """Of one test: both p-values, the used fraction, its upper limit, the minimum detectable one."""
    for usage in target.usage:
        if usage.method == test:
            p_values = p_column(usage.p_never), p_column(usage.p_fully)
            return *p_values, _interval(usage), _upper(usage), _percent(usage.detectable)
    if test == "ema" and target.ema is not None:
        return "", p_column(target.ema.p_value), f"{_percent(target.ema.member_share)} flagged", "", ""
    return "", "", "", "", ""


def _interval(usage: Usage) -> str:
    if usage.fraction is None or usage.fraction_low is None or usage.fraction_high is None:
        return UNKNOWN
    return f"{100 * usage.fraction:.0f}% ({100 * usage.fraction_low:.0f}-{100 * usage.fraction_high:.0f})"


def _p_unused(usage: Usage, targets: int) -> str:
    """The p-value, and what it is where it is adjusted for several targets."""
    alone = precise(usage.p_never)
    if usage.p_never_adjusted is None:
        return alone
    return f"{alone}, adjusted for {targets} targets: {precise(usage.p_never_adjusted)}"


def _change(change: Change) -> str:
    found = Pair(as_float(change.fraction), change.low, change.high, change.p_value, change.p_never_before)
    return change_text(found).partition(": ")[2]


def _upper(usage: Usage) -> str:
    """The upper limit of the used fraction, where that is known."""
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


def _percent(value: float | None) -> str:
    return "none" if value is None else fraction_text(value)


def _truth(target: Target) -> str:
    if target.truth is None:
        return UNKNOWN
    used = target.truth.used_fraction
    return "none" if used == 0 else f"{used:.0%}" if used >= 0.01 else "under 1%"


def _legend(result: KSRecord) -> tuple[str, ...]:
    lines, floor = [], result.noise_floor
    if any(target.usage for target in result.targets):
        lines.append(
            "p unused, p all used: p-values of no use and of full use of the query set. used: estimated used fraction "
            "with its interval. at most: its one-sided 95% upper limit. min. detect.: smallest used fraction detected "
            "with 95% probability."
            + (" rho: ratio of Liu & Tsaftaris (2020); their rule: 1 or more is forgotten." if floor else "")
        )
    lines += _adjusted(result.targets)
    lines += [
        f"{BEFORE_AFTER}{f', {visible(target.name)}' if len(result.targets) > 1 else ''}: {_change(target.change)}."
        for target in result.targets
        if target.change is not None
    ]
    if any(usage.fraction is None for target in result.targets for usage in target.usage):
        lines.append(
            f"{UNKNOWN}: the interval of the used fraction is 0 to 100%, or a p-value contradicts its estimate."
        )
    like = [(target.name, target.resembles) for target in result.targets if target.resembles is not None]
    if like:
        each = ", ".join(f"{visible(name)}: {visible(found.design)}" for name, found in like)
        share = percent(like[0][1].recognised)
        lines.append(f"Most like the design (recognised for {share} of shadow models): {each}.")
    if result.rates:
        lines.append(
            "Error rates: share of shadow models that were called so, with its exact 95% interval. By the holdout test "
            "a model is judged with fewer records than a target, so less is detected."
        )
    if floor is not None and floor.median is not None:
        lines.append(
            f"Noise floor: query models of different seeds are {number(floor.median)} apart (at most "
            f"{number(floor.max)})."
        )
    return tuple(lines)


def _adjusted(targets: Sequence[Target]) -> list[str]:
    """Of each test of use, the p-values that are adjusted for several targets."""
    found: dict[str, list[str]] = {}
    for target in targets:
        for usage in target.usage:
            if usage.p_never_adjusted is not None:
                found.setdefault(_test(target, usage.method).title, []).append(p_column(usage.p_never_adjusted))
    return [
        f"p unused, adjusted for {len(targets)} targets (Holm), {visible(title)}: {', '.join(p_values)}."
        for title, p_values in found.items()
    ]


def _rates_cells(rates: Sequence[Rates]) -> Cells:
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
    low, high = stats.binomtest(count, targets).proportion_ci(0.95, method="exact")
    return f"{count / targets:.0%} ({100 * low:.0f}-{100 * high:.0f})"


def _usage_cells(targets: Sequence[Target]) -> Cells:
    """All targets' tests of use in full."""
    several = any(usage.p_never_adjusted is not None for target in targets for usage in target.usage)
    rows = [
        (
            visible(target.name),
            visible(_test(target, usage.method).title),
            _test(target, usage.method).finding.verdict,
            _interval(usage),
            _upper(usage),
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
            *(visible(each.name), "EMA", _test(each, "ema").finding.verdict),
            *(f"{_percent(each.ema.member_share)} flagged", "-", "-", "-", *(["-"] if several else [])),
            *(precise(each.ema.p_value), "-"),
        )
        for each in targets
        if each.ema is not None
    ]
    of_several = [f"adjusted for {len(targets)} targets"] if several else []
    numbers = ("upper limit", "minimum detectable fraction", "p(unused)", *of_several, "p(all used)")
    columns = ("target", "test", "verdict", "used fraction", *numbers, "reasons")
    return Cells("Use of the query set", columns, tuple(rows), numbers)


def _rho_cells(made: Sequence[tuple[Target, OfRho]]) -> Cells:
    rows = (
        (
            visible(target.name),
            rho.verdict,
            number(rho.rho.median, 4),
            span(rho.rho, 4) or "none",
            rho.paper_rule,
        )
        for target, rho in made
    )
    return Cells("rho", ("target", "verdict by rho", "rho", "interval", "the paper's rule"), tuple(rows), ("rho",))


def _replicates(made: Sequence[tuple[Target, OfRho]]) -> Cells:
    numbers = ("replicate", "to the target", "to the calibration model", "rho")
    rows = (
        (visible(target.name), str(place), precise(above), precise(below), precise(value))
        for target, rho in made
        for place, (above, below, value) in enumerate(
            zip(rho.ks.target, rho.ks.calibration, rho.rho.values, strict=True), 1
        )
    )
    title = "Replicates: rho is the first distance divided by the second"
    return Cells(title, ("target", *numbers), tuple(rows), numbers, folded=True)

"""The content of a `ks` run for the terminal and the page."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jaxaudit.audits.ks.result import KSResult, Measured, TargetResult, array_names, check_ks_result
from jaxaudit.audits.ks.scores import ScoresTest
from jaxaudit.audits.ks.tests_of_use import TESTS
from jaxaudit.audits.ks.tests_of_use.test import change_text
from jaxaudit.errors import visible
from jaxaudit.metrics.usage import STATED_FRACTION, WORDING, Usage, at_most
from jaxaudit.report.kinds import Arrays, RunKind
from jaxaudit.report.ks.charts import compared, pictures
from jaxaudit.report.ks.groups import group_details, group_legend, group_tables, groups_beside
from jaxaudit.report.ks.tables import (
    P_NAMES,
    UNKNOWN,
    about,
    by,
    field_numbers,
    fractions,
    further_tests,
    grid,
    kind_of,
    percent_cell,
    questions_of,
    rates_cells,
    rho_cells,
    statements,
    test_of,
    upper,
    usage_cells,
    usage_of,
    verdicts,
)
from jaxaudit.report.numbers import ComparedSets, level_text, number_text, precise, sets_of, share, span
from jaxaudit.report.page import Answer, DrawnShare, RunContent
from jaxaudit.report.record import Run, record_type
from jaxaudit.report.sources import terms

TERMS = ("query set", "target", "interval")
OF_RHO = (
    *("confidence", "query model", "calibration model", "empirical CDF", "Kolmogorov-Smirnov distance", "rho"),
    *("replicate", "noise floor", "positive control", "the paper's rule", "log-odds"),
)
OF_USE = ("upper limit", "detectable fraction")
OF_SETS = {
    "calibration": "calibration set",
    "holdout": "holdout",
    "reference": "reference",
    "members": "known members",
    "shadows": "shadow bank",
}


_LIMITS = "at most: its one-sided 95% upper limit. min. detect.: smallest"
_USED = (
    "p (not used), p (all used): p-values of no use and of full use of the query set, before they are adjusted for "
    f"several models. used: estimated used fraction with its interval. {_LIMITS} used fraction detected with 95% "
    "probability."
)
LEGENDS = {
    ("used",): _USED,
    ("left",): (
        "p (none left), p (all left): p-values of no memory of the query set, and of full memory. left: estimated "
        "share of the memory that is left of the query set, with its interval: of that of the known members, of that "
        f"before the deletion, or of what models of known truth show. {_LIMITS} share left detected with 95% "
        "probability."
    ),
    ("used", "left"): (
        f"{_USED} Where it is asked what is left, the fraction is the share of the memory of the known members, or of "
        "the memory before the deletion, that is left of the query set."
    ),
}
"""By what fractions are of, see `questions_of`."""


COMMITTED = "Commitment of the challenge, to compare with the published one: {}"


def ks_part(run: Run[KSResult], top: int = 0) -> RunContent:
    result = run.result
    targets, sets, committed = result.targets, sets_of(run.provenance.data), run.provenance.challenge
    used = any(target.usage for target in targets)

    return RunContent(
        "Has the target forgotten the query set?",
        about(sets),
        tuple(answer_of(target, sets, result.level, len(targets), _stated(run, target.method)) for target in targets),
        (
            verdicts(result),
            *group_tables(targets),
            grid(result),
            *([rates_cells(result.rates)] if result.rates else []),
            *([usage_cells(targets)] if used else []),
            *([rho_cells(targets)] if result.noise_floor else []),
            statements(run),
        ),
        (*_legend(result), *group_legend(targets), *([COMMITTED.format(committed)] if committed else [])),
        terms(
            *TERMS,
            *(OF_RHO if result.noise_floor else ()),
            *(
                (
                    *(WORDING[question].fraction for question in questions_of(targets)),
                    *(name for question in questions_of(targets) for name in P_NAMES[question]),
                    *OF_USE,
                )
                if used
                else ()
            ),
            *(term for role, term in OF_SETS.items() if getattr(sets, role) is not None),
        ),
        _errors(targets),
        (*_details(result), *group_details(targets)),
        tabled=True,
        beside=groups_beside(targets, sets),
        notes=_notes(targets) if used else (),
    )


def _errors(targets: Sequence[TargetResult]) -> tuple[str, ...]:
    """What the deciding tests say of themselves; nothing of a test of one's own."""
    errors_of_tests = {test.name: f"{test.title}: {test.errors}" for test in (*TESTS, ScoresTest)}  # pyright: ignore[reportAttributeAccessIssue]
    return tuple(
        dict.fromkeys(errors_of_tests[target.method] for target in targets if target.method in errors_of_tests)
    )


def _stated(run: Run[KSResult], method: str) -> float:
    """The share that `forgotten` requires at most by this test, as the run was asked; else the usual one."""
    texts, name = run.provenance.options.get("test_option"), f"{method}.stated="
    for text in reversed(texts) if isinstance(texts, list | tuple) else ():
        with suppress(ValueError):
            if str(text).startswith(name) and 0 < float(str(text).removeprefix(name)) < 1:
                return float(text.removeprefix(name))
    return STATED_FRACTION


def _legend(result: KSResult) -> tuple[str, ...]:
    """How to read the table of verdicts, and what the deciding tests may miss."""
    targets, lines = result.targets, field_numbers(result.targets)
    usages = [usage for target in targets for usage in target.usage]
    if not usages:
        return tuple(lines)
    adjusted = any(usage.p_never_adjusted is not None for usage in usages)
    several = f", adjusted for {len(targets)} models (Holm)" if adjusted else ""
    left = questions_of(targets) == ("left",)
    p_value, never = P_NAMES[questions_of(targets)[0]][0], "remembers none of" if left else "never used"
    lines.append(f"{p_value}: how often a model that {never} the query set looks at least as suspicious{several}.")
    deciding = [usage for target in targets for usage in target.usage if usage.method == target.method]
    shares = [round(100 * usage.fraction) for usage in deciding if usage.has_fraction]
    if shares:
        heading = "left" if left else "remembered"
        ends = "" if left else "0% is like a query set that the model never used, 100% like one that it used whole. "
        lines.append(f"{heading}: {ends}Intervals are cut at 0% and 100%; at most: the one-sided 95% limit.")
    lines += _notes(targets)
    titles = {target.method: visible(test_of(target, target.method).title) for target in targets}
    for method in dict.fromkeys(usage.method for usage in deciding):
        # Nothing is known of what would be missed where nothing shows what use looks like.
        shown = [usage for usage in deciding if usage.method == method and usage.p_fully is not None]
        if not shown:
            continue
        detectable_shares = [usage.detectable for usage in shown if usage.detectable is not None]
        use = "memory" if left else "use"
        sharpness = f"even {use} of all of the query set is missed in more than 1 of 20 such tests"
        if len(detectable_shares) == len(shown):
            limits = dict.fromkeys(map(percent_cell, (min(detectable_shares), max(detectable_shares))))
            least = f"{' to '.join(limits)} or more{' (by model)' if len(limits) > 1 else ''}"
            sharpness = f"{use} of {least} is found in 19 of 20 such tests"
        title = f"{titles[method][0].upper()}{titles[method][1:]}"
        lines.append(f"{title}: {sharpness}.")
    return tuple(lines)


def _notes(targets: Sequence[TargetResult]) -> tuple[str, ...]:
    """How to read what the deciding tests have in place of a share from 0% to 100%."""
    usages = [usage for target in targets for usage in target.usage if usage.method == target.method]
    shares, lines = [round(100 * usage.fraction) for usage in usages if usage.has_fraction], []
    if min(shares, default=0) < 0:
        lines.append("Below 0%: by chance, or since the sets differ, the query set looks less used than the holdout.")
    if max(shares, default=0) > 100:
        lines.append("Above 100%: the query set looks more used than records that were used.")
    return (*lines, *([_unknown(targets)] if len(shares) < len(usages) else ()))


def _unknown(targets: Sequence[TargetResult]) -> str:
    return (
        f"{UNKNOWN}: how much the target remembers of what it used is not known, the interval of the "
        f"{fractions(targets)} is 0 to 100%, a p-value contradicts its estimate, or a check that it rests on failed."
    )


def _details(result: KSResult) -> tuple[str, ...]:
    """How to read all numbers, and those that stand in no table."""
    lines, floor = [], result.noise_floor

    def called(target: TargetResult) -> str:
        return f", {visible(target.name)}" if len(result.targets) > 1 else ""

    if any(target.usage for target in result.targets):
        lines.append(
            LEGENDS[questions_of(result.targets)]
            + (" rho: ratio of Liu & Tsaftaris (2020); their rule: 1 or more is forgotten." if floor else "")
        )
    lines += [
        f"{BEFORE_AFTER}{called(target)}: {change_text(target.change)}."
        for target in result.targets
        if target.change is not None
    ]
    further = [usage for target in result.targets for usage in target.usage if usage.method != target.method]
    if any(not usage.has_fraction for usage in further) and _unknown(result.targets) not in _notes(result.targets):
        lines.append(_unknown(result.targets))
    lines += [
        f"The paper's rule{called(target)}: {rule_in_words(target)}"
        for target in result.targets
        if target.paper_rule not in (None, target.verdict)
    ]
    # Limitations of what does not decide.
    own_caveats = {caveat for target in result.targets for caveat in target.finding.caveats}
    lines += dict.fromkeys(
        caveat
        for target in result.targets
        for test in target.tests
        for caveat in test.finding.caveats
        if caveat not in own_caveats and usage_of(target, test.name)
    )
    if result.rates:
        lines.append(
            "Error rates: share of shadow models that were called so, with its exact 95% interval. By the holdout test "
            "a model is judged with fewer records than a target, so less is detected."
        )
    if floor is not None and floor.median is not None:
        lines.append(
            f"Noise floor: query models of different seeds are {number_text(floor.median)} apart (at most "
            f"{number_text(floor.max)})."
        )
    return tuple(lines)


def _check(result: Any, arrays: Arrays) -> None:
    """Holds a run that was read against itself: its numbers, and the sets that its provenance names."""
    check_ks_result(result, arrays)
    sets_of(result.provenance.data)


KS = RunKind("ks", record_type("ks", KSResult), ks_part, _check, pictures, compared, array_names)


P_LEAST = 0.001
BEFORE_AFTER = "Used fraction before minus after"
WHY_RULE = (
    "It differs from the verdict: the rule only asks whether rho is 1 or more, whatever the spread of rho and the "
    "checks. It decides nothing."
)


def answer_of(target: TargetResult, sets: ComparedSets, level: float, targets: int, stated: float) -> Answer:
    """The answer about one of so many targets: the numbers of the test that decides, and apart from them the others."""
    facts, further = [], [] if target.paper_rule is None else [("The paper's rule", rule_in_words(target))]
    for usage in target.usage:
        (facts if usage.method == target.method else further).extend(_of_usage(target, usage, targets))
    if target.change is not None:
        facts.append((BEFORE_AFTER, change_text(target.change)))
    for test in target.tests:
        title = visible(test.title)
        numbers = [(f"{visible(name)}, {title}", precise(value)) for name, value in test.numbers.items()]
        (facts if test.name == target.method else further).extend(numbers)
    further += [(by(test).capitalize(), test.finding.verdict) for test in further_tests(target)]
    if target.truth is not None:
        truth = target.truth
        facts.append(("Truth", f"{truth.expected}: it used {share(truth.used_fraction)} of the query set"))
    usage, rho = usage_of(target, target.method), target.rho
    name, shown, between, bar = "test", visible(test_of(target, target.method).title), "", None
    if usage is not None:
        name, shown = f"estimated {WORDING[usage.question].fraction}", UNKNOWN
        if usage.has_fraction:
            shown = percent_cell(usage.fraction)
            between = f"{percent_cell(usage.fraction_low)} to {percent_cell(usage.fraction_high)}"
            between += "" if 0 <= usage.fraction <= 1 else ", cut at 0% and 100%"
            bar = _bar(usage, stated)
    elif target.method == "rho" and rho is not None:
        name, shown, between = "rho", number_text(rho.median, 2), span(rho)
    first = target.usage[0] if target.usage else None
    limited = target.verdict == "forgotten" and first is not None and first.method == target.method
    alone = f"forgotten (at most {at_most(first.upper)})" if limited and first is not None else ""
    between = f"{between} ({level_text(level)} interval)" if between else ""
    # Confidence in the used fraction, where that is not the one in the verdict.
    trust = test_of(target, target.method).confidences.get("fraction")
    trust = trust if trust and trust.word != target.finding.confidence.word else None
    numbers = tuple(facts), alone, trust, tuple(further), bar, kind_of(target, sets)
    return Answer(visible(target.name), target.finding, name, shown, between, *numbers)


def _of_usage(target: TargetResult, usage: Usage, targets: int) -> list[tuple[str, str]]:
    test = test_of(target, usage.method)
    title, trusts = visible(test.title), test.confidences
    fraction, (none, full) = WORDING[usage.question].fraction, P_NAMES[usage.question]
    p_none = _p_value(usage.p_never)
    if usage.p_never_adjusted is not None:
        p_none += f", adjusted for {targets} targets: {_p_value(usage.p_never_adjusted)}"

    def trusted(name: Measured) -> str:
        return f"{trusts[name].word}. {visible(trusts[name].why)}"

    facts = [(f"{none}, {title}", p_none)]
    sharpness = "not even all" if usage.detectable is None else f"{percent_cell(usage.detectable)} or more"
    # The confidence in the verdict stands on the card already.
    if usage.method != target.method or trusts["p_never"].word != target.finding.confidence.word:
        facts.append((f"Confidence in {none}, {title}", trusted("p_never")))
    facts += [
        (f"{full}, {title}", _p_value(usage.p_fully)),
        (f"{fraction.capitalize()}, upper limit, {title}", upper(usage)),
    ]
    if usage.method != target.method:
        facts.append((f"Confidence in the {fraction}, {title}", trusted("fraction")))
    return [*facts, (f"Use found in 19 of 20 such tests, {title}", sharpness)]


def _p_value(value: float | None) -> str:
    """A p-value on a card; all its digits are in a table."""
    return precise(value) if value is None or value >= P_LEAST else f"< {P_LEAST:g}"


def _bar(usage: Usage, stated: float) -> DrawnShare:
    """The fraction on a line from none to all."""
    most, allowed = f"at most {at_most(usage.upper)}", f"forgotten up to {percent_cell(stated)}"
    between = f"{percent_cell(usage.fraction_low)} to {percent_cell(usage.fraction_high)}"
    seen = (
        f"{WORDING[usage.question].fraction}: {percent_cell(usage.fraction)}, interval {between}, {most}; forgotten "
        f"requires at most {percent_cell(stated)}"
    )
    ends = usage.fraction_low, usage.fraction_high, usage.upper
    return DrawnShare(usage.fraction, *ends, stated, seen, most, allowed)


def rule_in_words(target: TargetResult) -> str:
    """What the paper's rule says and, where that is not the verdict, why, and which one decides."""
    if target.paper_rule == target.verdict:
        return str(target.paper_rule)
    return (
        f"{target.paper_rule}. {WHY_RULE} The verdict is that of the {visible(test_of(target, target.method).title)}."
    )

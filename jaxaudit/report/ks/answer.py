"""The answer about one target of `ks`: its verdict, a drawing of the number that decides, and what else was found."""

from jaxaudit.audits.ks.result import Measured, TargetResult
from jaxaudit.audits.ks.tests_of_use.test import change_text
from jaxaudit.errors import visible
from jaxaudit.metrics.usage import WORDING, Usage, at_most
from jaxaudit.report.ks.tables import (
    P_NAMES,
    UNKNOWN,
    by,
    further_tests,
    kind_of,
    percent_cell,
    test_of,
    upper,
    usage_of,
)
from jaxaudit.report.numbers import level_text, number_text, precise, share, span
from jaxaudit.report.page import Answer, DrawnShare
from jaxaudit.report.sets import ComparedSets

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
    if target.resembles is not None:
        recognised = percent_cell(target.resembles.recognised)
        recognised_text = f"(a shadow model's own design is recognised {recognised} of the time)"
        further.append(("Design that it resembles most", f"{visible(target.resembles.design)} {recognised_text}"))
    if target.truth is not None:
        truth = target.truth
        facts.append(("Truth", f"{truth.expected}: it used {share(truth.used_fraction)} of the query set"))
    # The number that the deciding test rests on.
    usage, rho = usage_of(target, target.method), target.rho
    name, shown, between, bar = "test", visible(test_of(target, target.method).title), "", None
    if usage is not None:
        name, shown = f"estimated {WORDING[usage.question].fraction}", UNKNOWN
        if usage.has_fraction:
            shown = percent_cell(usage.fraction)
            between = f"{percent_cell(usage.fraction_low)} to {percent_cell(usage.fraction_high)}"
            between += "" if 0 <= usage.fraction <= 1 else ", cut at 0% and 100%"
            bar = _bar(usage, stated)
    elif target.method == "ema" and target.ema is not None:
        name, shown = "query records that look like training records", percent_cell(target.ema.member_share)
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
    """The numbers of a test of use, by name."""
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

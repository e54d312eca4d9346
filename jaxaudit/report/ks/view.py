"""The content of a `ks` run for the terminal and the page."""

from collections.abc import Sequence
from typing import Any

from jaxaudit.audits.ks.result import SCORES, KSResult, TargetResult, array_names, check_ks_result
from jaxaudit.audits.ks.scores import ScoresTest
from jaxaudit.audits.ks.tests_of_use import TESTS
from jaxaudit.audits.ks.tests_of_use.test import change_text
from jaxaudit.errors import visible
from jaxaudit.metrics.usage import STATED_FRACTION, WORDING
from jaxaudit.report.glossary import terms
from jaxaudit.report.kinds import Arrays, RunKind, StoredArrays
from jaxaudit.report.ks.answer import BEFORE_AFTER, answer_of, rule_in_words
from jaxaudit.report.ks.groups import group_details, group_legend, group_tables, groups_beside
from jaxaudit.report.ks.tables import (
    P_NAMES,
    UNKNOWN,
    about,
    field_numbers,
    fractions,
    grid,
    percent_cell,
    questions_of,
    rates_cells,
    replicates,
    rho_cells,
    test_of,
    usage_cells,
    usage_of,
    verdicts,
)
from jaxaudit.report.numbers import number_text
from jaxaudit.report.page import RunContent
from jaxaudit.report.record import Run, record_type
from jaxaudit.report.sets import sets_of

TERMS = ("query set", "target", "interval")
OF_RHO = (
    *("confidence", "query model", "calibration model", "empirical CDF", "Kolmogorov-Smirnov distance", "rho"),
    *("replicate", "noise floor", "positive control", "the paper's rule", "log-odds"),
)
OF_USE = ("upper limit", "detectable fraction")


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


def ks_part(run: Run[KSResult], top: int = 0) -> RunContent:
    result = run.result
    targets, sets = result.targets, sets_of(run.provenance.data)
    used = any(target.usage or target.ema for target in targets)

    return RunContent(
        "Has the target forgotten the query set?",
        about(sets),
        tuple(answer_of(target, sets, result.level, len(targets), _stated(run)) for target in targets),
        (
            verdicts(result),
            *group_tables(targets),
            grid(result),
            *([rates_cells(result.rates)] if result.rates else []),
            *([usage_cells(targets)] if used else []),
            *([rho_cells(targets), replicates(targets)] if result.noise_floor else []),
        ),
        (*_legend(result), *group_legend(targets)),
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
            *(("EMA",) if any(target.ema for target in targets) else ()),
            *(("calibration set",) if sets.calibration is not None else ()),
            *(("holdout",) if sets.holdout is not None else ()),
            *(("reference",) if sets.reference is not None else ()),
            *(("known members",) if sets.members is not None else ()),
            *(("shadow bank",) if sets.shadows is not None else ()),
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


def _stated(run: Run[KSResult]) -> float:
    """The share that `forgotten` requires at most, as the run was asked; the usual one of a run from elsewhere."""
    stated = run.provenance.options.get("stated_share")
    return float(stated) if isinstance(stated, int | float) and 0 < stated < 1 else STATED_FRACTION


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
        shown = [
            usage for usage in deciding if usage.method == method and (method != SCORES or usage.p_fully is not None)
        ]
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
        f"{fractions(targets)} is 0 to 100%, or a p-value contradicts its estimate."
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
    resembling_targets = [(target.name, target.resembles) for target in result.targets if target.resembles is not None]
    if resembling_targets:
        designs_text = ", ".join(
            f"{visible(name)}: {visible(resembled.design)}" for name, resembled in resembling_targets
        )
        share = percent_cell(resembling_targets[0][1].recognised)
        lines.append(f"Most like the design (recognised for {share} of shadow models): {designs_text}.")
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
        if caveat not in own_caveats and (usage_of(target, test.name) or test.name == "ema")
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


def _stored(result: KSResult) -> StoredArrays | None:
    names = array_names(result)
    return StoredArrays("confidences.npz", names) if names else None


KS = RunKind("ks", record_type("ks", KSResult), ks_part, _check, _stored)

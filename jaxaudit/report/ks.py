"""The content of a `ks` run for the terminal and the page, and its chart: what three models say of the query set."""

from collections.abc import Sequence

import numpy as np

from jaxaudit.audits.ks.result import (
    KSResult,
    RhoDetails,
    TargetResult,
    Usage,
    array_names,
    check_ks_arrays,
    check_ks_result,
    typical,
)
from jaxaudit.audits.ks.scores import ScoresTest
from jaxaudit.audits.ks.tests_of_use import TESTS
from jaxaudit.errors import visible
from jaxaudit.metrics.usage import WORDING, at_most, fraction_name
from jaxaudit.plots import charts as plot
from jaxaudit.plots.style import chart
from jaxaudit.report.kinds import Arrays, Run, RunKind, record_type
from jaxaudit.report.ks_tables import (
    P_NAMES,
    UNKNOWN,
    about,
    field_numbers,
    groups_beside,
    percent_cell,
    questions_of,
    rates_cells,
    rho_cells,
    statements,
    usage_cells,
    verdicts,
)
from jaxaudit.report.numbers import compared_sets, level_text, number_text, precise, share, span
from jaxaudit.report.page import Answer, DrawnShare, Picture, RunContent, table_of
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


LEGENDS = {
    ("used",): "used: estimated used fraction with its interval.",
    ("left",): "left: estimated share of the memory that is left of the query set, with its interval: of that of the "
    "known members, of that before the deletion, or of what models of known truth show.",
    ("used", "left"): "used/left: estimated used fraction with its interval; where it is asked what is left, the share "
    "of the memory of the known members, or of the memory before the deletion, that is left of the query set.",
}
"""By what fractions are of, see `questions_of`."""


COMMITTED = "Commitment of the challenge, to compare with the published one: {}"


def ks_part(run: Run[KSResult]) -> RunContent:
    result = run.result
    targets, sets, committed = result.targets, compared_sets(run.provenance.data), run.provenance.challenge
    used = any(target.usage for target in targets)

    return RunContent(
        "Has the target forgotten the query set?",
        about(sets, before=any(target.method == "deletion" for target in targets)),
        tuple(answer_of(target, result.level) for target in targets),
        (
            verdicts(targets, result.level),
            *([rates_cells(result.rates)] if result.rates else []),
            *([usage_cells(targets, result.level)] if used else []),
            *([rho_cells(result)] if result.noise_floor else []),
            statements(run, sets),
        ),
        (*_legend(result), *([COMMITTED.format(committed)] if committed else [])),
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
            *(term for role, term in OF_SETS.items() if getattr(sets, role)),
        ),
        _errors(targets),
        _details(result),
        tabled=True,
        beside=groups_beside(targets, sets),
        pictures=tuple(
            picture for place, target in enumerate(targets) for picture in confidences(place, target, run.arrays)
        ),
    )


def _errors(targets: Sequence[TargetResult]) -> tuple[str, ...]:
    """What the deciding tests say of themselves; nothing of a test of one's own."""
    errors_of_tests = {
        test.name: f"{test.title}: {errors}" for test in (*TESTS, ScoresTest) if (errors := getattr(test, "errors", ""))
    }
    return tuple(
        dict.fromkeys(errors_of_tests[target.method] for target in targets if target.method in errors_of_tests)
    )


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
    deciding = [usage for target in targets for usage in target.deciding]
    if any(usage.has_fraction for usage in deciding):
        heading = "left" if left else "remembered"
        ends = "" if left else "0% is like a query set that the model never used, 100% like one that it used whole. "
        lines.append(f"{heading}: {ends}Intervals are cut at 0% and 100%; at most: the one-sided 95% limit.")
    lines += _notes(targets)
    titles = {target.method: visible(target.tests[0].title) for target in targets}
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
    usages = [usage for target in targets for usage in target.deciding]
    shares, lines = [round(100 * usage.fraction) for usage in usages if usage.has_fraction], []
    if min(shares, default=0) < 0:
        lines.append("Below 0%: by chance, or since the sets differ, the query set looks less used than the holdout.")
    if max(shares, default=0) > 100:
        lines.append("Above 100%: the query set looks more used than records that were used.")
    return (*lines, *([_unknown(targets)] if len(shares) < len(usages) else ()))


def _unknown(targets: Sequence[TargetResult]) -> str:
    return (
        f"{UNKNOWN}: how much the target remembers of what it used is not known, the interval of the "
        f"{fraction_name(questions_of(targets))} is 0 to 100%, a p-value contradicts its estimate, or a check that it "
        "rests on failed."
    )


def _details(result: KSResult) -> tuple[str, ...]:
    """How to read all numbers, and those that stand in no table."""
    lines = [*field_numbers(result.targets), *_notes(result.targets)]

    def called(target: TargetResult) -> str:
        return f", {visible(target.name)}" if len(result.targets) > 1 else ""

    if any(target.usage for target in result.targets):
        questions = questions_of(result.targets)
        use = "memory" if questions == ("left",) else "use"
        lines.append(
            f"{P_NAMES[questions[0]][1]}: p-value of full {use} of the query set. {LEGENDS[questions]} at most: its "
            "one-sided 95% upper limit. min. detect.: the smallest that is detected with 95% probability."
        )
    if result.noise_floor:
        lines.append("rho: ratio of Liu & Tsaftaris (2020); their rule: 1 or more is forgotten.")
    if any(not usage.has_fraction for target in result.targets for usage in target.usage):
        lines.append(_unknown(result.targets))
    lines += [
        f"The paper's rule{called(target)}: {target.ratio.rule}. {WHY_RULE} The verdict is that of the "
        f"{visible(target.tests[0].title)}."
        for target in result.targets
        if target.ratio and target.ratio.rule != target.verdict
    ]
    # Limitations of what does not decide.
    own_caveats = {caveat for target in result.targets for caveat in target.finding.caveats}
    lines += dict.fromkeys(
        caveat
        for target in result.targets
        for test in target.tests
        for caveat in test.finding.caveats
        if caveat not in own_caveats and isinstance(test.details, Usage)
    )
    if result.rates:
        lines.append(
            "Error rates: share of shadow models that were called so, with its exact 95% interval. By the holdout test "
            "a model is judged with fewer records than a target, so less is detected."
        )
    return tuple(dict.fromkeys(lines))


KS = RunKind("ks", record_type("ks", KSResult), ks_part, check_ks_result, array_names, check_ks_arrays)


WHY_RULE = (
    "It differs from the verdict: the rule only asks whether rho is 1 or more, whatever the spread of rho and the "
    "checks. It decides nothing."
)


def answer_of(target: TargetResult, level: float) -> Answer:
    """The answer about a target: the number of the test that decides, and apart from it what stands in no table."""
    facts = []
    for test in target.tests:
        title = visible(test.title)
        if test.details is None and test.name != target.method:
            facts.append((f"Verdict, {title}", visible(test.finding.verdict)))
        facts += [(f"{visible(name)}, {title}", precise(value)) for name, value in test.numbers.items()]
    if truth := target.truth:
        facts.append(("Truth", f"{truth.expected}: it used {share(truth.used_fraction)} of the query set"))
    deciding = target.tests[0]
    usage = deciding.details
    name, shown, between, bar = "test", visible(deciding.title), "", None
    if isinstance(usage, Usage):
        name, shown = f"estimated {WORDING[usage.question].fraction}", UNKNOWN
        if usage.has_fraction:
            shown = percent_cell(usage.fraction)
            between = f"{percent_cell(usage.fraction_low)} to {percent_cell(usage.fraction_high)}"
            between += "" if 0 <= usage.fraction <= 1 else ", cut at 0% and 100%"
            ends = usage.fraction_low, usage.fraction_high, usage.upper
            bar = DrawnShare(usage.fraction, *ends, f"at most {at_most(usage.upper)}")
    elif isinstance(usage, RhoDetails):
        rho = usage.rho
        name, shown, between = "rho", number_text(rho.median, 2), span(rho)
    trust = deciding.confidences.get("fraction")
    return Answer(
        visible(target.name),
        target.finding,
        name,
        shown,
        f"{between} ({level_text(level)} interval)" if between else "",
        tuple(facts),
        # Confidence in the used fraction, where that is not the one in the verdict.
        trust if trust and trust.word != target.finding.confidence.word else None,
        bar,
    )


SAMPLED = (0.001, 0.01, 0.05, *(share / 10 for share in range(1, 10)), 0.95, 0.99, 0.999, 0.9999, 0.99999, 1.0)


def confidences(place: int, target: TargetResult, arrays: Arrays) -> tuple[Picture, ...]:
    """Confidences of target number `place`; none without rho, or of a result that came without arrays."""
    if not arrays or not target.ratio:
        return ()
    rho, name = target.ratio.rho, visible(target.name)
    which, replicates = typical(rho), len(rho.values)
    samples = [arrays["query"][which], arrays[f"target_{place}"], arrays["calibration"][which]]
    gap = plot.widest_gap_at(samples[0], samples[1])
    distance, other = rho.distances[which], number_text(rho.calibration_distances[which])
    places = [(f"{at:g}", at) for at in SAMPLED] + [(f"{gap.confidence:.8g} (widest gap)", gap.confidence)]
    shares = {
        role: plot.share_at_most(sample, np.array([at for _, at in places], sample.dtype))
        for role, sample in zip(plot.ROLES, samples, strict=True)
    }
    columns = {
        "confidence": ("1.0", str),
        **{role: lambda row, values=values: f"{values[row[0]]:.4f}" for role, values in shares.items()},
    }
    picture = Picture(
        f"confidences-{place}",
        f"Confidences of {name}",
        f"The gap is the distance of {name} from a query model; rho divides it by that of the calibration model "
        f"({other}). Replicate {which + 1} of {replicates}, whose rho is nearest to the median. The axis spreads out "
        "confidences close to 1.",
        chart(lambda axes: plot.draw_confidences(axes, samples, gap, distance)),
        table_of(f"Share of query records with at most this confidence, {name}", enumerate(places), columns),
    )
    return (picture,)

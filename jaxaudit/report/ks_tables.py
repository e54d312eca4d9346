"""The tables of a `ks` run, those of groups included, how its numbers are shown, and what it compared, in words."""

from collections.abc import Iterable, Sequence

from jaxaudit.audits.finding import Tone
from jaxaudit.audits.ks.result import GroupResult, KSResult, Rates, RhoDetails, TargetResult, Usage
from jaxaudit.audits.ks.tests_of_use.test import TONES, percent_text
from jaxaudit.errors import visible
from jaxaudit.metrics.over_models import clopper_pearson
from jaxaudit.metrics.usage import WORDING, Question, at_most
from jaxaudit.report.kinds import Run
from jaxaudit.report.numbers import (
    ComparedSets,
    count_text,
    level_text,
    number_text,
    precise,
    span,
    two_decimals,
)
from jaxaudit.report.page import Beside, ColumnsByHead, PageTable, table_of

SETS = {
    "query": "The query set",
    "holdout": "The holdout, which, as is stated, nobody trained on",
    "members": "The known members, which the target is known to have used",
    "reference": "The reference, which the target is known not to have used",
    "calibration": "The calibration set, which shares no record with the query set",
}
UNKNOWN = "unknown"
P_NAMES = {"used": ("p (not used)", "p (all used)"), "left": ("p (none left)", "p (all left)")}
"""The p-values of no use and of full use, by what is asked."""
RATES = "Error rates on these data: each shadow model as a target, judged by the others"


def verdicts(targets: Sequence[TargetResult], level: float) -> PageTable:
    """The verdict on each target, and the numbers to read with it, for a terminal; `usage_cells` has the rest."""
    columns: ColumnsByHead = {"model": ("name", visible)}
    if any(target.truth for target in targets):
        columns["truly\nused"] = _truth
    columns["verdict"] = _verdict
    if any(target.usage for target in targets):
        heading = "/".join(WORDING[question].heading for question in questions_of(targets))
        columns[f"{heading}\n({level_text(level)} interval)"] = lambda target: "".join(
            fraction_interval(usage, " to ", "%") for usage in target.deciding
        )
        columns[_p_columns(targets)[0]] = lambda target: "".join(map(_p_none, target.deciding))
    return table_of("", targets, columns, ("model", "verdict"), tones=TONES, on="terminal")


def _verdict(target: TargetResult) -> str:
    """`forgotten` is not to be read without its limit."""
    limits = [f"\n(at most {at_most(usage.upper)})" for usage in target.deciding if target.verdict == "forgotten"]
    return "".join([target.verdict, *limits])


def _p_none(usage: Usage) -> str:
    """The p-value of no use, adjusted for several targets."""
    return p_column(usage.p_never if usage.p_never_adjusted is None else usage.p_never_adjusted)


def questions_of(targets: Iterable[TargetResult]) -> tuple[Question, ...]:
    """What fractions are of: what was `used`, what is `left`, or both in this order; `used` where there is none."""
    questions = {usage.question for target in targets for usage in target.usage}
    return tuple(question for question in WORDING if question in questions) or ("used",)


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


def usage_cells(targets: Sequence[TargetResult], level: float) -> PageTable:
    """A row for each target and test of use, the deciding one first: p-values and the fraction, in 80 characters."""
    tests = [(target, test) for target in targets for test in target.tests]
    rows = [(target, test.details, test) for target, test in tests if isinstance(test.details, Usage)]
    none, full = _p_columns(targets)
    columns: ColumnsByHead = {
        "model": ("0.name", visible),
        "test": ("2.title", visible),
        "verdict": ("2.finding.verdict", str),
        none: ("1", _p_none),
        full: ("1.p_fully", p_column),
        f"{'/'.join(questions_of(targets))}\n({level_text(level)})": ("1", fraction_interval),
        "at\nmost": ("1", upper),
        "min.\ndetect.": ("1.detectable", percent_cell),
    }
    title = "Memory of the query set" if questions_of(targets) == ("left",) else "Use of the query set"
    return table_of(title, rows, columns, ("model", "test", "verdict"), on="details")


def rho_cells(result: KSResult) -> PageTable:
    """rho of every target, and of the controls, which are compared beside each target; here as beside the first."""
    rows = [
        (visible(target.name), test.finding.verdict, test.details.rule, test.details.rho)
        for target in result.targets
        for test in target.tests
        if isinstance(test.details, RhoDetails)
    ]
    controls = result.targets[0].ratio.controls if result.targets[0].ratio else ()
    rows += [(f"control {place} (trained on both)", "-", "-", rho) for place, rho in enumerate(controls, 1)]
    columns: ColumnsByHead = {
        "model": ("0", str),
        "verdict by rho": ("1", str),
        "rho": ("3.median", two_decimals),
        f"{level_text(result.level)}\ninterval": lambda row: span(row[3]).replace(" to ", "-") or "none",
        "the paper's rule,\nwhich decides nothing": ("2", str),
    }
    only = not any(target.usage for target in result.targets)
    title, floor = "Ratio rho.", result.noise_floor
    if floor and floor.median is not None:
        apart = f"{number_text(floor.median)} apart (at most {number_text(floor.max)})"
        title += f" Noise floor: query models of different seeds are {apart}."
    return table_of(title, rows, columns, set(columns) - {"rho"}, on="both" if only else "details")


def fraction_interval(usage: Usage, to: str = "-", percent: str = "") -> str:
    if not usage.has_fraction:
        return UNKNOWN
    low, high = (f"{100 * end:.0f}" for end in (usage.fraction_low, usage.fraction_high))
    return f"{percent_text(usage.fraction, 0)} ({low}{to}{high}{percent})"


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
    return "none" if value is None else percent_text(value)


def _truth(target: TargetResult) -> str:
    if not target.truth:
        return UNKNOWN
    used = target.truth.used_fraction
    return "none" if used == 0 else f"{used:.0%}" if used >= 0.01 else "under 1%"


def about(sets: ComparedSets, *, before: bool) -> str:
    """The sets, where the shadow models come from, and whether outputs before a deletion were given."""
    present = [(words, getattr(sets, role)) for role, words in SETS.items()]
    sentences = [
        f"{words}: {visible(one_set.name)} ({one_set.records:,} records)." for words, one_set in present if one_set
    ]
    beside = ": the target's outputs on the query set are compared with those on the holdout" if sets.holdout else ""
    trained = f"No shadow model was trained{beside}."
    if sets.scores:
        models = [f"{count} {visible(role)}" for role, count in sets.scores.models.items()]
        trained = f"The table has scores by these models: {', '.join(models)}. No model was trained."
    elif sets.shadows:
        bank = f"The {sets.shadows.models:,} shadow models of the bank {visible(sets.shadows.name)}"
        trained = f"{bank} were trained on records of these sets. The target's outputs are compared with theirs."
    elif sets.calibration:
        trained = "Shadow models were trained on records of these sets. The target's outputs are compared with theirs."
    changed = ["The target's outputs are compared with those of the model before the deletion."] if before else []
    return " ".join([*sentences, trained, *changed])


PRIVLEAK = "privleak"
PRIVLEAK_MEANS = "privleak is 0% of a model like the retrained one, and below 0% of one that shows the query set more"


def field_numbers(targets: Sequence[TargetResult]) -> list[str]:
    """Forget quality and privleak, and what they are between retrained models."""
    lines = []
    tofu_by_target = [(target.name, target.tofu) for target in targets if target.tofu]
    for target_name, tofu in tofu_by_target:
        number_texts, means = [], ""
        if tofu.forget_quality is not None:
            number_texts.append(f"forget quality {precise(tofu.forget_quality)}")
        if tofu.privleak is not None:
            number_texts.append(f"{PRIVLEAK} {tofu.privleak:.1f}%")
            means = f"; {PRIVLEAK_MEANS}"
        if number_texts:
            lines.append(
                f"{visible(target_name)}: {', '.join(number_texts)} (open-unlearning's numbers, which decide "
                f"nothing{means})."
            )
    worth = next((tofu.retrained for _, tofu in tofu_by_target if tofu.retrained), None)
    if worth and worth.share_below is not None:
        lines.append(
            f"Forget quality between {worth.models} retrained models: below {worth.nominal:g} for "
            f"{level_text(worth.share_below)} of pairs; a p-value at its level would be so for "
            f"{level_text(worth.nominal)}."
        )
    return lines


# What may be written of a verdict, and what may not: for whoever puts the answer into a letter or a decision.

NOT_SAID = {
    "forgotten": "That none of the query set was used, or that nothing of it is left: {less} is not ruled out. That "
    "another model of its maker has forgotten the query set, or that this one will have when it is trained further.",
    "not forgotten": "That all of the query set was used, or by whom and why. Of a holdout that was not dealt at "
    "random: that use is the only cause, since sets of two sources look like it.",
    "inconclusive": "That the query set was used, or that it was not: the outputs do not tell.",
}
"""By the verdict; `less` is the use that a test of this size may miss."""


def statements(run: Run[KSResult], sets: ComparedSets) -> PageTable:
    """A row a target: a sentence with its numbers and what it assumes, and what these numbers do not say."""
    provenance = run.provenance
    compared = {"query set": sets.query, "holdout": sets.holdout, "known members": sets.members}
    counts = ", ".join(f"{one_set.records:,} records of the {words}" for words, one_set in compared.items() if one_set)
    when = f"On {visible(provenance.started[:10])}, jaxaudit {visible(provenance.jaxaudit)} compared outputs"
    rows = []
    for target in run.result.targets:
        assumed = "".join(f" {visible(caveat)}" for caveat in target.finding.caveats[:1])
        sentence = (
            f"{when} of the model {visible(target.name)} on {counts}: {visible(target.finding.sentence)}{assumed}"
        )
        noun = "memory" if target.method == "deletion" else "use"
        less = f"{noun} of up to {at_most(target.usage[0].upper)}" if target.usage else f"less {noun}"
        rows.append((visible(target.name), sentence, NOT_SAID[target.verdict].format(less=less)))
    columns = ("model", "you may write", "you may not write")
    return PageTable("What you may write of it", columns, tuple(rows))


FOUND = ("remembered", "suspected")
"""Verdicts on a group that `--fail-on` names."""
TONES_OF_GROUPS: dict[str, Tone] = {"remembered": "bad", "suspected": "open", "inconclusive": "open"}
EFFECT = (
    "effect: how much more used the group's scores look than those it is compared with, in standard deviations of a "
    "record."
)
SHARE = (
    "share left: 0% is like models that never used the group, 100% like models that used it whole; below and above, by "
    "chance, or the group looks less used, or more, than by these. unknown: on this group, models that used it differ "
    "from models that did not by no more than chance."
)
NUMBERED = (
    "Groups are numbered from 1, in the order in which they first occur among query set, holdout and members. These "
    "numbers (no.) are not your ids. Whose records a group has: look up the column group at its first query record, "
    "counted from 1 without the header; of files that `jaxaudit deal` wrote, groups.csv beside them says "
    "which of your records that number stands for."
)


def groups_beside(targets: Sequence[TargetResult], sets: ComparedSets) -> tuple[Beside, ...]:
    """The finding on the groups of each target, with all of them, and how p-values are adjusted."""
    findings = []
    for target in targets:
        if grouping := target.grouping:
            verdicts = {group.verdict for group in grouping.groups}
            # A table without a model's name has the target itself.
            kind = "model" if sets.scores and target.name != sets.query.name else "target"
            about = f"By group, {kind} {visible(target.name)}"
            conditions = tuple(f"group-{verdict}" for verdict in FOUND if verdict in verdicts)
            notes = *_columns(grouping.groups), NUMBERED, grouping.adjustment
            findings.append(Beside(about, grouping.finding, conditions, _table(about, grouping.groups), notes))
    return tuple(findings)


def _table(title: str, groups: Sequence[GroupResult]) -> PageTable:
    """Groups in 80 characters."""
    columns: ColumnsByHead = {
        "no.": ("name", str),
        "first\nrecord": ("first", str),
        "p (not\nused)": ("p_never", p_column),
        "adjusted\n(Holm)": ("p_adjusted", p_column),
        "adjusted\n(BH)": ("p_adjusted_bh", p_column),
        "effect": lambda group: number_text(group.effect, 1),
    }
    if any(group.share is not None for group in groups):
        columns["share\nleft"] = ("share", lambda share: UNKNOWN if share is None else percent_text(share, 0))
    columns["verdict"] = ("verdict", str)
    return table_of(title, groups, columns, ("verdict",), tones=TONES_OF_GROUPS)


def _columns(groups: Sequence[GroupResult]) -> tuple[str, ...]:
    """How to read the columns of these groups, as far as they have something that needs it."""
    effects, shares = ([getattr(group, name) for group in groups] for name in ("effect", "share"))
    return tuple(
        words for words, numbers in ((EFFECT, effects), (SHARE, shares)) if any(n is not None for n in numbers)
    )

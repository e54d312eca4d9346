"""What is shown of groups of the query set: the finding on them, a table, and how to read it."""

from collections.abc import Sequence

from jaxaudit.audits.finding import Tone
from jaxaudit.audits.ks.result import GroupResult, TargetResult
from jaxaudit.audits.ks.tests_of_use.test import percent_text
from jaxaudit.errors import visible
from jaxaudit.report.ks.tables import kind_of, p_column
from jaxaudit.report.numbers import ComparedSets, number_text
from jaxaudit.report.page import Beside, Column, PageTable, table_of

FOUND = ("remembered", "suspected")
"""Verdicts on a group that `--fail-on` names."""
TONES: dict[str, Tone] = {"remembered": "bad", "suspected": "open", "inconclusive": "open"}
EFFECT = (
    "effect: how much more used the group's scores look than those it is compared with, in standard deviations of a "
    "record."
)
SHARE = "share left: 0% is like models that never used the group, 100% like models that used it whole."
MORE_THAN_ALL = "Above 100%: by chance, or the group looks more used than by models that used it whole."
LESS_THAN_NONE = "Below 0%: by chance, or over-forgotten: the group looks less used than by models that never used it."
NO_SHARE = "unknown: on this group, models that used it differ from models that did not by no more than chance."
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
        if (grouping := target.grouping) is not None:
            verdicts = {group.verdict for group in target.groups}
            about = f"By group, {kind_of(target, sets)} {visible(target.name)}"
            conditions = tuple(f"group-{verdict}" for verdict in FOUND if verdict in verdicts)
            notes = *_columns(target.groups), NUMBERED, grouping.adjustment
            findings.append(Beside(about, grouping.finding, conditions, _table(about, target.groups), notes))
    return tuple(findings)


def _table(title: str, groups: Sequence[GroupResult]) -> PageTable:
    """Groups in 80 characters."""
    columns: dict[str, Column] = {
        "no.": ("name", str),
        "first\nrecord": ("first", str),
        "p (not\nused)": ("p_never", p_column),
        "adjusted\n(Holm)": ("p_adjusted", p_column),
        "adjusted\n(BH)": ("p_adjusted_bh", p_column),
        "effect": lambda group: number_text(group.effect, 1),
    }
    if any(group.share is not None for group in groups):
        columns["share\nleft"] = ("share", _percent)
    columns["verdict"] = ("verdict", str)
    return table_of(title, groups, columns, ("verdict",), tones=TONES)


def _columns(groups: Sequence[GroupResult]) -> tuple[str, ...]:
    """How to read the columns of these groups, as far as they have something that needs it."""
    shares = [round(100 * group.share) for group in groups if group.share is not None]
    return (
        *([EFFECT] if any(group.effect is not None for group in groups) else ()),
        *([SHARE] if shares else ()),
        *([MORE_THAN_ALL] if max(shares, default=0) > 100 else ()),
        *([LESS_THAN_NONE] if min(shares, default=0) < 0 else ()),
        *([NO_SHARE] if shares and len(shares) < len(groups) else ()),
    )


def _percent(share: float | None) -> str:
    return "unknown" if share is None else percent_text(share, 0)

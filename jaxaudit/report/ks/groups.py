"""What the terminal and the page show of groups of the query set: a table of the strongest, and a chart."""

from collections.abc import Sequence

import numpy as np

from jaxaudit.audits.finding import Tone
from jaxaudit.audits.ks.result import Grouping, GroupResult, TargetResult
from jaxaudit.audits.ks.tests_of_use.test import percent_text
from jaxaudit.errors import visible
from jaxaudit.plots import ks as plot
from jaxaudit.plots.style import chart, row_height
from jaxaudit.report.ks.tables import kind_of, p_column
from jaxaudit.report.numbers import ComparedSets, count_text, level_text, precise
from jaxaudit.report.page import Beside, Column, PageTable, Picture, Where, table_of

FOUND = ("remembered", "suspected")
"""Verdicts on a group that `--fail-on` names."""
SHOWN, DRAWN = 10, 25
"""How many groups a terminal shows without `--details`, and a chart draws."""
TONES: dict[str, Tone] = {"remembered": "bad", "suspected": "open", "inconclusive": "open"}
EFFECT = (
    "effect: how much more used the group's scores look than those it is compared with, in standard deviations of a "
    "record."
)
SHARE = "share left: 0% is like models that never used the group, 100% like models that used it whole."
MORE_THAN_ALL = "Above 100%: by chance, or the group looks more used than by models that used it whole."
LESS_THAN_NONE = "Below 0%: by chance, or over-forgotten: the group looks less used than by models that never used it."
NO_SHARE = "unknown: on this group, models that used it differ from models that did not by no more than chance."
READ = (
    "Effect of a group: how much more used its scores look than those that it is compared with, in standard deviations "
    "of a record. The interval of a share is that of one group alone, and is not adjusted for their number."
)
NUMBERED = (
    "Groups are numbered from 1, in the order in which they first occur among query set, holdout and members. These "
    "numbers (no.) are not your ids. Whose records a group has: look up the column group at {place}; of files that "
    "`jaxaudit deal` wrote, groups.csv beside them says which of your records that number stands for."
)
BAR = (
    "The bar is where 95% of groups lie that were not used. So 1 of 20 unused groups lies beyond its bar, and a group "
    "beyond it may be `not found`: the verdict is by the adjusted p-value."
)
PLACES = {
    "line": "the line of its first query record in the file, counted from 1 with a header",
    "record": "its first query record, counted from 1 without a header",
}
"""What the place of a group's first query record counts, by `Grouping.first_is`."""


def group_tables(targets: Sequence[TargetResult]) -> tuple[PageTable, ...]:
    """For a terminal, the strongest groups of each target, and with `--details` the others."""
    tables = []
    for target in targets:
        if target.grouping is not None:
            left = len(target.groups) - SHOWN
            about = f"{visible(target.name)}, by group: {visible(target.grouping.finding.sentence)}"
            rest = f" The {SHOWN} smallest p-values; {left:,} more are among the details." if left > 0 else ""
            tables += [
                _short_table(about + rest, target.groups[:SHOWN], target.grouping, "terminal"),
                _short_table(
                    f"{visible(target.name)}: the other groups", target.groups[SHOWN:], target.grouping, "details"
                ),
            ]
    return tuple(tables)


def _short_table(title: str, groups: Sequence[GroupResult], grouping: Grouping, on: Where) -> PageTable:
    """Groups in 80 characters."""
    columns: dict[str, Column] = {
        "no.": ("name", str),
        f"first\n{grouping.first_is}": ("first", str),
        "p (not\nused)": ("p_never", p_column),
        "adjusted\n(Holm)": ("p_adjusted", p_column),
        "adjusted\n(BH)": ("p_adjusted_bh", p_column),
        "effect": lambda group: _shown(group.effect, 1),
    }
    if any(group.share is not None for group in groups):
        columns["share\nleft"] = ("share", _percent)
    columns["verdict"] = ("verdict", str)
    return table_of(title, groups, columns, ("verdict",), tones=TONES, on=on)


def groups_beside(targets: Sequence[TargetResult], sets: ComparedSets) -> tuple[Beside, ...]:
    """The finding on the groups of each target, with the strongest ones, and how p-values are adjusted."""
    findings = []
    for target in targets:
        if (grouping := target.grouping) is not None:
            verdicts = {group.verdict for group in target.groups}
            shown = target.groups[:DRAWN]
            left = len(target.groups) - len(shown)
            model = f"{kind_of(target, sets)} {visible(target.name)}"
            rest = f": the {DRAWN} smallest p-values of {len(target.groups):,}" if left else ""
            table = _short_table(f"Groups of the query set, {model}{rest}", shown, grouping, "page")
            conditions = tuple(f"group-{verdict}" for verdict in FOUND if verdict in verdicts)
            notes = *_columns(shown), _numbered(grouping), grouping.adjustment
            findings.append(Beside(f"By group, {model}", grouping.finding, conditions, table, notes))
    return tuple(findings)


def group_legend(targets: Sequence[TargetResult]) -> tuple[str, ...]:
    """What must be known to read the tables of groups; `group_details` has the rest."""
    groupings = [target.grouping for target in targets if target.grouping is not None]
    lines = [line for grouping in groupings for line in _first_lines(grouping)]
    shown = [group for target in targets if target.grouping is not None for group in target.groups[:SHOWN]]
    return tuple(f"By group: {line}" for line in dict.fromkeys([*_columns(shown), *lines]))


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


def _first_lines(grouping: Grouping) -> tuple[str, ...]:
    return (_numbered(grouping), grouping.adjustment, *grouping.finding.caveats[:-1])


def _numbered(grouping: Grouping) -> str:
    return NUMBERED.format(place=PLACES[grouping.first_is])


def group_details(targets: Sequence[TargetResult]) -> tuple[str, ...]:
    """How to read all numbers of groups, what they rest on, and what they assume."""
    groupings = [target.grouping for target in targets if target.grouping is not None]
    lines = [READ] if groupings else []
    every = _columns([group for target in targets for group in target.groups])
    lines += [line for line in (f"By group: {line}" for line in every) if line not in group_legend(targets)]
    for grouping in groupings:
        lines += [f"By group: {line}" for line in (grouping.finding.confidence.why, *grouping.finding.caveats[-1:])]
    return tuple(dict.fromkeys(lines))


def group_pictures(targets: Sequence[TargetResult], level: float) -> tuple[Picture, ...]:
    """A chart for each target: the groups with the smallest p-values."""
    return tuple(_picture(place, target, level) for place, target in enumerate(targets) if target.grouping is not None)


def _picture(place: int, target: TargetResult, level: float) -> Picture:
    grouping = target.grouping
    assert grouping is not None
    drawn, finding = target.groups[:DRAWN], grouping.finding
    marks = []
    for group in drawn:
        effect, low, high = np.array((group.effect, group.low, group.high), float).tolist()
        marks.append(plot.GroupMark(f"no. {group.name}", effect, low, high, group.verdict))
    columns: dict[str, Column] = {
        "no.": lambda group: f"{group.name} ({grouping.first_is} {group.first})",
        "verdict": ("verdict", str),
        "compared with": ("basis", str),
        "records": ("records", count_text),
        "in the holdout": ("holdout_records", count_text),
        "p (not used)": ("p_never", precise),
        "adjusted (Holm)": ("p_adjusted", precise),
        "adjusted (Benjamini-Hochberg)": ("p_adjusted_bh", precise),
        "effect": lambda group: _shown(group.effect, 3),
        "without use": lambda group: _between(group.low, group.high, 3),
        f"share left ({level_text(level)})": _share,
    }
    seen = "; ".join(
        f"no. {group.name}: {_shown(group.effect, 2)}, without use {_between(group.low, group.high, 2)}, "
        f"{group.verdict}"
        for group in drawn
    )
    more = (
        f" Of {len(target.groups):,} groups, the {DRAWN} with the smallest p-values."
        if len(marks) < len(target.groups)
        else ""
    )
    return Picture(
        f"groups-{place}",
        f"By group: {visible(target.name)}",
        f"{seen}.",
        f"{visible(finding.sentence)} {_numbered(grouping)} {READ} {BAR}{more} "
        + " ".join(map(visible, (grouping.adjustment, *finding.caveats))),
        chart(lambda axes: plot.draw_groups(axes, marks), row_height(len(marks)) + 0.3),
        table_of(
            f"Groups of the query set, {visible(target.name)}",
            target.groups,
            columns,
            ("no.", "verdict", "compared with"),
            tones=TONES,
        ),
    )


def _shown(value: float | None, digits: int) -> str:
    return "none" if value is None else f"{value:.{digits}f}"


def _between(low: float | None, high: float | None, digits: int) -> str:
    return "unknown" if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}"


def _share(group: GroupResult) -> str:
    if group.share is None:
        return "unknown"
    return f"{_percent(group.share)} ({_percent(group.share_low)} to {_percent(group.share_high)})"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else percent_text(share, 0)

"""`ks --by group` on a terminal and on a page: the strongest groups, the rest with details, and nobody's name."""

import re
from io import StringIO

import msgspec
import numpy as np
import pytest
from rich.console import Console
from support.html_pages import Parsed
from support.saved_runs.groups import GROUPS, USED, groups_run

from jaxaudit.audits.ks.result import KSResult, check_ks_result
from jaxaudit.plots import ks as plot
from jaxaudit.plots.style import canvas
from jaxaudit.report.build import part_of
from jaxaudit.report.html.render import report_html
from jaxaudit.report.ks.groups import DRAWN, EFFECT, LESS_THAN_NONE, MORE_THAN_ALL, NO_SHARE, SHARE, SHOWN
from jaxaudit.report.markdown import as_markdown
from jaxaudit.report.record import Run
from jaxaudit.report.terminal import as_terminal


def _shown(run: Run[KSResult], hint: str = "") -> str:
    out = StringIO()
    Console(file=out, width=80).print(as_terminal(part_of(run), hint))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _rows(text: str) -> list[list[str]]:
    """Lines of the tables of groups: a group, its first row, p-values."""
    return [line.split() for line in text.splitlines() if re.match(r"\s*\d+ +\d+ +[<.1]", line)]


def test_a_terminal_has_the_strongest_groups_and_counts_the_rest() -> None:
    text = _shown(groups_run(), hint="--details has more.")
    rows = _rows(text)
    assert len(rows) == SHOWN
    assert {row[0] for row in rows if row[-1] == "remembered"} == {str(number) for number in range(1, USED + 1)}
    assert f"{USED} of {GROUPS} groups are still remembered" in " ".join(text.split())
    assert f"{GROUPS - SHOWN} more are among the details" in " ".join(text.split())
    assert "numbers (no.) are not your ids" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_details_have_every_group_once() -> None:
    rows = _rows(_shown(groups_run()))
    assert sorted(int(row[0]) for row in rows) == list(range(1, GROUPS + 1))


def test_few_groups_are_all_shown() -> None:
    text = _shown(groups_run(groups=6), hint="--details has more.")
    assert len(_rows(text)) == 6
    assert "smallest p-values" not in text


LEGENDS = {"effect": EFFECT, "share": SHARE, "above": MORE_THAN_ALL, "below": LESS_THAN_NONE, "unknown": NO_SHARE}


def _with_shares(*shares: float | None) -> Run[KSResult]:
    """A run whose first groups have these shares, and the others none."""
    run = groups_run(groups=6)
    (target,) = run.result.targets
    rest: list[float | None] = [None] * (len(target.groups) - len(shares))
    groups = tuple(
        msgspec.structs.replace(group, share=share, share_low=share, share_high=share)
        for group, share in zip(target.groups, [*shares, *rest], strict=True)
    )
    result = msgspec.structs.replace(run.result, targets=(msgspec.structs.replace(target, groups=groups),))
    return Run(run.name, run.kind, result, run.arrays)


@pytest.mark.parametrize(
    ("shares", "shown"),
    [
        ((), {"effect"}),
        ((0.5,) * 6, {"effect", "share"}),
        ((1.97,) * 6, {"effect", "share", "above"}),
        ((-0.2, 0.3), {"effect", "share", "below", "unknown"}),
    ],
)
def test_a_column_or_word_that_needs_it_has_a_legend_and_no_other(shares: tuple[float, ...], shown: set[str]) -> None:
    run = _with_shares(*shares)
    text = _shown(run, hint="--details has more.")
    words = " ".join(text.split())
    markdown = as_markdown(part_of(run)).replace("\\", "")
    for word, legend in LEGENDS.items():
        is_due = word in shown
        assert (f"By group: {legend}" in words, legend in markdown) == (is_due, is_due)
    assert max(map(len, text.splitlines())) <= 80


def test_a_title_of_a_table_in_markdown_is_short() -> None:
    """How to read the table stands below, once for all targets."""
    markdown = as_markdown(part_of(groups_run()))
    titles = re.findall(r"^\*\*(.*)\*\*$", markdown, re.MULTILINE)
    assert any(title.startswith("Groups of the query set, ") for title in titles)
    assert max(map(len, titles)) <= 90
    assert markdown.count("These numbers (no.) are not your ids") == 1


def test_a_page_has_a_chart_with_every_number_and_says_what_they_mean() -> None:
    html = report_html([groups_run()])
    text = " ".join(Parsed(html).text.split())
    for words in ("Holm", "Benjamini and Hochberg", "is not shown to be forgotten", f"the {DRAWN} with the smallest"):
        assert words in text
    for words in ("numbers (no.) are not your ids", "counted from 1 without a header", "beyond it may be `not found`"):
        assert words in text
    assert html.count(" (record ") == GROUPS
    assert "scores.csv 1" not in html


def test_groups_and_their_finding_come_together() -> None:
    run = groups_run(groups=6)
    target = msgspec.structs.replace(run.result.targets[0], grouping=None)
    with pytest.raises(ValueError, match="groups have no finding"):
        check_ks_result(msgspec.structs.replace(run.result, targets=(target,)), {})


def test_effects_are_drawn_where_they_are_and_unknown_ones_nowhere() -> None:
    _, axes = canvas()
    rows = [
        plot.GroupMark("group 3", 1.5, -0.5, 0.5, "remembered"),
        plot.GroupMark("group 0", 0.1, np.nan, np.nan, "not found"),
    ]
    plot.draw_groups(axes, rows)
    drawn = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    assert drawn[:2] == [[-0.5, 0.5], [1.5]]
    assert np.isnan(drawn[2]).all()
    assert drawn[3] == [0.1]
    assert [str(line.get_label()) for line in axes.lines[:4] if not str(line.get_label()).startswith("_")] == [
        "without use (95%)",
        "remembered",
        "neither",
    ]

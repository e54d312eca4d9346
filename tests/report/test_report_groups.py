"""`ks --by group` on a terminal and on a page: the strongest groups, the rest with details, and nobody's name."""

import re

import msgspec
import pytest
from support.saved_runs.groups import GROUPS, USED, groups_run
from support.terminals import shown

from jaxaudit.audits.ks.result import check_ks_result
from jaxaudit.report import report_html
from jaxaudit.report.terminal import ROWS


def _rows(text: str) -> list[list[str]]:
    """Lines of the tables of groups: a group, its first row, p-values."""
    return [line.split() for line in text.splitlines() if re.match(r"\s*\d+ +\d+ +[<.1]", line)]


def test_a_terminal_has_the_strongest_groups_and_counts_the_rest() -> None:
    text = shown(groups_run(), width=80, hint="--details has more.")
    rows = _rows(text)
    assert len(rows) == ROWS
    assert {row[0] for row in rows if row[-1] == "remembered"} == {str(number) for number in range(1, USED + 1)}
    assert f"{USED} of {GROUPS} groups are still remembered" in " ".join(text.split())
    assert f"The first {ROWS} of {GROUPS} are shown" in " ".join(text.split())
    assert "numbers (no.) are not your ids" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_details_and_few_groups_have_every_group_once() -> None:
    few = shown(groups_run(groups=6), width=80, hint="--details has more.")
    for text, groups in ((shown(groups_run()), GROUPS), (few, 6)):
        assert sorted(int(row[0]) for row in _rows(text)) == list(range(1, groups + 1))


def test_a_page_has_every_group_and_nobodys_name() -> None:
    html = report_html(groups_run())
    assert html.count("<td>remembered</td>") == USED
    assert html.count("<td>not found</td>") == GROUPS - USED
    assert "scores.csv 1" not in html


def test_groups_and_their_finding_come_together() -> None:
    run = groups_run(groups=6)
    target = msgspec.structs.replace(run.result.targets[0], grouping=None)
    with pytest.raises(ValueError, match="groups have no finding"):
        check_ks_result(msgspec.structs.replace(run.result, targets=(target,)), {})

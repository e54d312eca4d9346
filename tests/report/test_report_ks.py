"""The `ks` answer as JSON, on a terminal and on a page: by rho, by tests of use, of groups, in the user's own words."""

import json
import re
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from support.html_pages import Parsed
from support.saved_runs import as_json
from support.saved_runs.groups import GROUPS, groups_run
from support.saved_runs.groups import USED as REMEMBERED
from support.saved_runs.ks import UNSURE, UNUSED, USED, audit_of, check, judged, ks_run, rho_between, without_rho
from support.terminals import said, shown

from jaxaudit import TargetResult
from jaxaudit.audits import KSResult, Rates
from jaxaudit.errors import visible
from jaxaudit.json_types import from_builtins
from jaxaudit.metrics import Usage
from jaxaudit.metrics.checks import DISTANCES_APART
from jaxaudit.report import Run, part_of, report_html, run_kind

APART, CONTROL = rho_between(1.125, 1.375), rho_between(0.25, 0.75)
LEFT = replace(UNUSED, question="left")

pytestmark = pytest.mark.usefixtures("no_charts")


def run(*targets: TargetResult, **more: Any) -> Run[KSResult]:
    return ks_run(audit=audit_of(*targets, **more))


def rows(made: Run[KSResult]) -> list[list[str]]:
    return [line.split() for line in shown(made).splitlines()]


def page(made: Run[KSResult]) -> str:
    return Parsed(report_html(made)).text


def test_names_cannot_speak_to_the_terminal():
    name = "[red]x[/red] :smile: [/] \x1b[31m\x07\nnext\r\u202egpj.exe"
    hostile = judged(name, APART, checks=(check(DISTANCES_APART, False, message=f"the rarest is {name}"),))
    # In the answer and in the failed check; the table folds it.
    assert shown(ks_run(name, audit_of(hostile)), width=600).count(visible(name)) == 2
    assert visible("Größe 日本 é.csv") == "Größe 日本 é.csv"
    assert visible("a\x9b\x7f\u2028\udc80") == r"a\x9b\x7f\u2028\udc80"


def test_tests_of_use_give_the_numbers_of_a_page():
    text = page(run(judged(usage=(USED, UNSURE))))
    for words in (
        *("estimated used fraction 92% 70% to 100% (95% interval)", "holdout test not forgotten <.001"),
        *("shadow test inconclusive .30 none unknown - none", "outputs.csv not forgotten 0.50 0.40-0.60"),
    ):
        assert words in text
    assert "At most 4.3% of it was used (95% upper limit)" in page(run(judged(usage=(UNUSED,))))


def test_what_is_left_is_not_called_used():
    """Of a test that asks so: columns, legend and page; a run of both has both names."""
    left, used = (judged(usage=(usage,), with_rho=False) for usage in (LEFT, UNUSED))
    made, other = run(left), run(used)
    assert as_json(made)["targets"][0]["tests"][0]["details"]["question"] == "left"
    lines = shown(made).splitlines()
    assert any(line.split()[:6] == ["p", "(none", "p", "(all", "left", "at"] for line in lines)
    assert "fraction left" in page(made)
    assert "left (95%)" in page(made)
    assert not re.search("(?i)p unused|p all used|estimated used fraction", page(made))
    assert "fraction left" not in page(other)
    assert "used/left (95%)" in page(run(left, used))


def test_without_rho_there_is_no_trace_of_it():
    made = ks_run(audit=without_rho())
    assert as_json(made)["noise_floor"] is None
    for text in (said(made), page(made)):
        assert not re.search(r"\brho\b|paper's rule|oise floor|query models?\b|positive control|replicate", text)
    assert "Ratio rho. Noise floor: query models of different seeds are 0.020 apart" in page(run(judged()))


@pytest.mark.parametrize(
    "usage",
    [
        replace(UNUSED, fraction=1.0, fraction_high=1.0, p_fully=0.031),
        replace(USED, fraction=0.0, fraction_low=0.0, fraction_high=0.1),
        UNSURE,
    ],
)
def test_a_fraction_that_is_unknown_is_no_number_anywhere(usage: Usage):
    made = run(judged("a.csv", usage=(usage,)))
    (only,) = as_json(made)["targets"]
    details = only["tests"][0]["details"]
    assert [details[f"fraction{end}"] for end in ("", "_low", "_high")] == [
        *(None, usage.fraction_low, usage.fraction_high)
    ]
    assert "unknown: how much the target remembers" in said(made)
    assert "estimated used fraction unknown" in page(made)
    for text in (said(made), page(made), json.dumps(only["finding"])):
        assert np.isnan(usage.fraction) or f"{100 * usage.fraction:.0f}% (" not in text
        assert "Estimated used fraction:" not in text


def test_a_p_value_adjusted_for_several_targets_stands_beside_it():
    two = (replace(USED, p_never=0.04, p_never_adjusted=0.08), replace(UNUSED, p_never_adjusted=0.6))
    made = run(*(judged(name, usage=(each,)) for name, each in zip(("a.csv", "b.csv"), two, strict=True)))
    table = [row for row in rows(made) if row and row[0] in ("a.csv", "b.csv")]
    assert [row[-1] for row in table[:2]] == [".080", ".60"]
    assert "adjusted for 2 models (Holm)" in said(made)
    (use,) = (each for each in part_of(made).tables if each.title == "Use of the query set")
    assert [row[3] for row in use.rows] == [".080", ".60"]
    assert [each["tests"][0]["details"]["p_never_adjusted"] for each in as_json(made)["targets"]] == [0.08, 0.6]
    assert "(Holm)" not in said(run(judged(usage=(USED,))))


def test_error_rates_stand_on_terminal_and_page():
    rates = (Rates("holdout", 0.0, 350, 40, 2, 10, 28), Rates("holdout", 1.0, 350, 40, 38, 0, 2))
    made = run(judged(usage=(UNUSED,)), rates=rates)
    for text in (said(made), page(made)):
        for share in ("5% (1-17)", "25% (13-41)", "70% (53-83)", "95% (83-99)", "0% (0-9)"):
            assert share in text


def rows_of_groups(text: str) -> list[list[str]]:
    """Lines of the tables of groups: a group, its first row, p-values."""
    return [line.split() for line in text.splitlines() if re.match(r"\s*\d+ +\d+ +[<.1]", line)]


def test_a_terminal_has_the_strongest_groups_and_counts_the_rest() -> None:
    text = shown(groups_run(), width=80, hint="--details has more.")
    rows = rows_of_groups(text)
    assert len(rows) == 10
    assert {row[0] for row in rows if row[-1] == "remembered"} == {str(number) for number in range(1, REMEMBERED + 1)}
    assert f"{REMEMBERED} of {GROUPS} groups are still remembered" in " ".join(text.split())
    assert f"The first 10 of {GROUPS} are shown" in " ".join(text.split())
    assert "numbers (no.) are not your ids" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_details_and_few_groups_have_every_group_once() -> None:
    few = shown(groups_run(groups=6), width=80, hint="--details has more.")
    for text, groups in ((shown(groups_run()), GROUPS), (few, 6)):
        assert sorted(int(row[0]) for row in rows_of_groups(text)) == list(range(1, groups + 1))


def test_a_page_has_every_group_and_nobodys_name() -> None:
    html = report_html(groups_run())
    assert html.count("<td>remembered</td>") == REMEMBERED
    assert html.count("<td>not found</td>") == GROUPS - REMEMBERED
    assert "scores.csv 1" not in html


def test_a_finding_on_groups_without_groups_is_refused() -> None:
    value = as_json(groups_run(groups=6))
    value["targets"][0]["grouping"]["groups"].clear()
    with pytest.raises(msgspec.ValidationError, match="length >= 1"):
        from_builtins(run_kind("ks").record, value)

"""The `ks` answer as JSON, on a terminal and on a page: by rho, by tests of use, by EMA."""

import json
import re
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.html_pages import Parsed
from support.saved_runs import as_json
from support.saved_runs.ks import UNSURE, UNUSED, USED, audit_of, check, ema, judged, ks_run, rho_between, without_rho
from support.terminals import said, shown

from jaxaudit.audits.ks.evidence import Truth
from jaxaudit.audits.ks.result import KSAudit, Rates, Resembles, TargetResult
from jaxaudit.errors import visible
from jaxaudit.metrics.before_after import Change
from jaxaudit.metrics.checks import DISTANCES_APART, HOLDOUT_LIKE_QUERY, POSITIVE_CONTROL
from jaxaudit.metrics.usage import Usage
from jaxaudit.report.build import build, part_of
from jaxaudit.report.card import as_card
from jaxaudit.report.html.render import report_html
from jaxaudit.report.ks.record import KSRecord
from jaxaudit.report.markdown import as_markdown
from jaxaudit.report.numbers import precise
from jaxaudit.report.run import Run
from jaxaudit.report.terminal import as_terminal

APART, CONTROL = rho_between(1.125, 1.375), rho_between(0.25, 0.75)
FINE, FAILED = check("query size"), check(DISTANCES_APART, False, message="seeds matter too much")
WARNING = check("tied confidences", False, False, "many are 1")
FLAGGED = ema(0.02)
LEFT = UNUSED._replace(question="left")

pytestmark = pytest.mark.usefixtures("no_charts")


def run(*targets: TargetResult, **more: Any) -> Run[KSRecord]:
    return ks_run(audit=audit_of(*targets, **more))


def rows(made: Run[KSRecord]) -> list[list[str]]:
    return [line.split() for line in shown(made).splitlines()]


def page(*runs: Run[KSRecord]) -> str:
    return Parsed(report_html(runs)).text


# By rho.


def test_a_row_of_rho():
    made = run(judged(rho=APART, checks=(FINE,)))
    assert ["outputs.csv", "forgotten", "1.25", "1.12-1.38", "forgotten"] in rows(made)
    assert "used" not in shown(made).split("Noise floor")[0]
    assert "checks passed: query size" in shown(made)
    assert "0.020 apart (at most 0.060)" in said(made)
    nothing = judged(rho=rho_between(np.nan, np.nan, np.nan))
    assert ["outputs.csv", "inconclusive", "none", "none"] in [line[:4] for line in rows(run(nothing))]
    assert "Noise floor" not in shown(run(nothing, floor=()))


@pytest.mark.parametrize(
    ("level", "heading"), [(0.95, "95%"), (0.995, "99.5%"), (0.5, "50%"), (0.9999999, "99.99999%")]
)
def test_the_interval_says_its_level(level: float, heading: str):
    audit = audit_of(judged(rho=APART))
    made = ks_run(audit=KSAudit(**{**vars(audit), "level": level}))
    assert [heading] in [line[-1:] for line in rows(made)]
    assert f"({heading} interval)" in page(made)


def test_truth_where_it_is_known():
    shares = (1.0, 0.5, 0.001, 0.0)
    known = [judged(f"t{share}", APART, truth=Truth(share, 10, "forgotten")) for share in shares]
    found = [line for line in rows(run(*known, judged("file", APART))) if line[-1:] == ["forgotten"]]
    cells = [" ".join(line[:-4]) for line in found]
    assert cells == ["t1.0 100%", "t0.5 50%", "t0.001 under 1%", "t0.0 none", "file unknown"]
    assert "target trained on" in shown(run(*known))
    assert "forgotten: it used 50% of the query set" in page(run(*known))


def test_failed_checks_say_whose_they_are_and_are_said_once():
    bad = judged("a", APART, checks=(FINE, FAILED, WARNING))
    made = run(bad, judged("b", APART, checks=(FINE, FAILED)))
    text = said(made)
    assert f"FAILED {DISTANCES_APART}: seeds matter too much" in text
    assert "warning tied confidences (a): many are 1" in text
    assert "checks passed: query size" in text
    assert text.count(f"FAILED {DISTANCES_APART}") == 1
    assert f"failed {DISTANCES_APART} seeds matter too much" in page(made)
    assert "warning tied confidences (a) many are 1" in page(made)
    mixed = said(run(judged("a", APART, checks=(FAILED,)), judged("c", APART)))
    assert f"FAILED {DISTANCES_APART} (a): seeds" in mixed


def test_of_a_check_that_no_verdict_rests_on_the_first_outcome_stands_for_all():
    controls = [check(POSITIVE_CONTROL, False, message=f"a control has rho 1.2{place}") for place in range(2)]
    made = run(*(judged(f"{place}.csv", usage=(USED,), checks=(each,)) for place, each in enumerate(controls)))
    for text in (said(made), page(made)):
        assert f"warning {POSITIVE_CONTROL} (affects rho only)" in text
        assert "rho 1.20" in text
        assert "rho 1.21" not in text


HOSTILE = "[red]x[/red] :smile: [/] \x1b[31m\x07\nnext\r\u202egpj.exe"


def test_names_cannot_speak_to_the_terminal():
    hostile = judged(HOSTILE, APART, checks=(check(DISTANCES_APART, False, message=f"the rarest is {HOSTILE}"),))
    made = ks_run(HOSTILE, audit_of(hostile))
    text = shown(made, width=600)
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    # In the answer and in the failed check; the table folds it.
    assert text.count(visible(HOSTILE)) == 2
    coloured = StringIO()
    Console(width=300, force_terminal=True, file=coloured).print(as_terminal(part_of(made)))
    assert "\x1b[31m\x07" not in coloured.getvalue()
    assert visible("Größe 日本 é.csv") == "Größe 日本 é.csv"
    assert visible("a\x9b\x7f\u2028\udc80") == r"a\x9b\x7f\u2028\udc80"


def test_a_page_names_its_run_and_a_reference_of_its_own():
    made = replace(ks_run(), name="A name")
    assert "reference" not in page(made).lower()
    made.result.provenance.data["reference"] = {"name": "kept\x1b.npz", "records": 1234}
    several = page(made, made)
    assert r"a share of the reference, kept\x1b.npz (1,234 records)" in several
    assert "A name" in several


def test_json_has_null_for_what_json_cannot_hold():
    empty = check(POSITIVE_CONTROL, False)._replace(value=float("nan"), threshold=float("inf"))
    value = as_json(run(judged(rho=rho_between(np.nan, np.nan, np.inf), checks=(empty,)), floor=()))
    (only,) = value["targets"]
    assert only["rho"] == {"median": None, "low": None, "high": None, "values": [None, None]}
    assert only["checks"][0]["value"] is only["checks"][0]["threshold"] is None
    assert value["noise_floor"] == {"median": None, "max": None, "values": []}


def test_numbers_in_json():
    value = as_json(run(judged(rho=APART, controls=(CONTROL,))))
    (only,) = value["targets"]
    assert value["schema"] == "jaxaudit.ks/2"
    assert value["level"] == 0.95
    assert value["noise_floor"] == {"median": 0.02, "max": 0.06, "values": [0.01, 0.02, 0.06]}
    assert only["ks"] == {"target": [1.25, 1.25], "calibration": [1.0, 1.0]}
    assert only["rho"] == {"median": 1.25, "low": 1.125, "high": 1.375, "values": [1.25, 1.25]}
    assert only["controls"] == [{"median": 0.5, "low": 0.25, "high": 0.75, "values": [0.5, 0.5]}]
    assert only["truth"] is None
    assert (only["method"], only["verdict"], only["rho_verdict"]) == ("rho", "forgotten", "forgotten")
    assert only["because"] == "; ".join(only["finding"]["reasons"])
    assert [test["name"] for test in only["tests"]] == ["rho"]
    assert only["tests"][0]["finding"] == only["finding"]


# By tests of use and EMA.


def test_a_row_a_target_and_further_tests_below():
    found = rows(run(judged("a.csv", usage=(USED,)), judged("b.csv", usage=(UNUSED,))))
    assert ["a.csv", "not", "forgotten", "<.001", ".40", "92%", "(70-100)", "98%", "10%", "0.50"] in found
    assert ["b.csv", "forgotten", ".60", ".025", "0%", "(0-5)", "4.3%", "3.1%", "0.50"] in found
    # Fractions that are known need no word on others.
    assert not any("unknown" in row for row in found)
    found = rows(run(judged("a.csv", usage=(USED, UNSURE), emas=(FLAGGED,))))
    assert ["by", "the", "shadow", "test", "inconclusive", ".30", "none", "unknown", "-", "none"] in found
    assert ["by", "EMA", "inconclusive", ".020", "75%", "flagged"] in found
    assert ["by", "rho", "not", "forgotten"] in found
    target = judged("printed-digits + 50% of digits", usage=(USED,), truth=Truth(0.5, 10, "not forgotten"))
    # A target's name has room for more than a word.
    assert any(line.startswith("printed-digits +") for line in shown(run(target), width=80).splitlines())


def test_what_is_left_is_not_called_used():
    """Of a test that asks so: columns, legend, page, chart and card; a run of both has both names."""
    left, used = (replace(without_rho(), targets=(judged(usage=(usage,), with_rho=False),)) for usage in (LEFT, UNUSED))
    made, other = ks_run(audit=left), ks_run(audit=used)
    assert as_json(made)["targets"][0]["usage"][0]["question"] == "left"
    lines = shown(made).splitlines()
    assert any(line.split()[:8] == ["p", "none", "p", "all", "left", "at", "min."] for line in lines)
    for text in (page(made), as_card([part_of(made)])):
        assert "fraction left" in text
        assert not re.search("(?i)p unused|p all used|estimated used fraction", text)
        assert "fraction left" not in page(other)
    both = ks_run(audit=replace(left, targets=(*left.targets, *used.targets)))
    assert "used fraction or fraction left" in page(both)


def test_without_rho_there_is_no_trace_of_it():
    made = ks_run(audit=without_rho())
    value = as_json(made)
    assert value["noise_floor"] is None
    for target in value["targets"]:
        assert {target[name] for name in ("rho", "ks", "controls", "paper_rule", "rho_verdict")} == {None}
        assert [test["name"] for test in target["tests"]] == ["holdout", "shadow"]
    several, alone = page(made, made), page(made)
    for text in (said(made), alone, several, as_markdown(part_of(made))):
        assert not re.search(r"\brho\b|paper's rule|oise floor|query models?\b|positive control|replicate", text)
    assert [picture.name for picture in part_of(made).pictures()] == ["used"]
    # Beside a run that has it, each is shown with what it has, and there is nothing to compare.
    both = page(made, run(judged()))
    assert "Noise floor" not in alone
    assert "rho against 1" in both
    assert "compared-rho" not in [picture.name for picture in build([made, run(judged())]).pictures]


def test_tests_of_use_and_ema_give_the_numbers():
    text = page(run(judged(usage=(USED, UNSURE), emas=(ema(0.2, 0.25),))))
    for words in (
        "estimated used fraction 92% 70% to 100% (95% interval)",
        "p(unused), holdout test 0.0005",
        "Minimum detectable fraction, holdout test 10%",
        "Minimum detectable fraction, shadow test none",
        "By the shadow test inconclusive",
        "By rho not forgotten",
        "Estimated used fraction of the query set",
        "outputs.csv (holdout): 0.92, 0.7 to 1, upper limit 0.98, minimum detectable 0.1",
        "outputs.csv (shadow): unknown, minimum detectable none",
        "25% flagged",
    ):
        assert words in text
    assert "query records that look like training records 25%" in page(run(judged(emas=(ema(0.2, 0.25),))))


def test_what_the_verdict_rests_on_is_drawn():
    drawn = {
        each.name: each.draw().axes[0] for each in part_of(run(judged(rho=APART, usage=(USED, UNSURE)))).pictures()
    }
    names = {label.get_text() for label in drawn["used"].get_yticklabels()}
    assert {"outputs.csv (holdout)", "outputs.csv (shadow)"} <= names
    assert {"remembered", "forgotten"} <= {text.get_text() for text in drawn["rho"].texts}


def test_forgotten_is_said_with_its_upper_limit():
    made = run(judged(usage=(UNUSED,)))
    assert "At most 4.3% of it was used (95% upper limit)" in page(made)
    assert "Used fraction, upper limit, holdout test 4.3%" in page(made)
    assert page(made, made).count("forgotten (at most 4.3%)") == 2


@pytest.mark.parametrize(
    "usage",
    [
        UNUSED._replace(fraction_high=1.0, p_fully=0.3),
        UNUSED._replace(fraction=1.0, fraction_high=1.0, p_fully=0.031),
        USED._replace(fraction=1.0, p_fully=0.031),
        USED._replace(fraction=0.0, fraction_low=0.0, fraction_high=0.1),
        UNSURE,
    ],
)
def test_a_fraction_that_is_unknown_is_no_number_anywhere(usage: Usage):
    made = run(judged("a.csv", usage=(usage,)))
    text, seen = said(made), page(made)
    (only,) = as_json(made)["targets"]
    assert only["usage"][0]["fraction"] is None
    assert (only["usage"][0]["fraction_low"], only["usage"][0]["fraction_high"]) == (
        usage.fraction_low,
        usage.fraction_high,
    )
    (row,) = (line for line in shown(made).splitlines() if line.startswith("a.csv") and "unknown" in line)
    assert "%" not in row.replace("3.1%", "").replace("10%", "")
    assert "unknown: how much the target remembers" in text
    assert "estimated used fraction unknown" in seen
    assert "a.csv: unknown, minimum detectable" in seen
    for shown_text in (text, seen, json.dumps(only["finding"])):
        if not np.isnan(usage.fraction):
            assert f"{100 * usage.fraction:.0f}% (" not in shown_text
        assert "Estimated used fraction:" not in shown_text


def test_a_p_value_adjusted_for_several_targets_stands_beside_it():
    two = (USED._replace(p_never=0.04, p_never_adjusted=0.08), UNUSED._replace(p_never_adjusted=0.6))
    made = run(*(judged(name, usage=(each,)) for name, each in zip(("a.csv", "b.csv"), two, strict=True)))
    assert "adjusted for 2 targets (Holm), holdout test: .080, .60" in said(made)
    assert "p(unused), holdout test 0.04, adjusted for 2 targets: 0.08" in page(made)
    (use,) = (each for each in part_of(made).tables if each.title == "Use of the query set")
    at = use.columns.index("adjusted for 2 targets")
    assert [row[at - 1 : at + 1] for row in use.rows] == [("0.04", "0.08"), (precise(UNUSED.p_never), "0.6")]
    assert [each["usage"][0]["p_never_adjusted"] for each in as_json(made)["targets"]] == [0.08, 0.6]
    assert "adjusted" not in said(run(judged(usage=(USED,))))


def test_error_rates_stand_on_terminal_and_page():
    rates = (Rates("holdout", 0.0, 350, 40, 2, 10, 28), Rates("holdout", 1.0, 350, 40, 38, 0, 2))
    made = ks_run(audit=replace(audit_of(judged(usage=(USED,))), rates=rates))
    # The breaks of the terminal's headings are left to the page, where they would show as characters.
    assert "test truly used query records targets not forgotten forgotten inconclusive" in page(made)
    for text in (said(made), page(made), as_markdown(part_of(made))):
        for share in ("5% (1-17)", "25% (13-41)", "70% (53-83)", "95% (83-99)", "0% (0-9)"):
            assert share in text.replace("\\", "")


def test_what_changed_since_before_stands_on_terminal_page_and_in_json():
    made = run(judged(usage=(UNUSED,), change=Change(0.93, 0.71, 1.0, 0.0005, 0.001)))
    line = "Used fraction before minus after: 0.93 (0.71 to 1.00), p < 0.001"
    assert line in said(made)
    assert line.replace(":", "") in page(made)
    (only,) = as_json(made)["targets"]
    assert only["change"] == {"fraction": 0.93, "low": 0.71, "high": 1.0, "p_value": 0.0005, "p_never_before": 0.001}
    (other,) = as_json(run(judged(usage=(UNUSED,))))["targets"]
    assert other["change"] is None


def test_a_check_that_the_test_does_not_rest_on_is_a_warning():
    failed = (check(DISTANCES_APART, False),)
    assert f"failed {DISTANCES_APART}" in page(run(judged(checks=failed)))
    made = run(judged(usage=(USED,), checks=failed))
    assert f"warning {DISTANCES_APART} (affects rho only)" in page(made)
    assert f"warning {DISTANCES_APART} (affects rho only)" in said(made)


def test_no_table_says_what_a_check_took_away():
    """Neither does the table of all tests show what the numbers of one alone would say."""
    made = run(judged(usage=(UNUSED,), emas=(FLAGGED,), checks=(check(HOLDOUT_LIKE_QUERY, False),)))
    (target,) = made.result.targets
    assert (target.verdict, target.usage[0].verdict, target.ema and target.ema.rule) == (
        *("inconclusive", "forgotten"),
        "forgotten",
    )
    part = [cells for cells in part_of(made).tables if cells.title == "Use of the query set"]
    assert [row[2] for row in part[0].rows] == ["inconclusive", "inconclusive"]
    assert ["outputs.csv", "inconclusive"] in [row[:2] for row in rows(made)]


def test_rho_has_its_own_verdict_in_its_own_table():
    made = run(judged(rho=rho_between(1.1, 1.3), usage=(USED,)))
    (cells,) = (cells for cells in part_of(made).tables if cells.title == "rho")
    assert cells.rows[0][:2] == ("outputs.csv", "forgotten")
    assert made.result.targets[0].rho_verdict == "forgotten"
    assert made.result.targets[0].verdict == "not forgotten"


@pytest.mark.parametrize(("middle", "differs"), [(1.2, True), (0.5, False)])
def test_a_rule_that_says_something_else_than_the_verdict_is_explained(middle: float, differs: bool):
    made = run(judged(rho=rho_between(middle - 0.1, middle + 0.1), usage=(USED,)))
    (target,) = made.result.targets
    assert (target.verdict, target.paper_rule == "forgotten") == ("not forgotten", differs)
    why = "It differs from the verdict: the rule only asks whether rho is 1 or more"
    for text in (said(made), page(made)):
        assert (why in text) == ("The verdict is that of the holdout test." in text) == differs


def test_no_number_has_more_digits_than_it_is_worth():
    target = judged("a.csv", usage=(USED,))
    made = run(replace(target, resembles=Resembles("shorter", 13 / 19)))
    for text in (said(made), page(made)):
        assert "68%" in text
        assert not re.search(r"\d\.\d{7,}", text)


def test_numbers_of_tests_of_use_in_json():
    made = run(judged("a.csv", usage=(USED, UNSURE), emas=(FLAGGED, FLAGGED._replace(p_value=0.5))), judged("b"))
    only, other = as_json(made)["targets"]
    assert (only["verdict"], only["method"], only["rho_verdict"]) == ("not forgotten", "holdout", "not forgotten")
    assert only["usage"][0]["p_never"] == 0.0005
    assert [usage["upper"] for usage in only["usage"]] == [0.98, 1.0]
    assert only["usage"][1]["fraction"] is only["usage"][1]["p_fully"] is only["usage"][1]["detectable"] is None
    assert only["usage"][1]["reasons"] == list(UNSURE.reasons)
    assert only["ema"]["p_value"] == pytest.approx(0.26)
    assert only["ema"]["p_values"] == [0.02, 0.5]
    assert only["ema"]["rule"] == "not forgotten"
    assert [test["name"] for test in only["tests"]] == ["holdout", "shadow", "ema", "rho"]
    assert (other["usage"], other["ema"]) == ([], None)

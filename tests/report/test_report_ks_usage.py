"""The `ks` answer where tests of use or EMA were made, as JSON, on a terminal and on a page."""

import json
import re
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
from support.html_pages import Parsed
from support.saved_runs.ks import UNSURE, UNUSED, USED, audit_of, check, ema, judged, ks_run, rho_between, without_rho
from support.terminals import said, shown

from jaxaudit.audits.ks.evidence import Truth
from jaxaudit.audits.ks.result import Rates, Resembles, TargetResult
from jaxaudit.metrics.before_after import Change
from jaxaudit.metrics.checks import DISTANCES_APART, HOLDOUT_LIKE_QUERY
from jaxaudit.metrics.usage import Usage
from jaxaudit.report.build import build, part_of
from jaxaudit.report.card import as_card
from jaxaudit.report.html.render import report_html
from jaxaudit.report.kinds import schema_of
from jaxaudit.report.ks.record import KSRecord
from jaxaudit.report.markdown import as_markdown
from jaxaudit.report.numbers import precise
from jaxaudit.report.record import from_json, to_json
from jaxaudit.report.run import Run

FLAGGED = ema(0.02)
LEFT = UNUSED._replace(question="left")


def run(*targets: TargetResult) -> Run[KSRecord]:
    return ks_run(audit=audit_of(*targets))


def page(*runs: Run[KSRecord]) -> str:
    return Parsed(report_html(runs)).text


def rows(made: Run[KSRecord]) -> list[list[str]]:
    return [line.split() for line in shown(made).splitlines()]


def test_a_row_a_target():
    found = rows(run(judged("a.csv", usage=(USED,)), judged("b.csv", usage=(UNUSED,))))
    assert ["a.csv", "not", "forgotten", "<.001", ".40", "92%", "(70-100)", "98%", "10%", "0.50"] in found
    assert ["b.csv", "forgotten", ".60", ".025", "0%", "(0-5)", "4.3%", "3.1%", "0.50"] in found


def test_further_tests_stand_below():
    found = rows(run(judged("a.csv", usage=(USED, UNSURE), emas=(FLAGGED,))))
    assert ["by", "the", "shadow", "test", "inconclusive", ".30", "none", "unknown", "-", "none"] in found
    assert ["by", "EMA", "inconclusive", ".020", "75%", "flagged"] in found
    assert ["by", "rho", "not", "forgotten"] in found


def test_it_fits_a_terminal_of_80_columns():
    target = judged("printed-digits + 50% of digits", usage=(USED,), truth=Truth(0.5, 10, "not forgotten"))
    lines = shown(run(target), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    # A target's name has room for more than a word.
    assert any(line.startswith("printed-digits +") for line in lines)


def test_what_is_left_is_not_called_used():
    """Of a test that asks so: columns, legend, page, chart and card; a run of both has both names."""
    left, used = (replace(without_rho(), targets=(judged(usage=(usage,), with_rho=False),)) for usage in (LEFT, UNUSED))
    made, other = ks_run(audit=left), ks_run(audit=used)
    value = to_json(made.result)
    assert value["targets"][0]["usage"][0]["question"] == "left"
    assert from_json(KSRecord, value) == made.result
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
    value = json.loads(json.dumps(to_json(made.result), allow_nan=False))
    jsonschema.validate(value, schema_of("ks"))
    assert from_json(KSRecord, value) == made.result
    assert value["noise_floor"] is None
    for target in value["targets"]:
        assert {target[name] for name in ("rho", "ks", "controls", "paper_rule", "rho_verdict")} == {None}
        assert [test["name"] for test in target["tests"]] == ["holdout", "shadow"]
    terminal = shown(made, width=80)
    assert max(map(len, terminal.splitlines())) <= 80
    several, alone = Parsed(report_html([made, made])).text, page(made)
    for text in (terminal, alone, several, as_markdown(part_of(made))):
        assert not re.search(r"\brho\b|paper's rule|oise floor|query models?\b|positive control|replicate", text)
    assert [picture.name for picture in part_of(made).pictures()] == ["used"]
    # Beside a run that has it, each is shown with what it has, and there is nothing to compare.
    both = page(made, run(judged()))
    assert "Noise floor" not in alone
    assert "rho against 1" in both
    assert "compared-rho" not in [picture.name for picture in build([made, run(judged())]).pictures]


def test_a_test_of_use_gives_the_number():
    text = page(run(judged(usage=(USED, UNSURE))))
    assert "estimated used fraction 92% 70% to 100% (95% interval)" in text
    assert "p(unused), holdout test 0.0005" in text
    assert "Minimum detectable fraction, holdout test 10%" in text
    assert "Minimum detectable fraction, shadow test none" in text
    assert "By the shadow test inconclusive" in text
    assert "By rho not forgotten" in text


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
    (only,) = to_json(made.result)["targets"]
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
    assert [each["usage"][0]["p_never_adjusted"] for each in to_json(made.result)["targets"]] == [0.08, 0.6]
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
    (only,) = to_json(made.result)["targets"]
    assert only["change"] == {"fraction": 0.93, "low": 0.71, "high": 1.0, "p_value": 0.0005, "p_never_before": 0.001}
    (other,) = to_json(run(judged(usage=(UNUSED,))).result)["targets"]
    assert other["change"] is None


def test_fractions_that_are_known_need_no_word_on_others():
    assert "unknown" not in shown(run(judged("a.csv", usage=(USED,)), judged("b.csv", usage=(UNUSED,))))


@pytest.mark.parametrize(
    ("usage", "word"), [(USED, "strong"), (USED._replace(method="shadow"), "fair"), (UNUSED, "fair"), (UNSURE, "none")]
)
def test_confidence_depends_on_the_test(usage: Usage, word: str):
    made = run(judged(usage=(usage,), checks=(check("query size"),)))
    assert re.search(f"Confidence( in the verdict)? {word}", page(made))
    assert bool(re.search(f"confidence( in the verdict)?: {word}\\.", said(made))) == (word != "none")


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


def test_what_the_verdict_rests_on_is_drawn():
    text = page(run(judged(usage=(USED, UNSURE))))
    assert "Estimated used fraction of the query set" in text
    assert "outputs.csv (holdout): 0.92, 0.7 to 1, upper limit 0.98, minimum detectable 0.1" in text
    assert "outputs.csv (shadow): unknown, minimum detectable none" in text


def test_ema():
    made = run(judged(emas=(ema(0.2, 0.25),)))
    assert "query records that look like training records 25%" in page(made)
    assert "25% flagged" in page(made)
    assert made.result.targets[0].finding.sentence in said(made)


def test_json():
    made = run(judged("a.csv", usage=(USED, UNSURE), emas=(FLAGGED, FLAGGED._replace(p_value=0.5))), judged("b"))
    only, other = json.loads(json.dumps(to_json(made.result), allow_nan=False))["targets"]
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

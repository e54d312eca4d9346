"""The report of a `ks` run whose verdict is by a test of use or by EMA."""

import json
from typing import Any

import pytest
from support.html_pages import Parsed
from support.report_runs import ks_run

from jaxaudit.report.html.render import report_html
from jaxaudit.report.run import Run

EMA = {"p_value": 0.2, "member_share": 0.031, "p_values": [0.2], "member_shares": [0.031], "rule": "not forgotten"}


def usage(method: str, verdict: str, **changed: Any) -> dict[str, Any]:
    numbers = {"fraction": 0.42, "fraction_low": 0.3, "fraction_high": 0.55, "detectable": 0.08}
    said = {"method": method, "verdict": verdict, "p_never": 0.0004, "p_fully": None, "reasons": ["as it is"]}
    return {**said, **numbers, **changed}


def run(**changed: Any) -> Run:
    """The usual run, its first target changed."""
    made = ks_run()
    result = json.loads(json.dumps(made.result))
    result["targets"][0].update(rho_verdict="inconclusive", usage=[], ema=None)
    result["targets"][0].update(changed)
    return made._replace(result=result)


def test_a_test_of_use_gives_the_number():
    tests = [usage("holdout", "not forgotten"), usage("shadow", "inconclusive", detectable=None, fraction=None)]
    text = Parsed(report_html([run(method="holdout", usage=tests)])).text
    assert "not forgotten The query set, or a part of it, was used." in text
    assert "share of the query set that looks used 42% 30% to 55% (95% interval)" in text
    assert "If it was never used (holdout test) p = 0.0004" in text
    assert "Least use that would have shown (holdout test) 8.0%" in text
    assert "By the shadow test inconclusive, used share unknown" in text
    assert "Least use that would have shown (shadow test) not even the use of all" in text
    assert "By rho and its checks inconclusive" in text
    assert "How much of the query set was used" in text
    assert "The holdout test is exact only where" in text


@pytest.mark.parametrize(
    ("method", "verdict", "word"),
    [("holdout", "not forgotten", "strong"), ("shadow", "not forgotten", "fair"), ("shadow", "inconclusive", "none")],
)
def test_confidence_depends_on_the_test(method: str, verdict: str, word: str):
    fine = [check for check in ks_run().result["targets"][0]["checks"] if check["passed"]]
    made = run(method=method, verdict=verdict, usage=[usage(method, verdict)], checks=fine)
    assert f"Confidence it deserves {word}" in Parsed(report_html([made])).text


def test_a_check_that_the_test_does_not_rest_on_is_a_warning():
    failed = {**ks_run().result["targets"][0]["checks"][0], "passed": False}
    rests = run(checks=[failed])
    assert "failed noise floor" in Parsed(report_html([rests])).text
    other = run(method="holdout", usage=[usage("holdout", "not forgotten")], checks=[failed])
    assert "warning noise floor" in Parsed(report_html([other])).text
    because = run(method="holdout", usage=[usage("holdout", "x")], checks=[failed], because="noise floor: too large")
    assert "failed noise floor" in Parsed(report_html([because])).text


def test_forgotten_is_said_with_the_least_share():
    made = run(method="holdout", verdict="forgotten", usage=[usage("holdout", "forgotten")])
    text = Parsed(report_html([made])).text
    assert "No use of the query set shows; the use of 8.0% of it, or more, would have, 19 times of 20." in text
    several = Parsed(report_html([made, made])).text
    assert several.count("forgotten (of 8.0% or more)") == 2


def test_confidence_is_not_taken_away_by_checks_of_rho():
    checks = [{**each, "passed": False} for each in ks_run().result["targets"][0]["checks"]]
    made = run(method="holdout", verdict="not forgotten", usage=[usage("holdout", "not forgotten")], checks=checks)
    text = Parsed(report_html([made])).text
    assert "Confidence it deserves strong" in text
    assert "warning noise floor, for rho alone" in text
    theirs = [{**checks[0], "name": "holdout like query"}]
    made = run(method="holdout", verdict="not forgotten", usage=[usage("holdout", "not forgotten")], checks=theirs)
    assert "weak so it is. But not every check that it rests on passed: holdout like query." in (
        " ".join(Parsed(report_html([made])).text.split())
    )


def test_what_the_verdict_rests_on_is_drawn():
    tests = [usage("holdout", "not forgotten"), usage("shadow", "inconclusive", detectable=None, fraction=None)]
    page = Parsed(report_html([run(method="holdout", usage=tests)]))
    assert "How much of the query set looks used" in page.text
    assert "outputs.csv (holdout): 0.42, from 0.3 to 0.55, least 0.08" in page.text
    assert "outputs.csv (shadow): unknown, least none" in page.text


@pytest.mark.parametrize(
    "numbers",
    [
        {"fraction": 0.0, "fraction_low": 0.0, "fraction_high": 1.0, "p_never": 0.4},
        {"fraction": 1.0, "fraction_low": 0.0, "fraction_high": 1.0, "p_fully": 0.031},
        {"fraction": 1.0, "fraction_low": 0.6, "fraction_high": 1.0, "p_fully": 0.031},
        {"fraction": 0.0, "fraction_low": 0.0, "fraction_high": 0.1, "p_never": 0.01},
    ],
)
def test_a_share_that_is_unknown_is_no_number(numbers: dict[str, float]):
    """Also of a run that an older version wrote."""
    tests = [usage("holdout", "inconclusive", **numbers), usage("shadow", "inconclusive", **numbers)]
    text = Parsed(report_html([run(method="holdout", usage=tests)])).text
    assert "share of the query set that looks used unknown" in text
    assert "By the shadow test inconclusive, used share unknown" in text
    assert "outputs.csv (holdout): unknown, least 0.08" in text
    assert f"{100 * numbers['fraction']:.0f}% (" not in text
    assert f"{100 * numbers['fraction_low']:.0f}% to" not in text


def test_the_page_says_what_was_asked():
    made = run(method="holdout", usage=[usage("holdout", "not forgotten")])
    data = made.result["provenance"]["data"]
    data["holdout"] = {**data["query"], "name": "kept.npz", "records": 77}
    assert "The holdout is kept.npz (77 records), which nobody was given." in Parsed(report_html([made])).text
    shadow = run(method="shadow", usage=[usage("shadow", "not forgotten")])
    assert "Among models that used none, half and all" in Parsed(report_html([shadow])).text


def test_ema():
    text = Parsed(report_html([run(method="ema", ema=EMA)])).text
    assert "share of query records that look used (EMA) 3.1%" in text
    assert "3.1% flagged" in text

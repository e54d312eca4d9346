"""The `ks` answer as JSON, on a terminal and on a page, where rho decides."""

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from rich.console import Console
from support.html_pages import Parsed
from support.saved_runs.ks import UNUSED, USED, audit_of, check, ema, judged, ks_run, rho_between
from support.terminals import said, shown

from jaxaudit.audits.ks.evidence import Truth
from jaxaudit.audits.ks.result import KSAudit, TargetResult
from jaxaudit.errors import visible
from jaxaudit.metrics.checks import DISTANCES_APART, POSITIVE_CONTROL
from jaxaudit.report.build import part_of
from jaxaudit.report.html.render import report_html
from jaxaudit.report.kinds import schema_of
from jaxaudit.report.ks.kind import KS
from jaxaudit.report.ks.record import KSRecord
from jaxaudit.report.record import from_json, to_json
from jaxaudit.report.run import Run
from jaxaudit.report.terminal import as_terminal

APART, CONTROL = rho_between(1.125, 1.375), rho_between(0.25, 0.75)
FINE, FAILED = check("query size"), check(DISTANCES_APART, False, message="seeds matter too much")
WARNING = check("tied confidences", False, False, "many are 1")


def run(*targets: TargetResult, **more: Any) -> Run[KSRecord]:
    return ks_run(audit=audit_of(*targets, **more))


def as_json(made: Run[KSRecord]) -> dict[str, Any]:
    return json.loads(json.dumps(to_json(made.result), allow_nan=False))


def rows(made: Run[KSRecord]) -> list[list[str]]:
    return [line.split() for line in shown(made).splitlines()]


# The terminal.


def test_a_row():
    made = run(judged(rho=APART, checks=(FINE,)))
    assert ["outputs.csv", "forgotten", "1.25", "1.12-1.38", "forgotten"] in rows(made)
    assert "used" not in shown(made).split("Noise floor")[0]
    assert "checks passed: query size" in shown(made)
    assert "0.020 apart (at most 0.060)" in said(made)


@pytest.mark.parametrize(
    ("level", "heading"), [(0.95, "95%"), (0.995, "99.5%"), (0.5, "50%"), (0.9999999, "99.99999%")]
)
def test_the_interval_says_its_level(level: float, heading: str):
    audit = audit_of(judged(rho=APART))
    made = ks_run(audit=KSAudit(**{**vars(audit), "level": level}))
    assert [heading] in [line[-1:] for line in rows(made)]
    assert f"({heading} interval)" in Parsed(report_html([made])).text


def test_truth_where_it_is_known():
    shares = (1.0, 0.5, 0.001, 0.0)
    known = [judged(f"t{share}", APART, truth=Truth(share, 10, "forgotten")) for share in shares]
    found = [line for line in rows(run(*known, judged("file", APART))) if line[-1:] == ["forgotten"]]
    cells = [" ".join(line[:-4]) for line in found]
    assert cells == ["t1.0 100%", "t0.5 50%", "t0.001 under 1%", "t0.0 none", "file unknown"]
    assert "target trained on" in shown(run(*known))
    assert "forgotten: it used 50% of the query set" in Parsed(report_html([run(*known)])).text


def test_numbers_that_are_none():
    nothing = judged(rho=rho_between(np.nan, np.nan, np.nan))
    assert ["outputs.csv", "inconclusive", "none", "none"] in [line[:4] for line in rows(run(nothing))]
    assert "Noise floor" not in shown(run(nothing, floor=()))


def test_failed_checks_say_whose_they_are_and_are_said_once():
    bad = judged("a", APART, checks=(FINE, FAILED, WARNING))
    made = run(bad, judged("b", APART, checks=(FINE, FAILED)))
    text = said(made)
    assert f"FAILED {DISTANCES_APART}: seeds matter too much" in text
    assert "warning tied confidences (a): many are 1" in text
    assert "checks passed: query size" in text
    assert text.count(f"FAILED {DISTANCES_APART}") == 1
    page = Parsed(report_html([made])).text
    assert f"failed {DISTANCES_APART} seeds matter too much" in page
    assert "warning tied confidences (a) many are 1" in page
    mixed = said(run(judged("a", APART, checks=(FAILED,)), judged("c", APART)))
    assert f"FAILED {DISTANCES_APART} (a): seeds" in mixed


def test_of_a_check_that_no_verdict_rests_on_the_first_outcome_stands_for_all():
    controls = [check(POSITIVE_CONTROL, False, message=f"a control has rho 1.2{place}") for place in range(2)]
    made = run(*(judged(f"{place}.csv", usage=(USED,), checks=(each,)) for place, each in enumerate(controls)))
    for text in (said(made), Parsed(report_html([made])).text):
        assert f"{POSITIVE_CONTROL} (affects rho only)" in text
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


def test_a_reference_of_its_own_is_named():
    made = ks_run()
    assert "reference" not in Parsed(report_html([made])).text.lower()
    made.result.provenance.data["reference"] = {"name": "kept\x1b.npz", "records": 1234}
    assert r"a share of the reference, kept\x1b.npz (1,234 records)" in Parsed(report_html([made])).text


# JSON.


@pytest.mark.parametrize(
    "audit",
    [
        None,
        audit_of(judged(rho=rho_between(np.nan, np.nan, np.inf)), floor=()),
        audit_of(judged(usage=(USED, UNUSED._replace(method="shadow")), emas=(ema(0.3),), checks=(FAILED, WARNING))),
    ],
)
def test_a_record_comes_back_as_it_was(audit: KSAudit | None):
    made = ks_run(audit=audit)
    value = as_json(made)
    assert from_json(KSRecord, value) == made.result
    jsonschema.validate(value, schema_of("ks"))
    KS.check(made.result, made.arrays)


def test_json_has_null_for_what_json_cannot_hold():
    empty = replace_check(check(POSITIVE_CONTROL, False))
    value = as_json(run(judged(rho=rho_between(np.nan, np.nan, np.inf), checks=(empty,)), floor=()))
    (only,) = value["targets"]
    assert only["rho"] == {"median": None, "low": None, "high": None, "values": [None, None]}
    assert only["checks"][0]["value"] is only["checks"][0]["threshold"] is None
    assert value["noise_floor"] == {"median": None, "max": None, "values": []}


def replace_check(made: Any) -> Any:
    return made._replace(value=float("nan"), threshold=float("inf"))


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


@pytest.mark.parametrize(
    "change",
    [{"verdict": "maybe"}, {"name": 3}, {"extra": 1}, {"truth": {"used_fraction": 2}}, {"finding": None}, {"tests": 1}],
)
def test_other_keys_and_types_are_refused(change: dict[str, Any]):
    value = as_json(run(judged(rho=APART, truth=Truth(0.5, 10, "not forgotten"))))
    value["targets"][0] |= change
    with pytest.raises(msgspec.ValidationError):
        from_json(KSRecord, value)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, schema_of("ks"))


def test_visible():
    assert visible("Größe 日本 é.csv") == "Größe 日本 é.csv"
    assert visible("a\x9b\x7f\u2028\udc80") == r"a\x9b\x7f\u2028\udc80"


def test_a_page_names_its_run():
    assert "A name" in Parsed(report_html([replace(ks_run(), name="A name")] * 2)).text

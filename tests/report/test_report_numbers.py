"""The answers of `attack`, `efficacy`, `pdtp`, `power` and `unlearn` as JSON, on a terminal and on a page."""

import math
from dataclasses import replace

import jsonschema
import msgspec
import numpy as np
import pytest
from support.html_pages import Parsed
from support.saved_runs import as_json
from support.saved_runs.efficacy import efficacy_audit, efficacy_run, weights
from support.saved_runs.pdtp import audit_of, pdtp_audit, pdtp_run, run_of
from support.saved_runs.unlearn import CHALLENGE, unlearn_audit, unlearn_run
from support.saved_runs.unlearn_outputs import unlearn_outputs_run
from support.terminals import said, shown

from jaxaudit.audits import PDTPAudit
from jaxaudit.kernels import SequenceLikelihood
from jaxaudit.report import part_of, report_html, schema_of

pytestmark = pytest.mark.usefixtures("no_charts")


def test_another_likelihood_is_on_the_page():
    norms, other = [0.5, 0.1, 0.15], weights("retrained", [1.0, 2.0, 3.0])
    audit = efficacy_audit(weights("mine", norms, accuracy=None), other, likelihood=SequenceLikelihood())
    assert as_json(efficacy_run(audit=audit))["models"][0]["accuracy"] is None
    assert "Log-likelihood of a record" in Parsed(report_html(efficacy_run(audit=audit))).text
    usual = efficacy_run(audit=efficacy_audit(weights("mine", norms), other))
    assert "Log-likelihood" not in Parsed(report_html(usual)).text


def test_the_records_that_are_listed_are_those_that_the_weights_fit_best():
    run = efficacy_run(audit=efficacy_audit(weights("model", [3.0, 0.5, 1.0])))
    rows = [line.split() for line in shown(run, width=80).splitlines() if line.split()[1:2] in (["b"], ["c"])]
    assert [row[0] for row in rows] == ["1", "2"]
    assert [row[2] for row in rows] == ["0.5", "1"]
    assert "The 3 records that the weights fit best" in shown(run, width=80)


def test_numbers_in_json_are_those_of_the_audit():
    audit = pdtp_audit()
    written = as_json(pdtp_run())
    assert written["schema"] == "jaxaudit.pdtp/3"
    assert written["max_pdtp"] == "infinity"
    assert written["median_pdtp"] == np.median(audit.values)
    ordered = np.sort(audit.values)
    assert written["quantiles"] == {"0.5": ordered[19], "0.9": ordered[35], "0.99": "infinity"}
    assert written["dtp_bound"] is None
    assert (written["above_1"], written["above_1_without_bins"], written["above_1_within_floor"]) == (2, 2, 0)
    assert written["seed_floor"] == {
        "seeded": True,
        "mean": np.mean(audit.floor.mean),
        "max": np.max(audit.floor.largest),
        "above": int((audit.values > audit.floor.largest).sum()),
    }
    assert [each["pdtp"] for each in written["records"]] == [
        "infinity" if math.isinf(value) else value for value in audit.values
    ]
    assert {each["class"] for each in written["records"]} == {"people.csv", "no"}
    columns = audit.columns
    assert columns["index"].tolist() == [each["index"] for each in written["records"]]
    assert np.isnan(columns["dtp_bound"]).all()


METHODS = {"mine": {"efficacy": 0.1}, "a-longer-name": {}}


def test_how_models_are_told_from_retrained_ones_is_in_every_output():
    run = unlearn_run(audit=unlearn_audit({"efficacy": 9.0}, METHODS, told=CHALLENGE))
    result = as_json(run)
    assert [method["challenge"] is None for method in result["methods"]] == [True, *[False] * 4]
    mine = result["methods"][3]
    assert mine["challenge"] == {
        "epsilon": [0.25, 50.0],
        "quality": {"value": 0.1875, "low": 0.125, "high": 0.25},
        "remaining_ratio": 1.0,
        "test_ratio": 0.9375,
        "score": {"value": 0.1758, "low": 0.11, "high": 0.24},
    }
    assert mine["u_lira"] == {"value": 0.5625, "low": 0.5, "high": 0.625}
    text, page = said(run), Parsed(report_html(run)).text
    for number in ("0.19", "0.12 to 0.25", "1.00", "0.94", "0.18", "0.11 to 0.24", "0.56", "0.50 to 0.62"):
        assert number in text
        assert number in page
    assert "U-LiRA" in page
    assert any("biased upward" in each for each in result["finding"]["caveats"])


def test_a_ratio_over_0_is_null_and_shown_as_none():
    found = msgspec.structs.replace(CHALLENGE, test_ratio=None, score=None)
    run = unlearn_run(audit=unlearn_audit({"efficacy": 9.0}, METHODS, told=found))
    challenge = as_json(run)["methods"][3]["challenge"]
    assert (challenge["test_ratio"], challenge["score"]) == (None, None)
    assert "none" in shown(run)


def test_every_number_is_in_json_on_the_terminal_and_on_the_page():
    run = unlearn_outputs_run("mine")
    result, text, page = as_json(run), said(run), Parsed(report_html(run)).text
    jsonschema.validate(result, schema_of("unlearn_outputs"))
    assert schema_of("unlearn_outputs")["title"] == "jaxaudit unlearn --outputs"
    assert [method["name"] for method in result["methods"]] == ["retrained again", "original", "mine", "few"]
    mine = result["methods"][2]
    estimates = (mine["u_lira"], mine["challenge"]["quality"], mine["challenge"]["score"])
    accuracy = mine["scores"]["test_accuracy"]
    for value in (
        *(value for number in estimates for value in number.values()),
        accuracy["mean"],
        *accuracy["interval"],
    ):
        assert f"{value:.2f}" in text
        assert f"{value:.2f}" in page
    for words in ("distinguishable", "`few` has 3 models", "needs 1,000 pairs"):
        assert words in text
        assert words in page
    assert mine["true_positive_rate"] is None


def test_a_terminal_has_one_limitation_and_counts_the_others_unless_asked_for_details():
    caveats = part_of(pdtp_run()).caveats
    assert len(caveats) > 1
    few, every = (" ".join(shown(pdtp_run(), hint=hint).split()) for hint in ("--details has more.", ""))
    assert [caveat in few for caveat in caveats] == [True, *[False] * (len(caveats) - 1)]
    assert f"{len(caveats) - 1} more limitation" in few
    assert all(f"limitation: {caveat}" in every for caveat in caveats)


def test_beyond_so_many_records_those_that_fit_best_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jaxaudit.audits.efficacy.result.LISTED", 2)
    result = efficacy_run(audit=efficacy_audit(weights("model", [3.0, 0.5, 1.0]))).result
    assert [record.index for record in result.records] == [1, 2]
    assert result.records_measured == 3


def many(count: int) -> PDTPAudit:
    """The riskiest in front; copies and lone members behind."""
    values = np.linspace(2, 0, count)
    last = np.arange(count) >= count - 5
    return audit_of(values, duplicates=1 + last, only_member=last, exact=values / 2)


def test_what_is_left_out_of_the_list_is_counted(monkeypatch: pytest.MonkeyPatch):
    whole = run_of(many(50))
    monkeypatch.setattr("jaxaudit.audits.pdtp.audit.LISTED", 20)
    cut = run_of(many(50))
    assert len(cut.result.records) == 20
    assert cut.result == msgspec.structs.replace(whole.result, records=whole.result.records[:20])
    assert (cut.result.copies, cut.result.lone_members, cut.result.above_1) == (5, 5, 25)
    assert sum(bar.records for bar in cut.result.distribution) == cut.result.records_measured == 50
    assert "5 records have exact copies" in said(cut)
    assert said(cut) == said(whole)
    # The list keeps the order of the table.
    monkeypatch.setattr("jaxaudit.audits.pdtp.audit.LISTED", 2)
    audit = replace(audit_of([0.1, 0.4, 0.2, 0.4]), records=np.array([9, 5, 7, 1]))
    assert [each.index for each in run_of(audit).result.records] == [5, 1]

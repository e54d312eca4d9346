"""A run of `pdtp` as JSON, at a terminal, and on a page."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from support.html_pages import Parsed
from support.saved_runs import as_json
from support.saved_runs.pdtp import audit_of, pdtp_audit, pdtp_run, run_of
from support.terminals import said, shown

from jaxaudit.audits.pdtp import measured
from jaxaudit.audits.pdtp.measured import PDTPAudit
from jaxaudit.report.build import build
from jaxaudit.report.html.render import report_html
from jaxaudit.report.kinds import run_kind

pytestmark = pytest.mark.usefixtures("no_charts")


def test_numbers_in_json_are_those_of_the_audit():
    audit = pdtp_audit()
    written = as_json(pdtp_run())
    assert written["schema"] == "jaxaudit.pdtp/3"
    assert written["max_pdtp"] == "infinity"
    assert written["median_pdtp"] == np.median(audit.values)
    ordered = np.sort(audit.values)
    assert written["quantiles"] == {"0.5": ordered[19], "0.9": ordered[35], "0.99": "infinity"}
    assert (written["bound"], written["dtp_bound"]) == (5.29, None)
    assert (written["above_1"], written["above_1_without_bins"], written["above_1_within_floor"]) == (2, 2, 0)
    assert written["seed_floor"] == {
        "seeded": True,
        "mean": np.mean(audit.floor.mean),
        "max": np.max(audit.floor.largest),
        "above": int((audit.values > audit.floor.largest).sum()),
    }
    assert written["reduction"] == {"removed": [7, 3], "max_pdtp": ["infinity", 1.4, 0.6]}
    assert [each["pdtp"] for each in written["records"]] == [
        "infinity" if math.isinf(value) else value for value in audit.values
    ]
    assert {each["class"] for each in written["records"]} == {"people.csv", "no"}
    columns = audit.columns
    assert columns["index"].tolist() == [each["index"] for each in written["records"]]
    assert np.isnan(columns["dtp_bound"]).all()


def test_a_terminal_lists_as_many_records_as_asked():
    run = pdtp_run()
    assert "The 3 riskiest records" in shown(run, top=3)
    assert "riskiest records" not in shown(run, top=0)
    assert run.result.by_risk()[0].index == 7
    order = np.argsort(-pdtp_audit().values, kind="stable")
    assert [each.index for each in run.result.by_risk()] == order.tolist()


def many(count: int) -> PDTPAudit:
    """The riskiest in front; copies and lone members behind."""
    values = np.linspace(2, 0, count)
    last = np.arange(count) >= count - 5
    return audit_of(values, duplicates=1 + last, only_member=last, exact=values / 2)


def test_what_is_left_out_of_the_list_is_counted(monkeypatch: pytest.MonkeyPatch):
    assert measured.LISTED == 100_000
    whole = run_of(many(50))
    monkeypatch.setattr(measured, "LISTED", 20)
    cut = run_of(many(50))
    assert len(cut.result.records) == 20
    assert cut.result == msgspec.structs.replace(whole.result, records=whole.result.records[:20])
    assert (cut.result.copies, cut.result.lone_members, cut.result.above_1) == (5, 5, 25)
    assert sum(bar.records for bar in cut.result.distribution) == cut.result.records_measured == 50
    assert run_kind("pdtp").stored(cut.result) == ("records.parquet", ("pdtp",), 50)
    assert "5 records have exact copies" in said(cut)
    assert said(cut) == said(whole)
    # The list keeps the order of the table.
    monkeypatch.setattr(measured, "LISTED", 2)
    audit = replace(audit_of([0.1, 0.4, 0.2, 0.4]), records=np.array([9, 5, 7, 1]))
    assert [each.index for each in run_of(audit).result.records] == [5, 1]


def test_several_runs_are_compared_by_all_of_their_records(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measured, "LISTED", 20)
    audit = many(50)
    runs = [replace(run_of(audit), arrays={"pdtp": audit.values}), pdtp_run()]  # of the second, half are known
    (picture,) = build(runs).pictures
    (above_1,) = [row for row in picture.numbers.rows if row[0] == "1"]
    assert list(map(float, above_1[1:])) == [0.5, 0.05]
    assert "Share of records above a PDTP" in Parsed(report_html(runs)).text
    assert build(runs[:1]).pictures == ()

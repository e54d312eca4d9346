"""A run of `pdtp` as JSON, at a terminal, and on a page: the same finding everywhere."""

import io
import json
import math
from dataclasses import replace
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from rich.console import Console
from support.html_pages import Parsed
from support.saved_runs.pdtp import audit_of, pdtp_audit, pdtp_run, run_of

from jaxaudit.audits.pdtp.result import PDTPAudit, Reduction
from jaxaudit.report.build import build, part_of
from jaxaudit.report.html.render import report_html
from jaxaudit.report.kinds import kind_of, schema_of
from jaxaudit.report.pdtp import record as pdtp
from jaxaudit.report.pdtp.record import PDTPRecord, pdtp_columns
from jaxaudit.report.pdtp.view import by_risk, riskiest
from jaxaudit.report.record import from_json, to_json
from jaxaudit.report.run import Run
from jaxaudit.report.terminal import as_terminal

BELOW = [0.1, 0.2, 0.3]
AUDITS = {
    "publish": audit_of(BELOW),
    "proven": audit_of(BELOW, dtp_bound=np.array(BELOW), largest_possible=0.69, seeded=False),
    "inconclusive": audit_of(BELOW, examples=9),
    "infinite": pdtp_audit(),
    "artefact": audit_of([0.1, 0.2, 1.1], exact=np.array(BELOW), only_member=np.array([False, True, True])),
    "unbounded": audit_of(BELOW, dtp_bound=np.array([0.1, math.inf, 0.3]), duplicates=np.array([2, 2, 1])),
}


def terminal(run: Run[PDTPRecord], top: int = 10) -> str:
    """What a terminal of 80 columns shows."""
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(as_terminal(part_of(run, top)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", AUDITS)
def test_a_record_survives_json(name: str):
    reduction = Reduction(np.array([1, 0]), np.array([math.inf, 1.4, 0.6]))
    for run in (run_of(AUDITS[name]), run_of(AUDITS[name], reduction)):
        written = json.loads(json.dumps(to_json(run.result), allow_nan=False))
        assert from_json(PDTPRecord, written) == run.result
        jsonschema.validate(written, schema_of("pdtp"))
        assert written["schema"] == "jaxaudit.pdtp/2"
        kind_of("pdtp").check(run.result, run.arrays)


def test_numbers_in_json_are_those_of_the_audit():
    audit = pdtp_audit()
    written = to_json(pdtp_run().result)
    assert written["max_pdtp"] == "infinity"
    assert written["median_pdtp"] == np.median(audit.values)
    ordered = np.sort(audit.values)
    assert written["quantiles"] == {"0.5": ordered[19], "0.9": ordered[35], "0.99": "infinity"}
    assert written["because"] == written["finding"]["sentence"]
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
    columns = pdtp_columns(audit, ("people.csv", "no"))
    assert columns["index"].tolist() == [each["index"] for each in written["records"]]
    assert np.isnan(columns["dtp_bound"]).all()


def changed(**values: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(to_json(pdtp_run().result))), **values}


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": "jaxaudit.pdtp/1"},
        {"more": 1},
        {"max_pdtp": "many"},
        {"max_pdtp": -0.1},
        {"above_1": -1},
        {"verdict": "perhaps"},
        {"quantiles": {"0.7": 1.0}},
        {"train_accuracy": 1.1},
        {"records": []},
        {"records": [{**changed()["records"][0], "direction": 2}]},
        {"records": [{**changed()["records"][0], "class_": "a"}]},
    ],
)
def test_what_is_not_such_a_record_is_refused(wrong: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError):
        from_json(PDTPRecord, changed(**wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"records_measured": 39},
        {"training_records": 39},
        {"verdict": "publish"},
        {"publish": True},
        {"distribution": changed()["distribution"][:-1]},
        {"distribution": [{**bar, "records": 0} for bar in changed()["distribution"]]},
        {"reduction": {"removed": [1], "max_pdtp": [1.0]}},
    ],
)
def test_numbers_that_do_not_belong_together_are_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match=r"^it|^its|^steps"):
        kind_of("pdtp").check(from_json(PDTPRecord, changed(**wrong)), {})


def test_arrays_of_other_records_are_refused():
    result, kind = pdtp_run().result, kind_of("pdtp")
    assert kind.stored(result) is None
    kind.check(result, {"pdtp": np.zeros(40)})
    for values in (np.zeros(39), -np.ones(40), np.zeros(40, np.float32), np.full(40, np.nan)):
        with pytest.raises(ValueError, match="the pdtp of its records are misshapen"):
            kind.check(result, {"pdtp": values})


@pytest.mark.parametrize("name", AUDITS)
def test_terminal_and_page_say_what_was_found(name: str):
    run, finding = run_of(AUDITS[name]), AUDITS[name].finding
    shown, page = terminal(run), Parsed(report_html([run])).text
    for text in (words(shown), page):
        assert finding.verdict in text
        assert finding.sentence in text
        for check in finding.checks:
            assert check.name in text
            assert check.state == "passed" or check.message in text
        for each in (*finding.caveats, *finding.would_change):
            assert each in text
    confidence = finding.confidence
    assert f"Confidence {confidence.word} {confidence.why}" in page
    assert (f"confidence: {confidence.word}. {confidence.why}" in words(shown)) == (confidence.word != "none")
    assert all(reason in words(shown) for reason in finding.reasons)
    assert max(map(len, shown.splitlines())) <= 80


def test_a_terminal_lists_as_many_records_as_asked():
    run = pdtp_run()
    assert "The 3 riskiest records" in terminal(run, 3)
    assert "riskiest records" not in terminal(run, 0)
    assert by_risk(run.result)[0].index == riskiest(pdtp_audit(), 1)[0] == 7
    assert [each.index for each in by_risk(run.result)] == riskiest(pdtp_audit(), 40).tolist()


def test_infinite_values_are_words():
    shown, page = terminal(pdtp_run()), Parsed(report_html([pdtp_run()])).text
    for text in (shown, page):
        assert "infinite" in text
        assert "inf " not in text
        assert "nan" not in text


def test_a_reduction_is_shown_where_there_is_one():
    title = "argest PDTP as the riskiest record is removed"
    for run, there in ((pdtp_run(), True), (run_of(pdtp_audit()), False)):
        assert (title in words(terminal(run))) is there
        assert (title in Parsed(report_html([run])).text.replace("The largest", "Largest")) is there


def many(count: int) -> PDTPAudit:
    """The riskiest in front; copies and lone members behind."""
    values = np.linspace(2, 0, count)
    last = np.arange(count) >= count - 5
    return audit_of(values, duplicates=1 + last, only_member=last, exact=values / 2)


def test_what_is_left_out_of_the_list_is_counted(monkeypatch: pytest.MonkeyPatch):
    audit = many(50)
    whole = run_of(audit).result
    monkeypatch.setattr(pdtp, "MOST_RECORDS", 20)
    cut = run_of(audit)
    assert len(cut.result.records) == 20
    assert cut.result == msgspec.structs.replace(whole, records=whole.records[:20])
    assert (cut.result.copies, cut.result.lone_members, cut.result.above_1) == (5, 5, 25)
    assert kind_of("pdtp").stored(cut.result) == ("records.parquet", ("pdtp",), 50)
    assert "5 records have exact copies" in words(terminal(cut))
    assert terminal(cut) == terminal(run_of(audit))
    plain, other = (Parsed(report_html([each])).text for each in (cut, run_of(audit)))
    assert plain == other


def test_more_records_than_a_result_lists():
    audit = many(100_003)
    result = run_of(audit).result
    assert len(result.records) == 100_000
    assert (result.copies, result.lone_members) == (5, 5)
    assert sum(bar.records for bar in result.distribution) == result.records_measured == 100_003
    assert result.finding == audit.finding


def test_the_list_keeps_the_order_of_the_table(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdtp, "MOST_RECORDS", 2)
    audit = replace(audit_of([0.1, 0.4, 0.2, 0.4]), records=np.array([9, 5, 7, 1]))
    assert [each.index for each in run_of(audit).result.records] == [5, 1]


def test_several_runs_are_compared_by_all_of_their_records(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdtp, "MOST_RECORDS", 20)
    audit = many(50)
    runs = [replace(run_of(audit), arrays={"pdtp": audit.values}), pdtp_run()]  # of the second, half are known
    (picture,) = build(runs).pictures
    (above_1,) = [row for row in picture.numbers.rows if row[0] == "1"]
    assert list(map(float, above_1[1:])) == [0.5, 0.05]
    assert "Share of records above a PDTP" in Parsed(report_html(runs)).text
    assert build(runs[:1]).pictures == ()

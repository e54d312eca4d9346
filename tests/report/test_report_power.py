"""The `power` answer as JSON, on a terminal and on a page."""

import io
import json
import re
from dataclasses import replace
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from rich.console import Console
from support.html_pages import ALLOWED, Parsed
from support.saved_runs.names import HOSTILE
from support.saved_runs.power import KNOWN, power_audit, power_run
from support.terminals import said as said_on_terminal

from jaxaudit.audits.power.result import FRACTIONS, Power
from jaxaudit.errors import visible
from jaxaudit.metrics.power import Separation, detection_probability, min_detectable_fraction
from jaxaudit.plots.export import as_svg, settled
from jaxaudit.report.build import part_of
from jaxaudit.report.html.render import report_html
from jaxaudit.report.kinds import schema_of
from jaxaudit.report.power.kind import POWER
from jaxaudit.report.power.record import PowerRecord
from jaxaudit.report.record import from_json, to_json
from jaxaudit.report.run import Run
from jaxaudit.report.terminal import as_terminal

HOPELESS = power_audit(0.01, 1_234_567, 1_000_000, Separation(0.3, 0.05, 0.04, 0.09, 6))


def shown(run: Run[PowerRecord]) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(as_terminal(part_of(run)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def as_json(record: PowerRecord) -> dict[str, Any]:
    return json.loads(json.dumps(to_json(record), allow_nan=False))


@pytest.mark.parametrize("audit", [power_audit(), HOPELESS])
def test_a_record_comes_back_as_it_was(audit: Power):
    result = power_run(audit=audit).result
    value = as_json(result)
    assert from_json(PowerRecord, value) == result
    jsonschema.validate(value, schema_of("power"))
    POWER.check(result, {})
    assert POWER.stored(result) is None


@pytest.mark.parametrize(
    "change",
    [
        {"odd": 1},
        {"fraction": "0.1"},
        {"schema": "jaxaudit.power/1"},
        {"sizes": [{}]},
        {"records_needed": 4.5},
        {"separation": {"difference": 1.0}},
    ],
)
def test_other_keys_and_types_are_refused(change: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError):
        from_json(PowerRecord, {**as_json(power_run().result), **change})


def test_what_does_not_fit_is_refused():
    def wrong(change: Any, message: str) -> None:
        value = as_json(power_run().result)
        change(value)
        with pytest.raises(ValueError, match=message):
            POWER.check(from_json(PowerRecord, value), {})

    def without_fractions(value: Any) -> None:
        for size in value["sizes"]:
            size["chances"].clear()

    wrong(lambda v: v["sizes"].clear(), "not one of its sizes")
    wrong(lambda v: v["sizes"][0].update(given=True), "not one of its sizes")
    wrong(lambda v: v["sizes"][0]["chances"].pop(), "different fractions")
    wrong(without_fractions, "different fractions, or none")
    wrong(lambda v: v.update(fraction=0.0), "not above 0")
    wrong(lambda v: v["sizes"][0]["chances"][0].update(chance_noticed=1.5), "not between 0 and 1")
    wrong(lambda v: v["conclusions"][0].update(forgotten=1.5), "not between 0 and 1")
    wrong(lambda v: v["conclusions"].pop(), "not those of its sizes")


def test_the_numbers_of_json():
    result = as_json(power_run().result)
    assert result["separation"] == KNOWN._asdict()
    small, given, large = result["sizes"]
    assert (small["given"], given["given"], large["given"]) == (False, True, False)
    assert (given["query"], given["holdout"]) == (500, 500)
    assert given["chances"] == [
        {"fraction": f, "chance_noticed": detection_probability(KNOWN, 500, 500, f)} for f in FRACTIONS
    ]
    assert given["least_noticed"] == min_detectable_fraction(KNOWN, 500, 500, 31)
    assert [each["models"] for each in result["shadow_models"]] == [19, 64]
    assert (result["fraction"], result["records_needed"]) == (0.1, 447)
    assert result["finding"]["verdict"] == "sufficient"
    hopeless = as_json(power_run(audit=HOPELESS).result)
    assert hopeless["records_needed"] is None
    assert hopeless["sizes"][0]["least_noticed"] is None


@pytest.mark.parametrize("audit", [power_audit(), power_audit(0.01), HOPELESS])
def test_terminal_and_page_say_what_was_decided(audit: Power):
    run, finding = power_run(audit=audit), audit.finding
    printed = shown(run)
    text, page = " ".join(printed.split()), Parsed(report_html([run])).text
    assert f"{finding.verdict}. {finding.sentence}" in text
    assert f"{finding.verdict} {finding.sentence}" in page
    for said in (*finding.caveats, *finding.would_change, finding.confidence.why):
        assert said in text
        assert said in page
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    starred = [line.split() for line in printed.splitlines() if line.strip().startswith("*") and ":" not in line]
    scaled, row, *larger = starred
    size = audit.sizes[audit.given]
    wanted = [each.forgotten for each in audit.concluded if each.by != "holdout"]
    assert scaled[3:] == [f"{100 * (each or 0):.0f}%" for each in wanted]
    assert row[:2] == [f"*{size.query:,}", f"{size.holdout:,}"]
    assert row[2:8] == [f"{100 * each:.0f}%" for each in size.probabilities]
    assert larger in ([], [row])


def test_what_could_be_concluded_stands_in_words():
    printed, page = shown(power_run()), Parsed(report_html([power_run()])).text
    rows = [line.split("  ") for line in printed.splitlines() if line.startswith("holdout only")]
    assert len(rows) == 3
    assert all("cannot be" in " ".join(row) for row in rows)
    for text in (" ".join(printed.split()), page):
        assert "needs known members (50 or more), or shadow models of the target's own recipe" in text
        assert "nobody knows" in text
        assert "with 95% probability, given 500 known members and shadow models" in text
    few = " ".join(shown(power_run(audit=power_audit(1.0, 20, 20))).split())
    assert "takes known members (50 or more)" in few


def test_a_run_that_did_not_plan_with_members_is_read_and_shown():
    value = as_json(power_run().result)
    del value["memory"], value["conclusions"]
    result = from_json(PowerRecord, value)
    POWER.check(result, {})
    run = replace(power_run(), result=result)
    assert "What could be concluded" not in shown(run)
    assert "What could be concluded" not in Parsed(report_html([run])).text


def test_its_figure_has_a_line_for_each_size_and_the_same_bytes():
    audit = power_audit()
    figure = audit.plot()
    (axes,) = figure.axes
    drawn = [np.asarray(line.get_ydata()).tolist() for line in axes.lines[:3]]
    assert drawn == [list(size.probabilities) for size in audit.sizes]
    assert np.asarray(axes.lines[3].get_ydata()).tolist() == [0.95, 0.95]
    assert np.asarray(axes.lines[4].get_xdata()).tolist() == [0.1, 0.1]
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines[:3]}
    assert len(looks) == 3
    assert as_svg(settled(audit.plot)) == as_svg(settled(audit.plot))
    assert report_html([power_run()]) == report_html([power_run()])


def test_hostile_names_stay_text():
    run = replace(power_run(HOSTILE), name=HOSTILE)
    html = report_html([run, run])
    page = Parsed(html)
    assert {tag for tag, _ in page.elements} <= ALLOWED
    assert visible(HOSTILE) in page.text
    assert not {c for c in html if not c.isprintable()} - {"\n"}
    assert not {c for c in shown(run) if not c.isprintable()} - {"\n"}


@pytest.mark.parametrize("fraction", [0.02, 0.9])
def test_one_number_of_records_is_said(fraction: float):
    """Two approximations differ by some percent; of a question that the records do not answer the finding has both."""
    run = power_run(audit=power_audit(fraction, 300, 300, KNOWN))
    finding, needed = run.result.finding, run.result.records_needed
    assert finding.verdict == ("sufficient" if fraction > 0.5 else "insufficient")
    assert needed is not None
    for text in (said_on_terminal(run), Parsed(report_html([run])).text):
        assert ("Records that suffice" in text) == (finding.verdict == "sufficient")
        numbers = {
            int(found.replace(",", "")) for found in re.findall(r"([\d,]+) query(?: and as many|, [\d,]+ h)", text)
        }
        assert len(numbers - {300}) == 1

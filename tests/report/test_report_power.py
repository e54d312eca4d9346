"""The `power` answer as JSON, on a terminal and on a page."""

import re
from dataclasses import replace

import numpy as np
import pytest
from support.html_pages import Parsed
from support.saved_runs import as_json
from support.saved_runs.power import KNOWN, power_audit, power_run
from support.terminals import said, shown

from jaxaudit.audits.power.result import FRACTIONS, Power
from jaxaudit.metrics.power import Separation, detection_probability, min_detectable_fraction
from jaxaudit.plots.export import as_svg, settled
from jaxaudit.report.html.render import report_html
from jaxaudit.report.power.kind import POWER
from jaxaudit.report.power.record import PowerRecord
from jaxaudit.report.record import from_json

HOPELESS = power_audit(0.01, 1_234_567, 1_000_000, Separation(0.3, 0.05, 0.04, 0.09, 6))

pytestmark = pytest.mark.usefixtures("no_charts")


def test_the_numbers_of_json():
    run = power_run()
    assert POWER.stored(run.result) is None
    result = as_json(run)
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
    hopeless = as_json(power_run(audit=HOPELESS))
    assert hopeless["records_needed"] is None
    assert hopeless["sizes"][0]["least_noticed"] is None


@pytest.mark.parametrize("audit", [power_audit(), HOPELESS])
def test_the_sizes_that_were_given_are_starred(audit: Power):
    lines = shown(power_run(audit=audit), width=80).splitlines()
    starred = [line.split() for line in lines if line.strip().startswith("*") and ":" not in line]
    scaled, row, *larger = starred
    size = audit.sizes[audit.given]
    wanted = [each.forgotten for each in audit.concluded if each.by != "holdout"]
    assert scaled[3:] == [f"{100 * (each or 0):.0f}%" for each in wanted]
    assert row[:2] == [f"*{size.query:,}", f"{size.holdout:,}"]
    assert row[2:8] == [f"{100 * each:.0f}%" for each in size.probabilities]
    assert larger in ([], [row])


def test_what_could_be_concluded_stands_in_words():
    run = power_run()
    rows = [line.split("  ") for line in shown(run, width=80).splitlines() if line.startswith("holdout only")]
    assert len(rows) == 3
    assert all("cannot be" in " ".join(row) for row in rows)
    for text in (said(run, width=80), Parsed(report_html([run])).text):
        assert "needs known members (50 or more), or shadow models of the target's own recipe" in text
        assert "nobody knows" in text
        assert "with 95% probability, given 500 known members and shadow models" in text
    assert "takes known members (50 or more)" in said(power_run(audit=power_audit(1.0, 20, 20)))


def test_a_run_that_did_not_plan_with_members_is_read_and_shown():
    value = as_json(power_run())
    del value["memory"], value["conclusions"]
    result = from_json(PowerRecord, value)
    POWER.check(result, {})
    run = replace(power_run(), result=result)
    for text in (said(run), Parsed(report_html([run])).text):
        assert "What could be concluded" not in text


def test_its_figure_has_a_line_for_each_size_and_the_same_bytes():
    audit = power_audit()
    (axes,) = audit.plot().axes
    drawn = [np.asarray(line.get_ydata()).tolist() for line in axes.lines[:3]]
    assert drawn == [list(size.probabilities) for size in audit.sizes]
    assert np.asarray(axes.lines[3].get_ydata()).tolist() == [0.95, 0.95]
    assert np.asarray(axes.lines[4].get_xdata()).tolist() == [0.1, 0.1]
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines[:3]}
    assert len(looks) == 3
    assert as_svg(settled(audit.plot)) == as_svg(settled(audit.plot))


@pytest.mark.parametrize("fraction", [0.02, 0.9])
def test_one_number_of_records_is_said(fraction: float):
    """Two approximations differ by some percent; of a question that the records do not answer the finding has both."""
    run = power_run(audit=power_audit(fraction, 300, 300, KNOWN))
    finding, needed = run.result.finding, run.result.records_needed
    assert finding.verdict == ("sufficient" if fraction > 0.5 else "insufficient")
    assert needed is not None
    for text in (said(run), Parsed(report_html([run])).text):
        assert ("Records that suffice" in text) == (finding.verdict == "sufficient")
        numbers = {
            int(found.replace(",", "")) for found in re.findall(r"([\d,]+) query(?: and as many|, [\d,]+ h)", text)
        }
        assert len(numbers - {300}) == 1

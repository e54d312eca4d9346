"""The `power` answer as JSON, on a terminal and on a page."""

import msgspec
import numpy as np
import pytest
from support.saved_runs import as_json
from support.saved_runs.power import KNOWN, power_audit, power_run

from jaxaudit.audits.power.result import FRACTIONS
from jaxaudit.metrics.power import Separation, detection_probability, min_detectable_fraction
from jaxaudit.plots.export import as_svg, with_default_style
from jaxaudit.report.power.view import POWER

HOPELESS = power_audit(0.01, 1_234_567, 1_000_000, Separation(0.3, 0.05, 0.04, 0.09, 6))

pytestmark = pytest.mark.usefixtures("no_charts")


def test_the_numbers_of_json():
    run = power_run()
    assert POWER.stored(run.result) is None
    result = as_json(run)
    assert result["separation"] == msgspec.structs.asdict(KNOWN)
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


def test_its_figure_has_a_line_for_each_size_and_the_same_bytes():
    audit = power_audit()
    (axes,) = audit.plot().axes
    drawn = [np.asarray(line.get_ydata()).tolist() for line in axes.lines[:3]]
    assert drawn == [[each.probability for each in size.chances] for size in audit.result.sizes]
    assert np.asarray(axes.lines[3].get_ydata()).tolist() == [0.95, 0.95]
    assert np.asarray(axes.lines[4].get_xdata()).tolist() == [0.1, 0.1]
    assert as_svg(with_default_style(audit.plot)) == as_svg(with_default_style(audit.plot))

"""The `efficacy` answer as JSON, on a terminal and on a page."""

import msgspec
import numpy as np
import pytest
from support.html_pages import Parsed
from support.saved_runs import as_json
from support.saved_runs.efficacy import efficacy_audit, efficacy_run, weights
from support.terminals import shown

from jaxaudit.audits.efficacy import result as module
from jaxaudit.audits.efficacy.result import Layer
from jaxaudit.kernels.likelihoods import Gaussian
from jaxaudit.report.efficacy import pictures
from jaxaudit.report.html.render import report_html
from jaxaudit.report.record import Run

pytestmark = pytest.mark.usefixtures("no_charts")

NOTE = "All began with the same weights."


def test_its_figure_has_a_row_for_each_weights_and_infinite_ones_too():
    figure = efficacy_audit(weights("mine", [0.0, 0.0]), weights("retrained", [1.0, 4.0])).plot()
    efficacies, bounds = figure.axes
    assert [label.get_text() for label in efficacies.get_yticklabels()] == ["mine", "retrained"]
    drawn = [np.asarray(line.get_xdata()).tolist() for line in efficacies.lines if line.get_marker() == "o"]
    assert drawn == [[], [0.4]]
    legend = bounds.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["mine", "retrained"]


def test_the_numbers_of_json():
    audit = efficacy_audit(weights("perfect", [0.0, 0.0, 0.0]), weights("other", [1.0, 2.0, 3.0]), notes=(NOTE,))
    result = as_json(efficacy_run(audit=audit))
    perfect, other = result["models"]
    assert perfect["efficacy"] == perfect["bound"] == perfect["layers"][0]["efficacy"] == "infinity"
    assert (perfect["role"], other["role"]) == ("judged", "reference")
    assert (other["efficacy"], other["information"], other["bound"]) == (0.5, 2.0, 1.0)
    assert result["records"][2] == {
        "index": 2,
        "class": "c",
        "information": {"perfect": 0.0, "other": 3.0},
        "similarity": {},
    }
    assert result["finding"]["verdict"] == "no verdict"
    assert result["finding"]["caveats"] == list(audit.finding.caveats)
    assert audit.finding.caveats[-1] == NOTE
    columns = audit.columns
    assert columns["information of other"].tolist() == [1.0, 2.0, 3.0]
    assert columns["class"].tolist() == ["a", "b", "c"]


def test_what_else_was_measured_is_on_the_page():
    """The true information, the likelihood and the similarity."""
    judged, other = weights("mine", [0.5, 0.1, 0.15]), weights("retrained", [1.0, 2.0, 3.0])
    measured = judged.by_layer._replace(mean_gradient_norm=0.25, similarity=np.array([0.5, -0.125, np.nan]))
    more = judged._replace(by_layer=measured, accuracy=None, true_norms=np.full(3, 3.0))
    audit = efficacy_audit(more, other, likelihood=Gaussian(2.0))
    result = as_json(efficacy_run(audit=audit))
    model = result["models"][0]
    assert (model["true_information"], model["mean_gradient_norm"], model["accuracy"]) == (3.0, 0.25, None)
    assert [record["similarity"] for record in result["records"]] == [{"mine": 0.5}, {"mine": -0.125}, {"mine": None}]
    assert audit.columns["similarity of mine"][1] == -0.125
    page = Parsed(report_html([efficacy_run(audit=audit)])).text
    for words in ("s = 2", "The information above is empirical", "True Fisher information 3", "-0.125", "0.25"):
        assert words in page
    usual = efficacy_run(audit=efficacy_audit(judged, other))
    assert "Log-likelihood" not in Parsed(report_html([usual])).text


def test_the_records_that_are_listed_are_those_that_the_weights_fit_best():
    run = efficacy_run(audit=efficacy_audit(weights("model", [3.0, 0.5, 1.0])))
    rows = [line.split() for line in shown(run, width=80, top=2).splitlines() if line.split()[1:2] in (["b"], ["c"])]
    assert [row[0] for row in rows] == ["1", "2"]
    assert [row[2] for row in rows] == ["0.5", "1"]
    assert "The 2 records that the weights fit best" in shown(run, width=80, top=2)
    assert "fit best" not in shown(run, top=0)


def test_beyond_so_many_records_those_that_fit_best_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LISTED", 2)
    result = efficacy_run(audit=efficacy_audit(weights("model", [3.0, 0.5, 1.0]))).result
    assert [record.index for record in result.records] == [1, 2]
    assert result.records_measured == 3


def test_its_layers_are_one_chart_of_the_largest(monkeypatch: pytest.MonkeyPatch):
    result = efficacy_run(audit=efficacy_audit(weights("mine", [1.0, 2.0]), weights("before", [4.0, 8.0]))).result
    names = ("first", "second", "third")
    models = [
        msgspec.structs.replace(
            model, layers=tuple(Layer(name, 1.0, size * (1 + place), 1.0) for place, name in enumerate(names))
        )
        for size, model in zip((1.0, 4.0), result.models, strict=True)
    ]
    run = Run("a run", "efficacy", msgspec.structs.replace(result, models=tuple(models)), {})
    monkeypatch.setattr("jaxaudit.plots.unlearn.MOST_LAYERS", 2)
    (picture,) = [each for each in pictures.pictures(run) if each.name == "layers"]
    drawn = {line.get_label(): np.asarray(line.get_xdata()).tolist() for line in picture.draw().axes[0].lines}
    assert drawn == {"mine": [2.0, 3.0], "before": [8.0, 12.0]}
    assert "2 of 3 layers" in picture.caption

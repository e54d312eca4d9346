"""The answer of `unlearn --outputs` as JSON, on a terminal and on a page."""

import jsonschema
import pytest
from support.html_pages import Parsed
from support.saved_runs import as_json
from support.saved_runs.unlearn_outputs import unlearn_outputs_run
from support.terminals import said

from jaxaudit.report.build import build, part_of
from jaxaudit.report.html.render import report_html
from jaxaudit.report.kinds import schema_of

pytestmark = pytest.mark.usefixtures("no_charts")


def test_every_number_is_in_json_on_the_terminal_and_on_the_page():
    run = unlearn_outputs_run("mine")
    result, text, page = as_json(run), said(run), Parsed(report_html([run])).text
    jsonschema.validate(result, schema_of("unlearn_outputs"))
    assert schema_of("unlearn_outputs")["title"] == "jaxaudit unlearn --outputs"
    assert [method["name"] for method in result["methods"]] == ["retrained again", "original", "mine", "few"]
    mine = result["methods"][2]
    numbers = [mine["u_lira"], mine["challenge"]["quality"], mine["challenge"]["score"], mine["test_accuracy"]["mean"]]
    for number in numbers:
        for value in number.values():
            assert f"{value:.2f}" in text
            assert f"{value:.2f}" in page
    for words in ("distinguishable", "`few` has 3 models", "needs 1,000 pairs"):
        assert words in text
        assert words in page
    assert mine["true_positive_rate"] is None


def test_charts_have_every_method_that_was_compared_and_runs_side_by_side_none():
    run = unlearn_outputs_run("mine")
    pictures = {picture.name: picture for picture in part_of(run).pictures()}
    assert list(pictures) == ["quality", "u-lira"]
    for picture in pictures.values():
        assert [row[0] for row in picture.numbers.rows] == ["retrained again", "original", "mine"]
    assert build([run, unlearn_outputs_run("other")]).pictures == ()

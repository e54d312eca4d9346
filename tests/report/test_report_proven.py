"""The report of a `pdtp` run for which a bound of DTP is proven."""

import pytest
from support.html_pages import Parsed
from support.report_runs import pdtp_run

from jaxaudit.report.html.render import report_html


@pytest.mark.parametrize(
    ("bound", "word", "lower"), [(0.4, "strong", False), (2.0, "fair", True), (None, "fair", True)]
)
def test_publish_is_as_sure_as_what_is_proven(bound: float | None, word: str, lower: bool):
    run = pdtp_run()
    changed = {"verdict": "publish", "publish": True, "because": "so it is", "dtp_bound": bound}
    text = Parsed(report_html([run._replace(result={**run.result, **changed})])).text
    assert f"Confidence it deserves {word}" in text
    assert ("PDTP is a lower bound: it asks" in text) is lower

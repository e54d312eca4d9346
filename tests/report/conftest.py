"""What several files of this folder share."""

from html import escape

import pytest


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts take long to draw; tests that do not look at them have a page with their words alone."""

    def words(_: object, key: str, title: str, description: str) -> str:
        return f"<p>{escape(title)} {escape(description)}</p>"

    monkeypatch.setattr("jaxaudit.report.html.as_inline_svg", words)
    monkeypatch.setattr("jaxaudit.report.html.with_default_style", lambda draw: None)

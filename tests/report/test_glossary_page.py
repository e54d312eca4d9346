"""The glossary for readers of the site has every term that a report explains."""

from pathlib import Path

from jaxaudit.report.glossary import GLOSSARY

PAGE = Path(__file__).parent.parent.parent / "docs" / "glossary.md"


def test_the_page_has_every_term_of_the_reports_once():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [term for term in GLOSSARY if lines.count(term) != 1] == []

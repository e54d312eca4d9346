"""Text of anybody's result is shown as it is: no link, list or entry is made of it."""

import pytest
from fuzz.printed import check_bibliography, check_markdown

from jaxaudit.report.markdown import plain
from jaxaudit.report.papers import as_bibtex
from jaxaudit.report.record import Paper


@pytest.mark.parametrize("text", ["@misc{own, title={x}}", "a\n@string{own = {x}}", "own attack (mail@example.org)"])
def test_a_source_without_an_entry_is_no_entry(text: str):
    """In BibTeX an @ begins an entry wherever it stands: there are no comments."""
    check_bibliography(as_bibtex([Paper(text)], "0.1.0"))


@pytest.mark.parametrize("text", ["www.example.org", "1. x", "2) x", "- x", "+ x", "---", "===", "-", "-0.5", "#1"])
def test_a_name_at_the_beginning_of_a_line_is_a_name(text: str):
    check_markdown(f"# A\n\n{plain(text)}\n\nx\n{plain(text)}\n")
    check_markdown(f"# A\n\n- {plain(text)}: x\n")


@pytest.mark.parametrize("text", ["-0.5", "3.25", "a-b", "-12%"])
def test_numbers_stay_as_they_are(text: str):
    assert plain(text) == text

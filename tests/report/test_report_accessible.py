"""axe-core finds nothing serious on a page, keys reach what can be reached, and nothing is lost in print.

axe-core is not part of this repository: `pip install --no-deps axe-playwright-python`, which ships it as a file.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from support.chromium import Browser, chromium, find
from support.saved_runs import RUNS
from support.saved_runs.names import HOSTILE

from jaxaudit.report.html.render import report_html

PHONE, DESKTOP = (390, 844), (1280, 900)
PROGRAM = find()
SPEC = find_spec("axe_playwright_python")
AXE = Path(SPEC.submodule_search_locations[0]) / "axe.min.js" if SPEC and SPEC.submodule_search_locations else None
# Where they are asked for, their absence is a failure.
ASKED = bool(os.environ.get("JAXAUDIT_NEEDS_BROWSER"))

pytestmark = [
    pytest.mark.outer,
    pytest.mark.skipif(PROGRAM is None and not ASKED, reason="Chromium is not installed"),
]
needs_axe = pytest.mark.skipif(
    AXE is None and not ASKED, reason="axe-core is not installed: pip install --no-deps axe-playwright-python"
)

FOUND = """axe.run(document, {resultTypes: ['violations']}).then(said => said.violations.map(each => ({
  rule: each.id, impact: each.impact, help: each.help, nodes: each.nodes.slice(0, 3).map(node => node.html)
})))"""
REACHED = """[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle,
  document.activeElement.getBoundingClientRect().width]"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None, "Chromium is not installed"
    with chromium(PROGRAM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file a page."""
    folder = tmp_path_factory.mktemp("pages")
    several = [make() for make in RUNS.values() for _ in range(2)]
    hostile = [replace(make(HOSTILE), name=HOSTILE) for make in RUNS.values()]
    for name, runs in {
        **{kind: [make()] for kind, make in RUNS.items()},
        "several": several,
        "hostile": hostile,
    }.items():
        (folder / f"{name}.html").write_text(report_html(runs), encoding="utf-8")
    return folder


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("name", [*RUNS, "several", "hostile"])
def test_axe_finds_nothing(browser: Browser, pages: Path, name: str, size: tuple[int, int], scheme: str):
    assert AXE is not None, "axe-core is not installed"
    browser.open(pages / f"{name}.html", *size, scheme)
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    browser.evaluate(AXE.read_text(encoding="utf-8") + "; 0")
    assert browser.evaluate(FOUND) == []


def press(browser: Browser, key: str, code: int, **more: str) -> None:
    """A key, down and up."""
    for kind in ("keyDown", "keyUp"):
        own = more if kind == "keyDown" else {}
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **own)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_keys_reach_every_part_that_opens_or_scrolls_and_show_where_they_are(
    browser: Browser, pages: Path, size: tuple[int, int]
):
    browser.open(pages / "ks.html", *size)
    wanted = browser.evaluate(
        "[...document.querySelectorAll('summary, details[open] .scroll, body .scroll, pre')]"
        ".filter(each => each.checkVisibility() && each.tabIndex >= 0).length"
    )
    seen = []
    for _ in range(wanted + 5):
        press(browser, "Tab", 9)
        seen.append(tuple(browser.evaluate(REACHED)))
        if seen[-1][0] == "BODY":
            break
    reached = [each for each in seen if each[0] != "BODY"]
    assert len(reached) == wanted
    assert all(outline == "solid" and width > 0 for _, outline, width in reached)
    # What a key has reached it opens.
    browser.evaluate("document.querySelector('summary').focus()")
    press(browser, "Enter", 13, text="\r")
    assert browser.evaluate("document.querySelector('summary').parentElement.open") is True


@pytest.mark.parametrize("name", [*RUNS, "several"])
def test_headings_begin_with_one_and_skip_no_level(browser: Browser, pages: Path, name: str):
    browser.open(pages / f"{name}.html", *DESKTOP)
    levels = browser.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(each => +each.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


WIDER = """[...document.querySelectorAll('main *')].filter(e => e.checkVisibility()
  && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60)).slice(0, 5)"""


@pytest.mark.parametrize("name", [*RUNS, "several"])
def test_nothing_is_cut_off_in_print(browser: Browser, pages: Path, name: str):
    # A4 less its margins, in pixels of a page.
    browser.open(pages / f"{name}.html", 695, 1017)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(WIDER) == []
    browser.call("Emulation.setEmulatedMedia", media="")

"""The report in a real browser: no error, no request, nothing wider than the screen, no words on one another.

axe-core finds nothing serious, and nothing is lost in print. axe-core is not part of this repository:
`pip install --no-deps axe-playwright-python`, which ships it as a file.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.chromium import Browser, chromium, find
from support.saved_runs import RUNS
from support.saved_runs.groups import groups_run
from support.saved_runs.names import HOSTILE

from jaxaudit.report import report_html

PROGRAM = find()
SPEC = find_spec("axe_playwright_python")
AXE = Path(SPEC.submodule_search_locations[0]) / "axe.min.js" if SPEC and SPEC.submodule_search_locations else None
# Where they are asked for, their absence is a failure.
ASKED = bool(os.environ.get("JAXAUDIT_NEEDS_BROWSER"))
needs_browser = pytest.mark.skipif(
    PROGRAM is None and not ASKED, reason="Chromium is not installed (Debian: apt-get install chromium)"
)
needs_axe = pytest.mark.skipif(
    AXE is None and not ASKED, reason="axe-core is not installed: pip install --no-deps axe-playwright-python"
)
PHONE, DESKTOP = SIZES = (360, 740), (1280, 900)
PAGES = {**RUNS, "groups": groups_run} | {
    f"hostile {kind}": lambda make=make: replace(make(HOSTILE), name=HOSTILE) for kind, make in RUNS.items()
}

WIDER = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, svg, details:not([open])')
  && e.getBoundingClientRect().right > innerWidth + 0.5)
  .map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60))"""
OVERLAPPING = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());
  const boxes = texts.map(t => t.getBoundingClientRect());
  const turned = texts.map(t => / rotate\\(-[1-9]|^rotate\\(-[1-9]/.test(t.getAttribute('transform') || ''));
  const out = svg.getBoundingClientRect(), found = [];
  boxes.forEach((a, i) => {
    if (a.left < out.left - 2 || a.right > out.right + 2 || a.top < out.top - 2 || a.bottom > out.bottom + 2)
      found.push('outside: ' + texts[i].textContent);
    boxes.slice(0, i).forEach((b, j) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      // The box of a turned word is larger than the word.
      if (wide > 1.5 && high > 3 && !turned[i] && !turned[j])
        found.push(texts[i].textContent + ' on ' + texts[j].textContent);
    });
  });
  return found.map(words => svg.querySelector('title').textContent + ': ' + words);
})"""
FOUND = """axe.run(document, {resultTypes: ['violations']}).then(said => said.violations.map(each => ({
  rule: each.id, impact: each.impact, help: each.help, nodes: each.nodes.slice(0, 3).map(node => node.html)
})))"""
WIDER_THAN_PAPER = """[...document.querySelectorAll('main *')].filter(e => e.checkVisibility()
  && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60)).slice(0, 5)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None, "Chromium is not installed"
    with chromium(PROGRAM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file a page."""
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(report_html(make()), encoding="utf-8")
    return folder


@needs_browser
@pytest.mark.outer
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_renders(browser: Browser, pages: Path, name: str, size: tuple[int, int]):
    path = pages / f"{name}.html"
    browser.open(path, *size)
    charts = browser.evaluate("document.querySelectorAll('figure svg').length")
    assert (charts > 0) == (name.removeprefix("hostile ") not in ("efficacy", "groups", "unlearn_outputs"))
    said = browser.happened("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    assert said == []
    asked = [each["request"]["url"] for each in browser.happened("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert browser.evaluate(WIDER) == []
    assert browser.evaluate(OVERLAPPING) == []
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert browser.evaluate("document.title").endswith(" - jaxaudit")


@needs_browser
@needs_axe
@pytest.mark.outer
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(browser: Browser, pages: Path, name: str, size: tuple[int, int], scheme: str):
    assert AXE is not None, "axe-core is not installed"
    browser.open(pages / f"{name}.html", *size, scheme)
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    browser.evaluate(AXE.read_text(encoding="utf-8") + "; 0")
    assert browser.evaluate(FOUND) == []


@needs_browser
@pytest.mark.outer
@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_cut_off_in_print(browser: Browser, pages: Path, name: str):
    # A4 less its margins, in pixels of a page.
    browser.open(pages / f"{name}.html", 695, 1017)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(WIDER_THAN_PAPER) == []
    browser.call("Emulation.setEmulatedMedia", media="")

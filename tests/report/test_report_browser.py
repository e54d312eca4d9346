"""The report in a real browser: no error, no request, nothing wider than the screen, no words on one another."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.chromium import Browser, chromium, find
from support.saved_runs import RUNS
from support.saved_runs.names import HOSTILE

from jaxaudit.report.html.render import report_html

pytestmark = pytest.mark.outer

PROGRAM = find()
needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"
)
PHONE, DESKTOP = (360, 740), (1280, 900)
PAGES = (*RUNS, "several", "hostile")

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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with chromium(PROGRAM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file a page."""
    folder = tmp_path_factory.mktemp("pages")
    several = [make() for make in RUNS.values() for _ in range(2)]
    hostile = [replace(make(HOSTILE), name=HOSTILE) for make in RUNS.values() for _ in range(2)]
    made = {**{kind: [make()] for kind, make in RUNS.items()}, "several": several, "hostile": hostile}
    for name, runs in made.items():
        (folder / f"{name}.html").write_text(report_html(runs), encoding="utf-8")
    return folder


@needs_browser
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_renders(browser: Browser, pages: Path, name: str, size: tuple[int, int]):
    path = pages / f"{name}.html"
    browser.open(path, *size)
    assert browser.evaluate("document.querySelectorAll('svg[role=img]').length") > 0
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
def test_dark_mode_has_other_colours(browser: Browser, pages: Path):
    colours = {}
    for scheme in ("light", "dark"):
        browser.open(pages / "ks.html", *DESKTOP, scheme)
        colours[scheme] = browser.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
            " getComputedStyle(document.querySelector('svg text')).fill]"
        )
    light, dark = ([_lightness(colour) for colour in colours[scheme]] for scheme in ("light", "dark"))
    assert light[0] > 200 > 100 > max(light[1:])
    assert dark[0] < 60 < 180 < min(dark[1:])


@needs_browser
def test_it_prints(browser: Browser, pages: Path):
    browser.open(pages / "ks.html", *DESKTOP, "dark")
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert 2 <= printed.count(b"/Type /Page\n") <= 8


def test_a_browser_is_looked_for_by_its_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find() is None
    program = tmp_path / "chromium-browser"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find() == str(program)


def _lightness(colour: str) -> float:
    """Of `rgb(r, g, b)`, from 0 to 255."""
    return sum(float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]) / 3

"""The report: what a page says, what it may never hold, and what is not a run."""

import json
import os
import stat
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import msgspec
import pytest
from fuzz.printed import check_page
from support.cli_runs import jaxaudit
from support.html_pages import ALLOWED, Parsed
from support.saved_runs import RUNS
from support.saved_runs.efficacy import efficacy_run
from support.saved_runs.ks import audit_of, judged, ks_run, without_rho
from support.saved_runs.names import HOSTILE
from support.terminals import shown

from jaxaudit.errors import InputError, visible
from jaxaudit.plots import style
from jaxaudit.report import part_of, report_html, to_json
from jaxaudit.runs import claim_report, read_run, write_report


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """A page a kind of run."""
    return {kind: report_html(make()) for kind, make in RUNS.items()}


@pytest.mark.parametrize("kind", RUNS)
def test_a_page_is_whole_and_holds_nothing_that_runs_or_fetches(pages: dict[str, str], kind: str):
    page = Parsed(pages[kind])
    assert pages[kind].startswith("<!DOCTYPE html>\n")
    assert len(page.all("h1")) == 1
    assert {tag for tag, _ in page.elements} <= ALLOWED
    check_page(pages[kind])
    assert page.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3", "h4")]
    assert all(deeper - level <= 1 for level, deeper in pairwise(levels))
    policy = next(meta for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert (policy["content"] or "").startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    for _, attributes in page.elements:
        assert "url(" not in (attributes.get("style") or "").replace("url(#", "")
    assert "@import" not in pages[kind]
    assert "url(" not in pages[kind].split("</style>")[0]


@pytest.mark.parametrize("kind", RUNS)
def test_every_chart_is_named_and_its_numbers_are_in_a_table(pages: dict[str, str], kind: str):
    page = Parsed(pages[kind])
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    charts = page.all("svg")
    assert len(charts) == len(page.all("figure")) == len(page.all("figcaption"))
    # Efficacy has a few numbers a set of weights, and a table of them.
    assert bool(charts) == (kind not in ("efficacy", "unlearn_outputs"))
    assert len(page.all("table")) >= len(charts)
    for chart in charts:
        assert chart["role"] == "img"
        assert set((chart["aria-labelledby"] or "").split()) <= set(ids)
    used = {(each["href"] or "")[1:] for each in page.all("use")}
    assert used <= set(ids)
    # Its words are words, and its colours are the page's.
    assert not charts or "<text" in pages[kind]
    inside = pages[kind].split("</style>", 1)[1]
    assert not [colour for colour in style.VARIABLES if colour in inside]


@pytest.mark.parametrize("kind", RUNS)
def test_hostile_names_stay_text(kind: str):
    notes = {"notes": (HOSTILE,)} if kind in ("efficacy", "unlearn") else {}
    run = replace(RUNS[kind](HOSTILE, **notes), name=HOSTILE)
    html = report_html(run)
    page = Parsed(html)
    assert {tag for tag, _ in page.elements} <= ALLOWED
    assert not page.all("script")
    assert visible(HOSTILE) in page.text
    assert "\u202e" not in html
    assert "{{ 7*7 }}" in page.text
    for text in (html, shown(run)):
        assert not {c for c in text if not c.isprintable()} - {"\n"}


def test_the_same_run_gives_the_same_bytes(pages: dict[str, str]):
    own: Any = {
        "axes.facecolor": "red",
        "font.size": 30,
        "svg.fonttype": "path",
        "lines.linewidth": 9,
        "figure.dpi": 300,
    }
    with matplotlib.rc_context(own):
        again = report_html(ks_run())
        assert matplotlib.rcParams["axes.facecolor"] == "red"
    assert again == pages["ks"]


def test_a_file_of_json_is_shown_without_the_pictures_it_lacks(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(to_json(ks_run().result)))
    run = read_run(path)
    assert part_of(run).pictures == ()
    assert [picture.name for picture in part_of(ks_run()).pictures] == ["confidences-0", "confidences-1"]
    assert "Has the target forgotten" in report_html(run)


@pytest.mark.usefixtures("no_charts")
def test_a_report_replaces_nothing_but_a_report(tmp_path):
    report, mine, run = tmp_path / "report.html", tmp_path / "mine.html", efficacy_run()
    mine.write_text("<!DOCTYPE html>\n<p>my own page</p>")
    write_report(report, run)
    first = report.read_bytes()
    (tmp_path / "link.html").symlink_to("report.html")
    (tmp_path / "gone.html").symlink_to("nowhere")
    os.mkfifo(tmp_path / "channel.html")
    for name in ("mine.html", "link.html", "gone.html", "channel.html"):
        for attempt in (claim_report, lambda path: write_report(path, run)):
            with pytest.raises(InputError, match=name):
                attempt(tmp_path / name)
    with pytest.raises(InputError, match="a device"):
        claim_report(Path(os.devnull))
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)
    (tmp_path / ".writing-report.html").symlink_to(mine)
    write_report(report, run)
    assert report.read_bytes() == first
    assert "my own page" in mine.read_text()
    assert sorted(os.listdir(tmp_path)) == [
        *(".writing-report.html", "channel.html", "gone.html", "link.html", "mine.html", "report.html")
    ]


def test_where_a_report_cannot_be(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    (tmp_path / "a").mkdir()
    for name, out, words in (
        ("", None, r"is a directory; name a file, such as .*report\.html"),
        ("none/report.html", None, "none"),
        ("locked/report.html", None, "locked is not writable"),
        ("x" * 300, None, "File name too long"),
        # A report and its run cannot take one place.
        *((name, "run", "`out`") for name in ("run", "run/RECORDS.csv", "run/unfinished/page.html")),
        *(("page", "page/run", "`out`"), ("./a/../run/table.txt", "run", "`out`")),
    ):
        with pytest.raises(InputError, match=words):
            claim_report(tmp_path / name, tmp_path / out if out else None)
    for name in ("page.html", "run/report.html"):
        claim_report(tmp_path / name, tmp_path / "run")


@pytest.mark.usefixtures("no_charts")
def test_a_run_is_reported_as_its_command_printed_and_drew_it(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    quick = ("pdtp", "--data", "wine", "--model", "nb")
    first = jaxaudit(*quick, "--report", "run/page.html", "--out", "run")
    assert first.code == 0, first.err
    assert first.err.endswith("written: run/page.html\n")
    assert "--report" not in json.loads((tmp_path / "run" / "result.json").read_text())["provenance"]["command"]
    table = (tmp_path / "run" / "table.txt").read_text()
    assert [line for line in table.splitlines() if line.strip()] == [
        line for line in jaxaudit(*quick, "--details").out.splitlines() if line.strip()
    ]
    assert not (tmp_path / "report.html").exists()
    (tmp_path / "mine.html").write_text("mine")
    for command in ("ks", "pdtp", "attack"):
        refused = jaxaudit(command, "--report", "mine.html")
        assert refused.code == 2
        assert refused.err.startswith("Error: the report mine.html would overwrite a file")


def test_without_rho_used_fractions_are_plotted():
    (axes,) = without_rho().plot().axes
    assert [label.get_text() for label in axes.get_yticklabels()][2:] == [
        "outputs.csv (holdout)",
        "outputs.csv (shadow)",
    ]
    target = judged()
    own = msgspec.structs.replace(target.tests[0], name="own", details=None)
    with pytest.raises(InputError, match=r"RhoTest\(\)"):
        audit_of(msgspec.structs.replace(target, tests=(own,))).plot()

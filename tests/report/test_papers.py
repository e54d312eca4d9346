"""What a run rests on: every paper that is named has an entry, every term a source and a place on the site."""

import ast
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fuzz.printed import check_bibliography
from support.cli_runs import jaxaudit
from support.saved_runs import RUNS, as_json, save
from support.saved_runs.names import HOSTILE

from jaxaudit import ScoresTest, unlearning
from jaxaudit.attacks.records import RECORD_ATTACKS
from jaxaudit.audits import ATTACKS
from jaxaudit.audits.ks.tests_of_use import TESTS
from jaxaudit.cli.unlearn.run import FIELDS, make_methods
from jaxaudit.errors import visible
from jaxaudit.models import GPT, pure_module
from jaxaudit.report import GLOSSARY, as_bibtex, bibliography, cited, papers
from jaxaudit.unlearning.method import papers_of

ON_THE_SITE_ALONE = {"tong2025usage", "mann1947test", "huang2021ema"}
"""Docstrings or pages name them; no run rests on them."""
ROOT = Path(__file__).parents[2]
NET = pure_module(GPT, (4,), 8, of_tokens=True)


def of_modules() -> dict[str, str]:
    """What modules of the package name as the source of a number."""
    sources: dict[str, str] = {}
    for path in sorted((ROOT / "jaxaudit").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            name = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
            if isinstance(node, ast.Assign) and name.endswith("SOURCE") and isinstance(node.value, ast.Constant):
                sources[f"{path.parent.name} {path.stem} {name}"] = str(node.value.value)
    return sources


SOURCES = {
    **of_modules(),
    **{f"test {each.name}": getattr(each, "source", "") for each in (*TESTS, ScoresTest)},
    **{f"attack {each.name}": each.source for each in (*ATTACKS, *RECORD_ATTACKS)},
    **{f"method {name}": papers_of(method) for name, method in make_methods(FIELDS, 8, NET).items()},
    "method retraining": papers_of(unlearning.retrain),
    "method amnesiac": papers_of(unlearning.train_and_record),
}


@pytest.mark.parametrize("what", SOURCES)
def test_what_it_rests_on_has_an_entry(what: str):
    words = [each.strip() for each in SOURCES[what].split(";")]
    papers = cited([SOURCES[what]])
    assert papers
    assert len(papers) == len([each for each in words if each != "jaxaudit"])
    assert all(paper.key for paper in papers), papers


def test_every_source_of_the_glossary_is_a_paper_or_this_program():
    sources = {source for _, source in GLOSSARY.values()} - {"this program"}
    assert len(papers(sources)) == len(sources)


def test_every_entry_is_whole_and_is_cited():
    explained = (source for _, source in GLOSSARY.values())
    named = {paper.key for paper in cited([*SOURCES.values(), *explained, "Holm 1979"])} - {None}
    for entry in bibliography():
        assert re.match(r"@(inproceedings|article|misc)\{[a-z]+\d{4}[a-z]+,\n", entry.bibtex)
        assert entry.bibtex.count("{") == entry.bibtex.count("}")
        assert not re.search("^  (cited|used|part) =", entry.bibtex, re.MULTILINE)
        fields = re.findall(r"^  (\w+) = \{.+\},$", entry.bibtex, re.MULTILINE)
        assert {"author", "title", "year"} <= set(fields)
        # A reader finds it: by a number, or by its pages in a journal.
        assert {"doi", "url"} & set(fields) or {"journal", "pages"} <= set(fields)
        assert entry.source.split()[0].strip(",").lower().replace("ä", "a").replace("-", "") in entry.key
        assert re.search(r"\d{4}", entry.source).group() in entry.key  # pyright: ignore[reportOptionalMemberAccess]
    assert {entry.key for entry in bibliography()} - ON_THE_SITE_ALONE == named


@pytest.mark.parametrize("source", ["} @misc{x, title = {x}}", "a\n@string{own = {x}}", "mail@example.org", HOSTILE])
def test_nothing_of_a_result_but_keys_is_in_the_bibliography(tmp_path: Path, source: str):
    run = RUNS["pdtp"]()
    value = as_json(run)
    value["papers"] = [
        {"source": source, "key": None},
        {"source": f"{source} 2", "key": source},
        {"source": f"{source} 3", "key": "long2017membership"},
    ]
    value["provenance"]["jaxaudit"] = "1.0}} @misc{x,"
    save(run, tmp_path / "run", value)
    done = jaxaudit("cite", str(tmp_path / "run"))
    assert done.code == 0, done.err
    check_bibliography(done.out)
    assert re.findall(r"^@\w+\{(\w+),", done.out, re.MULTILINE) == ["long2017membership", "jaxaudit"]
    assert "\x1b" not in done.out + done.err
    assert done.err.count("no entry is known for: ") == 2
    assert f"no entry is known for: {visible(source)}\n" in done.err


def test_several_runs_are_cited_once_and_the_program_with_its_version(tmp_path: Path):
    for kind in ("pdtp", "efficacy"):
        save(RUNS[kind](), tmp_path / kind)
        save(RUNS[kind](), tmp_path / f"{kind} again")
    done = jaxaudit("cite", *(str(tmp_path / name) for name in ("pdtp", "pdtp again", "efficacy", "efficacy again")))
    assert done.code == 0
    assert re.findall(r"^@\w+\{(\w+),", done.out, re.MULTILINE) == [
        *("long2017membership", "becker2022unlearning", "jaxaudit")
    ]
    assert "version = {0.1.0}" in done.out
    assert "version = {1}" in as_bibtex([], "1}%{")


@dataclass(frozen=True)
class Shuffle:
    """A setting of a method that names its own paper."""

    source: ClassVar[str] = "Holm 1979"


def test_a_partial_names_the_papers_of_its_settings():
    scrub: Any = unlearning.scrub
    method = partial(partial(scrub, epochs=3), noise=Shuffle())
    assert papers_of(method) == "Kurmanji et al. 2023; Holm 1979"
    assert papers_of(partial(print)) == ""


PAGE = ROOT / "docs" / "glossary.md"


def test_the_page_has_every_term_of_the_reports_once():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [term for term in GLOSSARY if lines.count(term) != 1] == []

"""What a run rests on: every paper that a test, an attack, a method or a metric names has an entry; runs say theirs."""

import json
import re
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
from support.cli_runs import jaxaudit
from support.saved_runs import RUNS, as_json, save
from support.saved_runs.ks import USED
from support.saved_runs.names import HOSTILE
from support.saved_runs.unlearn import unlearn_audit, unlearn_run

from jaxaudit import unlearning
from jaxaudit.attacks import ATTACKS
from jaxaudit.attacks.learned import SOURCE as LEARNED
from jaxaudit.attacks.records import RECORD_ATTACKS
from jaxaudit.audits.finding import Confidence, Finding
from jaxaudit.audits.ks.several import adjusted
from jaxaudit.audits.ks.tests import TESTS, Judgement
from jaxaudit.cli.unlearn.command import METHODS, UnlearnAudit
from jaxaudit.cli.unlearn.inputs import make_methods
from jaxaudit.errors import visible
from jaxaudit.report.glossary import GLOSSARY
from jaxaudit.report.kinds import schema_of
from jaxaudit.report.papers import as_bibtex, bibliography, cited, in_full
from jaxaudit.report.record import Paper
from jaxaudit.unlearning.method import source_of

METRICS = ("pdtp", "efficacy", "forgetting_quality", "u_lira", "epsilon", "attack_rates", "attack")
ON_THE_SITE_ALONE = {"tong2025usage", "mann1947test"}
"""Docstrings name them; no run rests on them."""
FINDING = Finding("forgotten", "good", "No use was detected.", (), Confidence("fair", "Every check passed."))
SOURCES = {
    **{f"test {each.name}": getattr(each, "source", "") for each in TESTS},
    **{f"attack {each.name}": each.source for each in (*ATTACKS, *RECORD_ATTACKS)},
    **{f"metric {name}": import_module(f"jaxaudit.metrics.{name}").SOURCE for name in METRICS},
    **{
        f"method {name}": source_of(method)
        for name, method in make_methods(METHODS, UnlearnAudit(), batch_size=8).items()
    },
    "attack of unlearned models": LEARNED,
    "method retraining": source_of(unlearning.retrain),
    "method amnesiac": source_of(unlearning.train_and_record),
}


@pytest.mark.parametrize("what", SOURCES)
def test_what_it_rests_on_has_an_entry(what: str):
    words = [each.strip() for each in SOURCES[what].split(";")]
    papers = cited([SOURCES[what]])
    assert papers
    assert len(papers) == len([each for each in words if each != "jaxaudit"])
    assert all(paper.bibtex for paper in papers), papers


def test_every_method_of_the_command_names_its_papers():
    assert {f"method {name}" for name in METHODS} <= SOURCES.keys()


def test_every_source_of_the_glossary_is_a_paper_or_this_program():
    sources = {source for _, source in GLOSSARY.values()} - {"this program"}
    assert [source for source in sources if in_full(source) is None] == []


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
        assert entry.source.split()[0].strip(",").lower().replace("ä", "a") in entry.key
        assert re.search(r"\d{4}", entry.source).group() in entry.key  # pyright: ignore[reportOptionalMemberAccess]
    assert {entry.key for entry in bibliography()} - ON_THE_SITE_ALONE == named


@pytest.mark.parametrize("kind", RUNS)
def test_a_result_has_its_papers_and_the_schema_knows_them(kind: str):
    value = as_json(RUNS[kind]())
    jsonschema.validate(value, schema_of(kind))
    assert value["papers"] == [] or {"source", "key", "bibtex"} == set(value["papers"][0])
    # Saved runs of ks come without its tests' values.
    assert value["papers"] or kind == "ks"
    assert next(iter(value)) == "schema"


@pytest.mark.parametrize("kind", RUNS)
def test_a_result_without_the_field_is_read_and_cited_by_its_terms(tmp_path: Path, kind: str):
    value = as_json(RUNS[kind]())
    del value["papers"]
    save(RUNS[kind](), tmp_path / "run", value)
    done = jaxaudit("cite", str(tmp_path / "run"))
    assert done.code == 0, done.err
    assert "did not note papers" in done.err
    assert done.out.count("\n@") >= 1


def test_unlearning_names_what_it_measured_with_and_every_method():
    audit = unlearn_audit({}, {"fisher": {}, "mine": {}}, told=True)
    sources = {"fisher": "Golatkar, Achille & Soatto 2020", "mine": "A paper of my own, 2026"}
    audit = replace(audit, methods=tuple(each._replace(source=sources.get(each.name, "")) for each in audit.methods))
    papers = unlearn_run(audit=audit).result.papers
    assert papers is not None
    assert [paper.key for paper in papers] == [
        *("becker2022unlearning", "nicolae2018art", "shokri2017membership", "golatkar2020eternal", None),
        *("triantafillou2024competition", "hayes2024inexact", "carlini2022membership"),
    ]
    assert papers[4] == Paper("A paper of my own, 2026")


def entries_of(text: str) -> list[tuple[str, str]]:
    """The key and the text of each entry, as BibTeX finds them: from an @ to the brace that closes the first.

    Raises:
        AssertionError: something is no entry, or there is anything but blanks between entries.
    """
    found, place = [], 0
    while text[place:].strip():
        head = re.compile(r"\s*@[a-z]+\{(\w+),").match(text, place)
        assert head is not None, text[place : place + 100]
        depth, end = 1, head.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        found.append((head[1], text[head.start() : end].strip()))
        place = end
    return found


@pytest.mark.parametrize(
    "source",
    [
        "@preamble{{\\write18{rm -rf}}}",
        "} @misc{x, title = {x}}",
        "a\n@string{own = {x}}",
        "mail@example.org",
        "% {",
        "two\nlines} @misc{x,",
        HOSTILE,
    ],
)
def test_nothing_of_a_result_but_keys_is_in_the_bibliography(tmp_path: Path, source: str):
    run = RUNS["pdtp"]()
    value = as_json(run)
    value["papers"] = [
        {"source": source, "key": None, "bibtex": source},
        {"source": f"{source} 2", "key": source, "bibtex": source},
        {"source": f"{source} 3", "key": "long2017membership", "bibtex": source},
    ]
    value["provenance"]["jaxaudit"] = "1.0}} @misc{x,"
    save(run, tmp_path / "run", value)
    done = jaxaudit("cite", str(tmp_path / "run"))
    assert done.code == 0, done.err
    *papers, (program, _) = entries_of(done.out)
    own = {entry.key: entry.bibtex for entry in bibliography()}
    assert papers == [("long2017membership", own["long2017membership"])]
    assert program == "jaxaudit"
    assert "\x1b" not in done.out + done.err
    assert done.err.count("no entry is known for: ") == 2
    assert f"no entry is known for: {visible(source)}\n" in done.err


def test_several_runs_are_cited_once_and_the_program_with_its_version(tmp_path: Path):
    for kind in ("pdtp", "efficacy"):
        save(RUNS[kind](), tmp_path / kind)
        save(RUNS[kind](), tmp_path / f"{kind} again")
    done = jaxaudit("cite", *(str(tmp_path / name) for name in ("pdtp", "pdtp again", "efficacy", "efficacy again")))
    assert (done.code, done.err) == (0, "")
    assert re.findall(r"^@\w+\{(\w+),", done.out, re.MULTILINE) == [
        *("long2017membership", "becker2022unlearning", "jaxaudit")
    ]
    assert "version = {0.1.0}" in done.out
    assert "version = {1}" in as_bibtex([], "1}%{")


def test_what_is_no_run_is_refused(tmp_path: Path):
    (tmp_path / "x.json").write_text(json.dumps({"a": 1}))
    done = jaxaudit("cite", str(tmp_path / "x.json"))
    assert (done.code, done.out) == (2, "")


@dataclass(frozen=True)
class Shuffle:
    """A setting of a method that names its own paper."""

    source: ClassVar[str] = "Holm 1979"


def test_a_partial_names_the_papers_of_its_settings():
    scrub: Any = unlearning.scrub
    method = partial(partial(scrub, epochs=3), noise=Shuffle())
    assert source_of(method) == "Kurmanji et al. 2023; Holm 1979"
    assert source_of(partial(print)) == ""


def test_what_adjusts_for_several_targets_is_cited():
    judgement = Judgement("holdout", "holdout test", FINDING, frozenset(), usage=USED, source="Fieller 1954")
    (first,), _ = adjusted([(judgement,), (judgement,)])
    assert [paper.source for paper in cited([first.source])] == ["Fieller 1954", "Holm 1979"]
    assert adjusted([(judgement,)]) == [(judgement,)]

"""A section of a model card: metadata that YAML reads as they were meant, and prose that says what the finding says."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzz.printed import check_card
from support.cli_runs import jaxaudit
from support.saved_runs import RUNS, save
from support.saved_runs.ks import USED, audit_of, judged, ks_run
from support.saved_runs.names import HOSTILE

from jaxaudit.errors import visible
from jaxaudit.report.build import part_of
from jaxaudit.report.markdown import as_card
from jaxaudit.report.record import Run

pytestmark = pytest.mark.usefixtures("no_charts")

EXAMPLE = Path(__file__).parents[2] / "examples" / "model_card.py"


def card(*runs: Run[Any]) -> tuple[dict[str, Any], str]:
    """The metadata and the prose."""
    empty, metadata, prose = as_card([part_of(run) for run in runs]).split("---\n", 2)
    assert empty == ""
    return yaml.safe_load(metadata), prose


def unescaped(text: str) -> str:
    return " ".join(re.sub(r"\\(.)", r"\1", text).split())


@pytest.mark.parametrize("kind", RUNS)
def test_it_says_what_the_finding_says(kind: str):
    run = RUNS[kind]()
    part, (metadata, prose) = part_of(run), card(RUNS[kind]())
    said = unescaped(prose)
    assert part.errors
    for words in (part.question, *part.errors, *part.caveats, *part.would_change):
        assert unescaped(words.replace("\\", "")) in said.replace("\\", "")
    facts = run.result.provenance
    assert f"Seed: {facts.seed}" in said
    assert all(f"{name} {version}" in said for name, version in facts.versions.items())
    results = metadata["model-index"][0]["results"]
    assert len(results) == len(part.answers)
    for answer, result in zip(part.answers, results, strict=True):
        verdict, number = result["metrics"]
        assert (verdict["type"], verdict["value"]) == ("verdict", answer.finding.verdict)
        assert verdict["args"]["confidence"] == answer.finding.confidence.word
        assert number["name"] == answer.measure
        assert number["args"]["confidence"] == answer.confidences[-1][1].word
        assert number["args"]["seed"] == str(facts.seed)
        assert f"**{answer.finding.verdict}**" in prose
        assert unescaped(answer.finding.sentence) in said


@pytest.mark.parametrize("kind", RUNS)
def test_the_metadata_are_those_of_a_model_index_and_names_are_only_names(kind: str):
    """What the Hub demands: a model's name, and of each result a task, a data set, and metrics with type and value."""
    metadata, prose = card(RUNS[kind](HOSTILE))
    for name in ("a name", HOSTILE):
        check_card(as_card([part_of(RUNS[kind](name))]))
    assert not {"\x1b", "\u202e"} & set(json.dumps(metadata, ensure_ascii=False) + prose)
    assert re.search(r"(?<!\\)<script>", re.sub("`[^`]*`", "", prose)) is None
    (model,) = metadata["model-index"]
    assert {result["dataset"]["name"] for result in model["results"]} == {" ".join(visible(HOSTILE).split())}
    for metric in (metric for result in model["results"] for metric in result["metrics"]):
        assert re.fullmatch(r"[a-z0-9-]+", metric["type"])


@pytest.mark.parametrize(
    "name", ["- x", "a: b", "'", '"', "no", "1e3", "日本 \U0001f600", "#", "---\nx: 1", "{a}", "\x85 \u2028"]
)
def test_what_yaml_would_take_for_something_else(name: str):
    run = ks_run(name, audit_of(judged(usage=(USED,))))
    metadata, _ = card(run)
    assert metadata["model-index"][0]["results"][0]["dataset"]["name"] == " ".join(visible(name).split()).strip()


def test_several_runs_are_one_block_of_metadata(tmp_path: Path):
    for kind in ("ks", "pdtp"):
        save(RUNS[kind](), tmp_path / kind)
    done = jaxaudit("report", str(tmp_path / "ks"), str(tmp_path / "pdtp"), "--card")
    assert (done.code, done.err) == (0, "")
    metadata = yaml.safe_load(done.out.split("---\n")[1])
    assert len(metadata["model-index"][0]["results"]) == 3
    assert done.out.count("\n## ") == 2
    refused = jaxaudit("report", str(tmp_path / "ks"), "--card", "--markdown")
    assert (refused.code, refused.out) == (2, "")


@pytest.mark.outer
def test_an_example_puts_it_into_a_card_and_replaces_what_it_put(tmp_path: Path):
    save(RUNS["ks"](), tmp_path / "first")
    save(RUNS["pdtp"](), tmp_path / "second")
    path = tmp_path / "README.md"
    path.write_text("---\nlicense: mit\n---\n\n# My model\n\nWhat it does.\n")
    for run in ("first", "first", "second"):
        subprocess.run([sys.executable, EXAMPLE, run, "README.md"], cwd=tmp_path, check=True)
    text = path.read_text()
    metadata = yaml.safe_load(text.split("---\n")[1])
    assert metadata["license"] == "mit"
    (result,) = metadata["model-index"][0]["results"]
    assert result["task"]["name"] == "Which records does this kind of classifier expose?"
    assert text.count("What it does.") == text.count("<!-- /jaxaudit -->\n\n") + text.count("## Audit") == 1
    path.write_text("---\nmodel-index: []\n---\n")
    done = subprocess.run([sys.executable, EXAMPLE, "first", "README.md"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "of its own" in done.stderr
    path.unlink()
    subprocess.run([sys.executable, EXAMPLE, "first", "README.md"], cwd=tmp_path, check=True)
    assert path.read_text().startswith("---\n# <!-- jaxaudit -->\nmodel-index:")

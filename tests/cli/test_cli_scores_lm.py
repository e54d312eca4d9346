"""`jaxaudit scores lm`: the table of several models, records by set or by line, and what is refused."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import csv, parquet
from support.cli_runs import jaxaudit, linked, refused
from support.language_models import POSITIONS, SIZE, save_model, write_lines, write_lora

from jaxaudit.metrics import token_difficulty
from jaxaudit.metrics.difficulty import ORDERS
from jaxaudit.models import LanguageModel, token_scores
from jaxaudit.models.causal import SCORES

pytest.importorskip("torch", reason="PyTorch is not installed (the torch extra)")
pytest.importorskip("transformers", reason="transformers is not installed")

SECRET = "Basil of Kuwait"
SETS = ("query", "holdout", "members")


def records(of: str, form: str = "question", count: int = 6) -> list[dict[str, Any]]:
    texts = [f"{SECRET} {of} {row}" for row in range(count)]
    return [{form: each, "answer": f"A {each}"} if form != "text" else {form: each} for each in texts]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four models, a file of records a set, and one of all sets."""
    folder = tmp_path_factory.mktemp("made")
    for seed, name in enumerate(("target", "old/final", "base", "older/final")):
        save_model(folder / name, seed=seed)
    everything = []
    for of in SETS:
        mine = [{**each, "group": f"g{row // 2}"} for row, each in enumerate(records(of))]
        write_lines(folder / f"{of}.jsonl", mine)
        everything += [{**each, "set": of, "index": row, "pair": row} for row, each in enumerate(mine)]
    write_lines(folder / "all.jsonl", everything)
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return linked(made, tmp_path, monkeypatch)


def record_deal(**files: str) -> None:
    """Says that these files are the sides of a random deal."""
    facts = {side: {"sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()} for side, file in files.items()}
    Path("deal.json").write_text(json.dumps(facts))


def test_sides_of_a_deal_are_given_as_what_they_are(here: Path):
    record_deal(**{of: f"{of}.jsonl" for of in SETS})
    Path("exchanged").mkdir()
    for name, content in (("query", "holdout"), ("holdout", "query")):
        shutil.copy(f"{content}.jsonl", f"exchanged/{name}.jsonl")
    shutil.copy("deal.json", "exchanged/deal.json")
    words = ("scores", "lm", "target", "exchanged/query.jsonl", "exchanged/holdout.jsonl", "--out", "s.csv")
    assert SECRET not in refused(words, ("are files exchanged?",))
    Path("other").mkdir()
    shutil.copy("holdout.jsonl", "other/holdout.jsonl")
    facts = json.loads(Path("deal.json").read_text())
    Path("other/deal.json").write_text(json.dumps({"holdout": facts["holdout"]}))
    words = ("scores", "lm", "target", "query.jsonl", "other/holdout.jsonl", "--out", "s.csv")
    assert SECRET not in refused(words, ("of several deals",))


def test_words_tell_the_difficulty_of_dealt_sets_alone(here: Path):
    done = jaxaudit("scores", "lm", "target", "all.jsonl", "--out", "s.csv")
    assert done.code == 0, done.err
    assert "no covariates of words" in done.err
    assert "words" not in Path("s.csv").read_text()


def test_a_table_has_the_scores_of_every_model_and_no_text(here: Path):
    record_deal(**{of: f"{of}.jsonl" for of in SETS})
    sets = tuple(f"{of}.jsonl" for of in SETS)
    done = jaxaudit("scores", "lm", "target", *sets, "--baseline", "base", "--before", "old/final", "--out", "s.csv")
    assert done.code == 0, done.err
    assert done.out.startswith("s.csv: 18 records (query 6, holdout 6, members 6), scored by 3 models.\n")
    assert "jaxaudit ks --scores s.csv" in done.out
    assert "scoring 18 records by 3 models" in done.err
    assert SECRET not in done.out + done.err + Path("s.csv").read_text()
    found = csv.read_csv("s.csv").to_pydict()
    numbers = [f"{role}.{name}" for role in ("target", "baseline", "before") for name in SCORES]
    assert list(found) == [
        "set",
        "group",
        "covariate.tokens",
        "covariate.prompt_tokens",
        *(f"covariate.words_{order}" for order in ORDERS),
        *numbers,
    ]
    assert found["set"] == [of for of in SETS for _ in range(6)]
    model = LanguageModel(Path("base"))
    questions = [f"Question: {each['question']}\nAnswer: " for of in SETS for each in records(of)]
    encoded = model.encode(questions, [each["answer"] for of in SETS for each in records(of)])
    for name, each in token_scores(model, encoded).items():
        np.testing.assert_array_equal(found[f"baseline.{name}"], each)
    assert found["group"] == [0, 0, 1, 1, 2, 2] * 3
    assert found["covariate.tokens"] == [len(each.tokens) - each.start for each in encoded]
    assert found["covariate.prompt_tokens"] == [each.start for each in encoded]


def test_the_words_tell_difficulty_by_other_groups_and_may_be_left_out(here: Path):
    lines = [{**each, "set": of} for of in SETS for each in records(of, count=12)]
    for row, line in enumerate(lines):
        line["answer"] += f" and {'never ' * (row % 5)}{row % 7}"
    questions = [f"Question: {line['question']}\nAnswer: " for line in lines]
    encoded = LanguageModel(Path("target")).encode(questions, [line["answer"] for line in lines])
    names = [f"covariate.words_{order}" for order in ORDERS]
    groups, pairs = [row // 3 for row in range(36)], [*range(12)] * 3
    for unit, units in {"group": groups, "pair": pairs, "index": None}.items():
        told = [{**line, unit: row if units is None else units[row]} for row, line in enumerate(lines)]
        write_lines(f"by_{unit}.jsonl", told)
        record_deal(query=f"by_{unit}.jsonl")
        done = jaxaudit("scores", "lm", "target", f"by_{unit}.jsonl", "--out", f"by_{unit}.csv")
        assert done.code == 0, done.err
        found = csv.read_csv(f"by_{unit}.csv")
        np.testing.assert_array_equal(
            np.stack([found[name].to_numpy() for name in names], axis=1), token_difficulty(encoded, units)
        )


def test_one_file_gives_the_same_with_what_its_lines_tell(here: Path):
    words = ("--unused", "base", "--unused", "old/final", "--keep-text", "--out", "s.parquet")
    assert jaxaudit("scores", "lm", "target", "all.jsonl", *words).code == 0
    found = parquet.read_table("s.parquet").to_pydict()
    assert (found["index"], found["pair"]) == (list(range(6)) * 3, list(range(6)) * 3)
    assert {"unused.base.loss", "unused.final.zlib", "target.loss"} < found.keys()
    assert found["text"][0] == f"Question: {SECRET} query 0\nAnswer: A {SECRET} query 0"
    words = ("query.jsonl", "holdout.jsonl", "--out", "t.parquet")
    assert jaxaudit("scores", "lm", "target", *words).code == 0
    again = parquet.read_table("t.parquet").to_pydict()
    np.testing.assert_allclose(again["target.loss"], found["target.loss"][:12], rtol=1e-6)


def test_what_stands_before_an_answer_can_be_said(here: Path):
    loss = {}
    for name, template in {"usual": r"Question: {}\nAnswer: ", "none": None, "other": "[{}] "}.items():
        words = () if template is None else ("--template", template)
        done = jaxaudit("scores", "lm", "target", "query.jsonl", *words, "--out", f"{name}.csv")
        assert done.code == 0, done.err
        loss[name] = csv.read_csv(f"{name}.csv")["target.loss"].to_pylist()
    assert loss["usual"] == loss["none"]
    assert not set(loss["usual"]) & set(loss["other"])
    for template in ("none", "{} {}"):
        words = ("scores", "lm", "target", "query.jsonl", "--template", template, "--out", "x.csv")
        refused(words, ("--template must have {} once",))
    write_lines("texts.jsonl", [{**each, "set": "query"} for each in records("query", "text")])
    words = ("scores", "lm", "target", "texts.jsonl", "--template", "{}", "--out", "x.csv")
    refused(words, ("--template is for prompts and questions",))


def test_records_without_a_number_are_left_out_and_counted(here: Path):
    lines = [*records("query", "text"), {"text": "a"}, {"text": ""}]
    write_lines("texts.jsonl", [{**each, "set": "query"} for each in lines])
    done = jaxaudit("scores", "lm", "target", "texts.jsonl", "--out", "s.csv")
    assert "left out: 2 records of query" in done.err
    assert csv.read_csv("s.csv").num_rows == 6
    write_lines("short.jsonl", [{"text": "a", "set": "query"}])
    done = jaxaudit("scores", "lm", "target", "short.jsonl", "--out", "t.csv")
    assert (done.code, Path("t.csv").exists()) == (2, False)
    assert "no record has a finite score" in done.err


def test_names_of_folders_that_are_equal_become_numbers(here: Path):
    words = ("--used", "old/final", "--used", "older/final", "--out", "s.csv")
    assert jaxaudit("scores", "lm", "target", "query.jsonl", *words).code == 0
    assert {"used.1.loss", "used.2.loss"} < set(csv.read_csv("s.csv").column_names)


REFUSED = {
    "no set": (("texts.jsonl",), "lines have no 'set'; add it, or give a file for each set: query.jsonl"),
    "an unknown set": (("odd.jsonl",), "found: 'forget'"),
    "two forms": (("query.jsonl", "long.jsonl"), "different forms"),
    "long": (("long.jsonl",), f"1 of 2 records have more tokens than the {POSITIONS} positions of target"),
    "no model": (("query.jsonl", "--baseline", "old"), "old: has no config.json"),
    "no model before all else": (("long.jsonl", "--baseline", "old"), "old: has no config.json"),
    "an adapter that is none": (("query.jsonl", "--adapter", "base"), "base: has no adapter_config.json"),
    "no file": (("nothing.jsonl",), "nothing.jsonl: there is no such file"),
    "a link": (("query.jsonl", "--out", "link.csv"), "--out link.csv already exists"),
    "another suffix": (("query.jsonl", "--out", "s.txt"), "--out s.txt must be a .csv or a .parquet"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_scored_is_refused_before_any_work(name: str, here: Path):
    write_lines("texts.jsonl", records("holdout", "text"))
    write_lines("odd.jsonl", [{**each, "set": "forget"} for each in records("query")])
    write_lines("long.jsonl", [{"text": text, "set": "query"} for text in (SECRET, SECRET * 20)])
    Path("link.csv").symlink_to("elsewhere.csv")
    words, said = REFUSED[name]
    words = words if "--out" in words else (*words, "--out", "s.csv")
    assert SECRET not in refused(("scores", "lm", "target", *words), (said,))


def test_an_adapter_as_the_model_itself_is_told_what_is_missing(here: Path):
    Path("tuned").mkdir()
    Path("tuned/adapter_config.json").write_text("{}")
    for role in ("before", "unused", "used", "baseline"):
        words = ("scores", "lm", "base", f"--{role}", "tuned", "query.jsonl", "--out", "s.csv")
        refused(words, (f"`jaxaudit scores lm BASE --adapter TARGET_ADAPTER --{role} tuned`",))
    words = ("scores", "lm", "tuned", "query.jsonl", "--out", "s.csv")
    refused(words, ("`jaxaudit scores lm BASE --adapter tuned`",))


@pytest.mark.parametrize("base", ["someone/base", "/models/base/", "another", ""])
def test_another_base_of_the_same_shape_is_warned_of(base: str, here: Path):
    """In one line, with the names of all adapters that state it; none where its name is that of the folder."""
    for name, rank in (("tuned", 2), ("older_tuned", 3)):
        layer = {"transformer.h.0.attn.c_attn": (SIZE, 3 * SIZE)}
        write_lora(Path(name), layer, rank, r=rank, base_model_name_or_path=base)
    words = ("--adapter", "tuned", "--before", "older_tuned", "query.jsonl", "--out", "s.csv")
    done = jaxaudit("scores", "lm", "base", *words)
    assert done.code == 0, done.err
    warned = [line for line in done.err.splitlines() if line.startswith("WARNING: ")]
    assert len(warned) == (base in ("another", ""))
    for line in warned:
        assert "tuned, older_tuned: " in line
        assert "name the folder of" in line

"""`jaxaudit unlearn` on texts, from its words to what it prints, writes and refuses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.cli_runs import intercept, jaxaudit, own_modules, process, recipe, refused
from support.language_models import write_lines

from jaxaudit.cli.unlearn import UnlearnOptions
from jaxaudit.cli.unlearn.run import read_unlearn_sets
from jaxaudit.report import schema_of

SETS = ("--data", "retained.jsonl", "--forget", "forgotten.jsonl", "--test-data", "test.jsonl")
QUICK = ("--model", "gpt-1-8", "--epochs", "2", "--seeds", "2")
QUICK += recipe("optimizer=adamw", "learning-rate=0.01", "batch-size=4", "tokens=words", "models-per-batch=2")


def line(author: int, number: int) -> dict[str, Any]:
    said = f"author {author} wrote {number * 7 + author} books in town {author * 3}."
    return {"question": f"What of {author} in {number}?", "answer": said, "author": author}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with own_modules(tmp_path):
        every = [line(author, each) for author in (1, 2, 3) for each in range(4)]
        write_lines("retained.jsonl", every[:8])
        write_lines("forgotten.jsonl", every[8:])
        write_lines("all.jsonl", every)
        write_lines("test.jsonl", [line(9, each) for each in range(4)])
        write_lines("whole.jsonl", [{"text": "alone", "author": 1}, {"text": "together", "author": 2}])
        np.savez("numbers.npz", x=np.zeros((6, 2), np.float32), y=np.arange(6) % 2)
        yield tmp_path


@pytest.mark.outer
def test_a_run_on_texts_as_a_process(folder: Path):
    epochs = ("--method-option", "npo.epochs=2", "--method-option", "rmu.epochs=2")
    words = ("unlearn", *SETS, *QUICK, "--methods", "npo,rmu,ssd", *epochs, "--out", "run", "--json")
    result = process(*words, cwd=folder).result
    jsonschema.validate(result, schema_of("unlearn"))
    names = [each["name"] for each in result["methods"]]
    assert names == ["untrained", "original", "retraining", "npo", "rmu", "ssd"]
    assert result["forgotten"] == "4 of 12 texts"
    for method in result["methods"]:
        assert not {"forgotten_accuracy", "attack"} & method["scores"].keys()
        assert len(method["scores"]["forgotten_log_likelihood"]["values"]) == 2
    of = {each["name"]: each["scores"]["forgotten_log_likelihood"]["values"] for each in result["methods"]}
    assert of["original"] != of["rmu"] != of["npo"]
    assert "log-likelihood" in Path(folder, "run/table.txt").read_text()
    assert len(np.load(folder / "run/forget.npz")["x"]) == 4


def test_without_words_the_methods_are_those_of_texts(monkeypatch: pytest.MonkeyPatch):
    asked = intercept(monkeypatch, "jaxaudit.cli.unlearn.run.compare_unlearning")
    assert jaxaudit("unlearn", *SETS, *QUICK).err.endswith("Error: enough\n")
    assert list(asked["methods"]) == ["gradient-ascent", "gradient-difference", "npo", "simnpo"]
    np.testing.assert_array_equal(asked["forget"], [False] * 8 + [True] * 4)


@pytest.mark.parametrize(
    ("data", "forget", "kept", "forgotten"),
    [
        ("retained.jsonl", "forgotten.jsonl", 8, 4),
        ("all.jsonl", "forgotten.jsonl", 8, 4),
        ("all.jsonl", "author=3", 8, 4),
        ("whole.jsonl", "author=2", 1, 1),
    ],
)
def test_texts_to_forget_are_a_file_or_a_value_of_a_key(data: str, forget: str, kept: int, forgotten: int):
    found = read_unlearn_sets(UnlearnOptions(data=data, forget=forget, test_data="test.jsonl", tokens="words"))
    np.testing.assert_array_equal(found.forget, [False] * kept + [True] * forgotten)
    assert len(found.test) == 4


WRONG: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((*SETS, *QUICK, "--class", "3"), ("--class",)),
    ((*SETS, *QUICK, "--per-class", "5", "--fraction", "1"), ("--per-class", "--fraction")),
    ((*SETS, *QUICK, "--nonmembers", "2"), ("--nonmembers",)),
    ((*SETS, *QUICK, "--model", "mlp"), ("--model mlp", "gpt-2-64")),
    ((*SETS, *QUICK, "--recipe", "optimizer=sgd"), ("--recipe optimizer=sgd", "adamw")),
    ((*SETS, *QUICK, "--method-option", "rmu.layer=block 9", "--methods", "rmu"), ("block 9", "block 1")),
    ((*SETS, *QUICK, "--methods", "scrub"), ("SCRUB",)),
    ((*SETS, *QUICK, "--methods", "fisher"), ("Fisher",)),
    ((*SETS, *QUICK, "--method-option", "npo.beta=0"), ("npo.beta=0", "> 0")),
    ((*SETS[:2], *SETS[4:], *QUICK), ("--forget",)),
    ((*SETS[:4], *QUICK), ("--test-data",)),
    ((*SETS[:2], "--forget", "author=77", *SETS[4:], *QUICK), ("--forget", "'author'")),
    ((*SETS[:2], "--forget", "writer=7", *SETS[4:], *QUICK), ("--forget", "author=7")),
    ((*SETS[:2], "--forget", "retained.jsonl", *SETS[4:], *QUICK), ("--forget",)),
    ((*SETS[:4], "--test-data", "numbers.npz", *QUICK), ("numbers.npz",)),
    ((*SETS[:4], "--test-data", "retained.jsonl", *QUICK), ("retained.jsonl",)),
    (("--data", "numbers.npz", "--class", "1", "--forget", "forgotten.jsonl"), ("--forget",)),
    (("--data", "numbers.npz", "--class", "1", "--model", "gpt-2-8"), ("--model gpt-2-8", "mlp")),
)


def test_what_cannot_be_done_with_texts_is_one_line_and_writes_nothing():
    for words, said in WRONG:
        last = refused(("unlearn", *words, "--out", "new"), said)
        assert "77" not in last
        assert "wrote" not in last

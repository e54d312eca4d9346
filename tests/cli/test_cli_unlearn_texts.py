"""`jaxaudit unlearn` on texts, from its words to what it prints, writes and refuses."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from support.cli_runs import intercept, own_modules, process, refused
from support.cli_runs import jaxaudit as called
from support.language_models import write_lines

from jaxaudit import read_texts
from jaxaudit.report import schema_of

TRAINED = (
    *("--model", "gpt-2-8", "--recipe", "optimizer=adamw", "--recipe", "learning-rate=0.01", "--epochs", "2"),
    *("--recipe", "batch-size=4"),
)
TRAINING = ("fine-tuning", "gradient-ascent", "gradient-difference", "npo", "simnpo", "rmu")
QUICK = (*TRAINED, "--recipe", "tokens=words", "--seeds", "2", "--recipe", "models-per-batch=2")
TWO_EPOCHS = tuple(word for name in TRAINING for word in ("--method-option", f"{name}.epochs=2"))
SETS = ("--data", "retained.jsonl", "--forget", "forgotten.jsonl", "--test-data", "test.jsonl")
METHODS = ("amnesiac", "fine-tuning", "gradient-ascent", "gradient-difference", "npo", "simnpo", "rmu", "ssd")


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
    words = ("unlearn", *SETS, *QUICK, *TWO_EPOCHS, "--methods", ",".join(METHODS), "--out", "run", "--json")
    done = process(*words, cwd=folder)
    result = json.loads(done.out)
    jsonschema.validate(result, schema_of("unlearn"))
    assert [each["name"] for each in result["methods"]] == ["untrained", "original", "retraining", *METHODS]
    assert result["forgotten"] == "4 of 12 texts"
    assert [result["protocol"][each] for each in ("training_records", "test_records", "attack_nonmembers")] == [
        12,
        4,
        0,
    ]
    for method in result["methods"]:
        assert not {"forgotten_accuracy", "attack"} & method["scores"].keys()
        assert len(method["scores"]["forgotten_log_likelihood"]["values"]) == 2
    trained_on = next(note for note in result["finding"]["caveats"] if "not tuned to your data" in note)
    assert all(f"{name}," in trained_on for name in ("gradient-ascent", "gradient-difference", "npo", "simnpo"))
    of = {each["name"]: each["scores"]["forgotten_log_likelihood"]["values"] for each in result["methods"]}
    assert of["fine-tuning"] != of["original"] != of["rmu"] != of["npo"] != of["simnpo"]
    assert all(mine < theirs for mine, theirs in zip(of["gradient-ascent"], of["original"], strict=True))
    assert "log-likelihood" in Path(folder, "run/table.txt").read_text()
    assert len(np.load(folder / "run/forget.npz")["x"]) == 4
    again = process(*result["provenance"]["command"][1:], "--json", cwd=folder)
    assert json.loads(again.out)["methods"] == result["methods"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """What the audit is called with, by the words of the command."""
    seen = intercept(monkeypatch, "jaxaudit.cli.unlearn.run.compare_unlearning")

    def call(*words: str) -> dict[str, Any]:
        assert called("unlearn", *words).code == 2
        return dict(seen)

    return call


def test_texts_to_forget_are_a_file_or_a_value_of_a_key(asked: Any):
    first = asked(*SETS, *QUICK)
    assert list(first["methods"]) == ["gradient-ascent", "gradient-difference", "npo", "simnpo"]
    np.testing.assert_array_equal(first["forget"], [False] * 8 + [True] * 4)
    train = first["train"].inputs
    for words in (("all.jsonl", "forgotten.jsonl"), ("all.jsonl", "author=3")):
        same = asked("--data", words[0], "--forget", words[1], *SETS[4:], *QUICK)
        np.testing.assert_array_equal(same["forget"], first["forget"])
        # A vocabulary of other frequencies has other numbers.
        assert same["train"].inputs.shape == train.shape


def test_the_layer_of_rmu(asked: Any):
    call = asked(*SETS, *QUICK, "--methods", "rmu")
    other = asked(*SETS, *QUICK, "--methods", "rmu", "--method-option", "rmu.layer=block 2")
    params, _ = call["learner"].net.init(jax.random.key(1))
    inputs = jnp.asarray(call["train"].inputs)
    first, second = (each["methods"]["rmu"].keywords["hidden"](params, inputs) for each in (call, other))
    assert first.shape == second.shape == (*inputs.shape, 8)
    assert float(jnp.abs(first - second).max()) > 1e-3


WRONG: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((*SETS, *QUICK, "--class", "3"), ("--class",)),
    ((*SETS, *QUICK, "--per-class", "5", "--fraction", "1"), ("--per-class", "--fraction")),
    ((*SETS, *QUICK, "--nonmembers", "2"), ("--nonmembers",)),
    ((*SETS, *QUICK, "--model", "mlp"), ("--model mlp", "gpt-2-64")),
    ((*SETS, *QUICK, "--recipe", "optimizer=sgd"), ("--recipe optimizer=sgd", "adamw")),
    ((*SETS, *QUICK, "--method-option", "rmu.layer=block 9", "--methods", "rmu"), ("block 9", "block 1, block 2")),
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


def test_texts_alone_are_forgotten(asked: Any):
    assert read_texts(Path("whole.jsonl")).take([1]).column("author") == [2]
    call = asked("--data", "whole.jsonl", "--forget", "author=2", *SETS[4:], *QUICK)
    assert call["train"].inputs.shape[0] == 2

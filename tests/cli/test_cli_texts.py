"""Texts attacked by a bank of log-likelihoods that is dealt by coins; what is of classes or of texts alone."""

import csv
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from support.cli_runs import jaxaudit, recipe, refused

from jaxaudit import load_bank
from jaxaudit.report import schema_of

COUNT = 40
OF_TEXTS = ("shadows", "train", "--query", "t.jsonl", "--coins", "--drop-overlap", "--model", "gpt-1-8")
OF_TEXTS += recipe("tokens=words", "optimizer=adamw", "learning-rate=0.03", "batch-size=10", "models-per-batch=12")
ATTACKS = ("--attacks", "lira,rmia,attack-p")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, four of each author, and one of which is there twice."""
    monkeypatch.chdir(tmp_path)
    lines = [{"text": f"text {at}"} for at in range(COUNT - 1)]
    by_author = [{**line, "author": at // 4} for at, line in enumerate([*lines, lines[0]])]
    Path("t.jsonl").write_text("\n".join(map(json.dumps, by_author)))


@pytest.mark.outer
def test_texts_are_attacked_by_a_bank_of_coins_and_groups_are_dealt_and_attacked_whole():
    made = jaxaudit(*OF_TEXTS, "--groups", "author", "--models", "12", "--epochs", "2", "--out", "bank")
    assert made.code == 0, made.err
    rows = load_bank(Path("bank")).membership
    assert (rows[:, 4:36].reshape(12, -1, 4) == rows[:, 4:36:4, None]).all()
    done = jaxaudit("attack", "--shadows", "bank", *ATTACKS, "--json", "--out", "run")
    assert done.code == 0, done.err
    jsonschema.validate(done.result, schema_of("attack"))
    # Two equal texts of two authors are dealt apart; no model is trained on them.
    assert (done.result["groups"], done.result["records"]) == (COUNT // 4, COUNT - 2)
    # Each text has the scores and the number of its author.
    scores = np.load("run/scores.npz")["lira"]
    assert scores.shape == (12, COUNT)
    np.testing.assert_array_equal(scores[:, 4:36].reshape(12, -1, 4), np.repeat(scores[:, 4:36:4, None], 4, axis=2))
    with open("run/records.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {int(row["place"]): int(row["group"]) for row in rows} == {
        at: at // 4 + 1 for at in range(COUNT) if at not in (0, COUNT - 1)
    }
    assert "Which groups does a model" in Path("run/table.txt").read_text()


OF_NUMBERS = ("shadows", "train", "--query", "n.npz", "--coins")
WRONG = (
    (("attack", "--data", "t.jsonl"), ("t.jsonl", "shadows train", "--coins")),
    (("attack", "--data", "t.jsonl", *ATTACKS), ("--attacks lira",)),
    (("attack", "--data", "breast-cancer", *ATTACKS), ("--attacks lira", "distance")),
    (("attack", "--data", "breast-cancer", "--recipe", "tokens=words"), ("--recipe tokens",)),
    (("attack", "--data", "breast-cancer", "--model", "gpt-1-8"), ("--model gpt-1-8",)),
    (("attack", "--shadows", "bank", "--attacks", "distance"), ("--attacks distance", "lira")),
    ((*OF_TEXTS, "--calibration", "digits"), ("digits: is no file of texts",)),
    ((*OF_TEXTS, "--model", "mlp"), ("--model mlp", "gpt-2-64")),
    ((*OF_TEXTS, "--recipe", "label-smoothing=0.1"), ("--recipe label-smoothing",)),
    ((*OF_TEXTS, "--recipe", "tokens=words:0"), ("--recipe tokens=words:0",)),
    ((*OF_TEXTS, "--groups", "editor"), ("groups 'editor'", "query set")),
    ((*OF_NUMBERS, "--recipe", "tokens=words"), ("--recipe tokens",)),
    ((*OF_NUMBERS, "--model", "gpt-2-64"), ("--model gpt-2-64", "mlp")),
)


def test_what_does_not_go_together_is_refused():
    Path("bank").mkdir()
    np.savez("n.npz", x=np.eye(12), y=np.arange(12) % 2)
    for words, said in WRONG:
        refused((*words, "--out", "refused"), said)

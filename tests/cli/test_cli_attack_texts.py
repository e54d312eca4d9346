"""Attacks on texts: by a bank of language models that is dealt by coins; what compares classes is refused."""

import csv
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from support.cli_runs import jaxaudit, refused

from jaxaudit import load_bank
from jaxaudit.report import schema_of

COUNT, WORDS = 40, ("ann", "bo", "cy", "di", "ed", "flo", "gus", "hal")
MODELS = (
    *(
        *("--query", "t.jsonl", "--model", "gpt-1-8", "--recipe", "tokens=words", "--epochs", "10"),
        *("--recipe", "optimizer=adamw", "--coins", "--drop-overlap", "--models", "12", "--out", "bank"),
    ),
    *("--recipe", "learning-rate=0.03", "--recipe", "batch-size=10", "--recipe", "models-per-batch=4"),
)
ATTACKS = ("--attacks", "lira,rmia,attack-p")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, four of each author, and one of which is there twice."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    lines = [{"text": " ".join(random.choice(WORDS, 5))} for _ in range(COUNT - 1)]
    by_author = [{**line, "author": at // 4} for at, line in enumerate([*lines, lines[0]])]
    Path("t.jsonl").write_text("\n".join(map(json.dumps, by_author)))


def test_texts_are_attacked_by_a_bank_of_coins_and_groups_are_dealt_and_attacked_whole():
    made = jaxaudit("shadows", "train", *MODELS, "--groups", "author")
    assert made.code == 0, made.err
    membership = load_bank(Path("bank")).membership[:, 4:36].reshape(12, -1, 4)
    assert (membership == membership[..., :1]).all()
    done = jaxaudit("attack", "--shadows", "bank", *ATTACKS, "--json", "--out", "run")
    assert done.code == 0, done.err
    jsonschema.validate(done.result, schema_of("attack"))
    # Models remember the order of words.
    assert done.result["attacks"][0]["auc"]["value"] > 0.7
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "t.jsonl"), ("t.jsonl", "shadows train", "--coins")),
        (("--data", "t.jsonl", *ATTACKS), ("--attacks lira",)),
        (("--data", "breast-cancer", *ATTACKS), ("--attacks lira", "distance")),
        (("--data", "breast-cancer", "--recipe", "tokens=words"), ("--recipe tokens",)),
        (("--data", "breast-cancer", "--model", "gpt-1-8"), ("--model gpt-1-8",)),
        (("--shadows", "bank", "--attacks", "distance"), ("--attacks distance", "lira")),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], said: tuple[str, ...]):
    Path("bank").mkdir()
    refused(("attack", *words, "--out", "refused"), said)

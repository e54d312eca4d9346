"""`jaxaudit attack` of texts: as by a bank that is dealt by coins; attacks that compare classes are refused."""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from support.cli_runs import jaxaudit, process, refused

from jaxaudit.data.bank.bank import load_bank
from jaxaudit.ensemble import kept_models
from jaxaudit.report.kinds import schema_of

COUNT, WORDS = 40, ("ann", "bo", "cy", "di", "ed", "flo", "gus", "hal")
MODELS = (
    *(
        *("--query", "t.jsonl", "--model", "gpt-1-8", "--recipe", "tokens=words", "--epochs", "10"),
        *("--recipe", "optimizer=adamw"),
    ),
    *("--recipe", "learning-rate=0.03", "--recipe", "batch-size=10", "--recipe", "models-per-batch=4"),
)
ATTACKS = ("--attacks", "lira,rmia,attack-p")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, one of which is there twice, and a folder of their own for temporary files."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    lines = [{"text": " ".join(random.choice(WORDS, 5))} for _ in range(COUNT - 1)]
    Path("t.jsonl").write_text("\n".join(map(json.dumps, [*lines, lines[0]])))
    Path("temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def test_training_here_is_training_a_bank_and_attacking_by_it():
    done = jaxaudit("attack", *MODELS, *ATTACKS, "--pooled-shadow-models", "12", "--json", "--out", "run")
    assert done.code == 0, done.err
    direct = done.result
    jsonschema.validate(direct, schema_of("attack"))
    bank = ("--coins", "--drop-overlap", "--models", "12", "--out", "bank")
    assert jaxaudit("shadows", "train", *MODELS, *bank).code == 0
    stepwise = jaxaudit("attack", "--shadows", "bank", *ATTACKS, "--json").result
    for part in ("finding", "attacks", "exposure", "records", "models"):
        assert direct[part] == stepwise[part]
    # Models remember the order of words, and the two equal texts are dealt apart: no model is trained on them.
    assert direct["attacks"][0]["auc"]["value"] > 0.7
    assert direct["records"] == COUNT - 2
    assert np.load("run/scores.npz")["lira"].shape == (12, COUNT)
    assert not os.listdir("temporary")


def authors() -> None:
    """The texts again, four of each author, and all of an author alike."""
    lines = [json.loads(line) for line in Path("t.jsonl").read_text().splitlines()]
    Path("t.jsonl").write_text("\n".join(json.dumps({**line, "author": at // 4}) for at, line in enumerate(lines)))


def test_groups_are_dealt_and_attacked_whole():
    authors()
    done = jaxaudit(
        *("attack", *MODELS, *ATTACKS, "--groups", "author", "--pooled-shadow-models", "12", "--json", "--out", "run")
    )
    assert done.code == 0, done.err
    direct = done.result
    jsonschema.validate(direct, schema_of("attack"))
    # Two equal texts of two authors are dealt apart; no model is trained on them.
    assert (direct["groups"], direct["records"]) == (COUNT // 4, COUNT - 2)
    bank = ("--coins", "--drop-overlap", "--models", "12", "--groups", "author", "--out", "bank")
    made = jaxaudit("shadows", "train", *MODELS, *bank)
    assert made.code == 0, made.err
    membership = load_bank(Path("bank")).membership[:, 4:36].reshape(12, -1, 4)
    assert (membership == membership[..., :1]).all()
    stepwise = jaxaudit("attack", "--shadows", "bank", *ATTACKS, "--json").result
    for part in ("finding", "attacks", "exposure", "records", "groups", "models"):
        assert direct[part] == stepwise[part]
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
        ((*MODELS, "--attacks", "distance"), ("--attacks distance", "lira")),
        ((*MODELS, "--iterations", "3"), ("--iterations: is for tables",)),
        ((*MODELS, "--sample", "20"), ("--sample: is for tables",)),
        ((*MODELS, "--delta", "1e-5"), ("--delta", "--shadows")),
        ((*MODELS, "--groups", "writer"), ("'writer'", "key of the texts")),
        (
            ("--data", "breast-cancer", "--groups", "author"),
            ("--groups: is for texts",),
        ),
        ((*MODELS[:2], "--epochs", "3"), ("--recipe optimizer=sgd", "adamw")),
        ((*MODELS, "--model", "nb"), ("--model nb is a classifier",)),
    ],
)
def test_what_needs_classes_is_refused(words: tuple[str, ...], said: tuple[str, ...]):
    refused(("attack", *words, "--out", "refused"), said)
    assert not os.listdir("temporary")


def kill_in_the_middle(*words: str) -> None:
    """Starts the command, and kills it once some models are kept."""
    command = [sys.executable, "-m", "jaxaudit", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        deadline = time.monotonic() + 300
        while not kept_models(Path("run/unfinished/chunks")):
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        killed.kill()


@pytest.mark.outer
def test_work_that_was_begun_with_other_groups_is_other_work(tmp_path: Path):
    """Killed by authors, repeated without, or by other authors: neither goes on with the models of the first."""
    authors()
    words = ("attack", *MODELS, *ATTACKS, "--pooled-shadow-models", "12", "--json", "--out", "run")
    kill_in_the_middle(*words, "--groups", "author")
    without = process(*words, cwd=tmp_path)
    assert without.code == 2, without.err
    lines = [json.loads(line) for line in Path("t.jsonl").read_text().splitlines()]
    Path("t.jsonl").write_text("\n".join(json.dumps({**line, "author": at % 10}) for at, line in enumerate(lines)))
    other_groups = process(*words, "--groups", "author", cwd=tmp_path)
    assert other_groups.code == 2, other_groups.err


@pytest.mark.outer
def test_a_killed_attack_goes_on_and_gives_the_same_numbers(tmp_path: Path):
    words = ("attack", *MODELS, *ATTACKS, "--pooled-shadow-models", "12", "--json", "--out")
    whole = process(*words, "whole", cwd=tmp_path)
    assert whole.code == 0, whole.err
    kill_in_the_middle(*words, "run")
    outputs = [*Path("run/unfinished/chunks/bank/outputs").glob("*.npy")]
    assert 0 < kept_models(Path("run/unfinished/chunks")) <= len(outputs) < 12
    again = process(*words, "run", cwd=tmp_path)
    assert again.code == 0, again.err
    assert "Resuming: " in again.err
    first, second = (json.loads(done.out) for done in (whole, again))
    for part in ("finding", "attacks", "exposure", "records", "models"):
        assert first[part] == second[part]
    assert Path("run/records.csv").read_bytes() == Path("whole/records.csv").read_bytes()
    assert not Path("run/unfinished").exists()

"""`pdtp`, `attack` and `power` by adapters on a language model of transformers: as by any other network of texts."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.cli_runs import jaxaudit
from support.language_models import save_model

pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
pytest.importorskip("transformers", reason="transformers is not installed")

WORDS = ("ann", "bo", "cy", "di", "ed", "flo", "gus", "hal")
ADAPTERS = (
    *("--model", "base", "--recipe", "lora=2", "--epochs", "2", "--recipe", "optimizer=adamw"),
    *("--recipe", "learning-rate=0.01", "--recipe", "batch-size=8", "--recipe", "models-per-batch=4"),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sets of 24 texts of six authors each, and a base model."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    for name in "qc":
        lines = [
            {"prompt": f"{name} ", "answer": " ".join(random.choice(WORDS, 5)), "author": f"{name}{number % 6}"}
            for number in range(24)
        ]
        Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    save_model(Path("base"))


@pytest.mark.outer
def test_adapters_are_attacked_and_measured():
    bank = ("--query", "q.jsonl", *ADAPTERS, "--coins", "--models", "8", "--out", "bank")
    assert jaxaudit("shadows", "train", *bank).code == 0
    attacked = jaxaudit("attack", "--shadows", "bank", "--attacks", "attack-p", "--json")
    assert attacked.code == 0, attacked.err
    assert (attacked.result["models"], attacked.result["records"]) == (8, 24)
    sets = ("--query", "q.jsonl", "--calibration", "c.jsonl", "--models", "19")
    power = jaxaudit("power", *sets, *ADAPTERS, "--json")
    assert power.code == 0, power.err
    assert power.result["separation"]["models"] == 19

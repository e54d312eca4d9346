"""Small banks, written as anybody's script would: NumPy and a JSON file."""

import json
from pathlib import Path
from typing import Any

import numpy as np

RECORDS, CLASSES, MODELS, QUERY, HOLDOUT = 90, 3, 6, 30, 30


def labels() -> np.ndarray:
    return np.arange(RECORDS) % CLASSES


def rows(models: int = MODELS) -> np.ndarray:
    """Half of the query and holdout records, and two thirds of the calibration set."""
    rng = np.random.default_rng(5)
    found = np.zeros((models, RECORDS), bool)
    for row in found:
        row[rng.choice(QUERY + HOLDOUT, QUERY, replace=False)] = True
        row[QUERY + HOLDOUT + rng.choice(RECORDS - QUERY - HOLDOUT, 20, replace=False)] = True
    return found


def logits(model: int, members: np.ndarray, memory: float = 3.0) -> np.ndarray:
    """Outputs of a model that remembers its records."""
    rng = np.random.default_rng(1000 + model)
    level = np.random.default_rng(7).normal(1, 2, RECORDS)
    found = rng.normal(size=(RECORDS, CLASSES))
    found[np.arange(RECORDS), labels()] += level + memory * members
    return found


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def describe(**changed: Any) -> dict[str, Any]:
    """What `bank.json` says; a value of None leaves a key out."""
    said = {
        "format": 1,
        "outputs": "logits",
        "classes": CLASSES,
        "records": RECORDS,
        "models": MODELS,
        "counts": {"query": QUERY, "holdout": HOLDOUT, "calibration": RECORDS - QUERY - HOLDOUT},
        **changed,
    }
    return {name: value for name, value in said.items() if value is not None}


def write_bank(folder: Path, finished: int = 3, **changed: Any) -> Path:
    """A bank of 6 models, the first `finished` of which have outputs."""
    (folder / "outputs").mkdir(parents=True)
    (folder / "bank.json").write_text(json.dumps(describe(**changed)))
    np.save(folder / "labels.npy", labels())
    np.save(folder / "membership.npy", rows())
    for model in range(finished):
        save(folder, model, logits(model, rows()[model]))
    return folder


def save(folder: Path, model: int, outputs: np.ndarray) -> None:
    np.save(folder / "outputs" / f"{model:05}.npy", outputs)

"""Directories of shadow models, written as other tools write them, file by file."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

POOL, CLASSES = 160, 4


class Pool(NamedTuple):
    """Records, and outputs of models that remember those that they were trained on."""

    labels: np.ndarray
    level: np.ndarray
    memory: float

    def logits(self, seed: int, members: np.ndarray, views: int = 2) -> np.ndarray:
        """`float32[n, views, classes]`."""
        rng = np.random.default_rng([7, seed])
        found = rng.normal(0, 0.7, (len(members), 1, CLASSES)) + rng.normal(0, 0.4, (len(members), views, CLASSES))
        found[np.arange(len(members)), :, self.labels] += (self.level + self.memory * members)[:, None]
        return found.astype(np.float32)


def pool(memory: float = 4.0) -> Pool:
    return Pool(np.arange(POOL) % CLASSES, np.random.default_rng(3).normal(2, 1, POOL), memory)


def lira_rows(models: int) -> np.ndarray:
    """`train.py` with `--num_experiments`: each record is in half of all models."""
    keep = np.random.default_rng(0).uniform(0, 1, size=(models, POOL))
    return keep.argsort(0) < int(0.5 * models)


def write_lira(folder: Path, models: int = 24, finished: int | None = None) -> np.ndarray:
    """What `train.py` and `inference.py` leave; returns the rows."""
    records, rows = pool(), lira_rows(models)
    folder.mkdir()
    np.save(folder / "x_train.npy", np.zeros((POOL, 8, 8, 3), np.float32))
    np.save(folder / "y_train.npy", records.labels)
    for model, row in enumerate(rows):
        experiment = folder / f"experiment-{model}_{models}"
        (experiment / "ckpt").mkdir(parents=True)
        hparams = {"arch": "wrn28-2", "lr": 0.1, "batch": 256, "seed": model, "epochs": 100, "expid": model}
        (experiment / "hparams.json").write_text(json.dumps({**hparams, "augment": "weak", "patience": None}))
        np.save(experiment / "keep.npy", row)
        if finished is not None and model >= finished:
            continue
        logits = records.logits(model, row)[:, None, :, :]
        (experiment / "logits").mkdir()
        np.save(experiment / "logits" / f"{90:010}", logits + 100)
        np.save(experiment / "logits" / f"{100:010}", logits)
    return rows


def write_lira_pytorch(folder: Path, models: int = 24) -> np.ndarray:
    """What `train.py` and `inference.py` of the port to PyTorch leave; returns the rows."""
    records, rows = pool(), lira_rows(models)
    for model, row in enumerate(rows):
        experiment = folder / f"{model}"
        experiment.mkdir(parents=True)
        np.save(experiment / "keep.npy", row)
        (experiment / "model.pt").write_bytes(b"weights")
        np.save(experiment / "logits.npy", records.logits(model, row))
    np.save(folder.parent / "labels.npy", records.labels)
    return rows

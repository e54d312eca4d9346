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


def lira_rows(models: int, seed: int = 0) -> np.ndarray:
    """`train.py` with `--num_experiments`: each record is in half of all models."""
    keep = np.random.default_rng(seed).uniform(0, 1, size=(models, POOL))
    return keep.argsort(0) < int(0.5 * models)


def write_lira(folder: Path, models: int = 24, finished: int | None = None, scores: bool = False) -> np.ndarray:
    """What `train.py`, `inference.py` and `score.py` leave; returns the rows."""
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
        if scores:
            (experiment / "scores").mkdir()
            for file in (experiment / "logits").iterdir():
                np.save(experiment / "scores" / file.name, score(np.load(file), records.labels))
                file.unlink()
            (experiment / "logits").rmdir()
    return rows


def write_lira_pytorch(folder: Path, models: int = 24, finished: int | None = None, scores: bool = False) -> np.ndarray:
    """What `train.py`, `inference.py` and `score.py` of the port to PyTorch leave; returns the rows."""
    records, rows = pool(), lira_rows(models)
    for model, row in enumerate(rows):
        experiment = folder / f"{model}"
        experiment.mkdir(parents=True)
        np.save(experiment / "keep.npy", row)
        (experiment / "model.pt").write_bytes(b"weights")
        if finished is None or model < finished:
            logits = records.logits(model, row)
            np.save(experiment / "scores.npy", score(logits[:, None], records.labels))
            if not scores:
                np.save(experiment / "logits.npy", logits)
    np.save(folder.parent / "labels.npy", records.labels)
    return rows


def score(opredictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """`score.py`: log-odds of each view, in its words."""
    predictions = opredictions - np.max(opredictions, axis=3, keepdims=True)
    predictions = np.array(np.exp(predictions), dtype=np.float64)
    predictions = predictions / np.sum(predictions, axis=3, keepdims=True)
    count = predictions.shape[0]
    y_true = predictions[np.arange(count), :, :, labels[:count]]
    predictions[np.arange(count), :, :, labels[:count]] = 0
    y_wrong = np.sum(predictions, axis=3)
    return np.log(y_true.mean(1) + 1e-45) - np.log(y_wrong.mean(1) + 1e-45)


def write_privacy_meter(folder: Path, models: int = 24, finished: int | None = None) -> np.ndarray:
    """What `run_mia.py` leaves in its `log_dir`, but for the models themselves; returns the rows."""
    records, rng = pool(), np.random.default_rng(2)
    rows = np.full((models, POOL), True)
    for pair in range(models // 2):
        shuffled = rng.permutation(POOL)
        rows[2 * pair, shuffled[POOL // 2 :]] = False
        rows[2 * pair + 1, shuffled[: POOL // 2]] = False
    for name in ("models", "signals", "report"):
        (folder / name).mkdir(parents=True)
    np.save(folder / "models" / "memberships.npy", rows)
    (folder / "models" / "models_metadata.json").write_text("{}")
    signals = [probabilities(records.logits(model, row, 1))[:, None] for model, row in enumerate(rows)]
    np.save(folder / "signals" / "rmia_signals.npy", np.concatenate(signals[:finished], axis=1))
    np.save(folder / "signals" / "rmia_signals_pop.npy", np.full((10, models), 0.5, np.float32))
    np.save(folder.parent / "labels.npy", records.labels)
    return rows


def write_language_meter(folder: Path, models: int = 24) -> np.ndarray:
    """What `run_mia.py` leaves of language models: a signal is exp(mean log-probability of a record's tokens)."""
    rows = write_privacy_meter(folder, models)
    random = np.random.default_rng(4)
    hard = random.normal(3.2, 0.5, POOL)[:, None]
    losses = hard - 0.4 * rows.T + 0.05 * random.normal(size=(POOL, models))
    np.save(folder / "signals" / "rmia_signals.npy", np.exp(-losses).astype(np.float32))
    facts = {"model_name": "gpt2", "train_acc": None, "test_loss": float("nan")}
    (folder / "models" / "models_metadata.json").write_text(json.dumps({str(model): facts for model in range(models)}))
    return rows


def probabilities(logits: np.ndarray) -> np.ndarray:
    """`float32[n]`: the probability of each record's own class, of one view."""
    powers = np.exp(logits[:, 0] - logits[:, 0].max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True))[np.arange(len(logits)), pool().labels]

"""Small banks, written as anybody's script would: NumPy and a JSON file."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxaudit import Bank, load_bank, plan_bank
from jaxaudit.data import number_groups
from support.deals import write_model
from support.references import softmax as softmax

RECORDS, CLASSES, MODELS, QUERY, HOLDOUT = 90, 3, 6, 30, 30
DEALT = QUERY + HOLDOUT


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


def logits(model: int, members: np.ndarray, memory: float = 3.0, of: np.ndarray | None = None) -> np.ndarray:
    """Outputs of a model that remembers its records; `of` are their classes."""
    own = np.maximum(labels() if of is None else of, 0)
    level = np.random.default_rng(7).normal(1, 2, len(own))
    found = np.random.default_rng(1000 + model).normal(size=(len(own), CLASSES))
    found[np.arange(len(own)), own] += level + memory * members
    return found


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


def bank_of(folder: Path, values: Any, membership: np.ndarray, kind: str, classes: int = CLASSES, **said: Any) -> Bank:
    """A bank of these outputs; classes take turns."""
    (folder / "outputs").mkdir(parents=True)
    models, records = membership.shape
    about = {"outputs": kind, "classes": classes, "records": records, "models": models, "counts": None, **said}
    (folder / "bank.json").write_text(json.dumps(describe(**about)))
    np.save(folder / "labels.npy", np.arange(records) % classes)
    np.save(folder / "membership.npy", membership)
    for model, each in enumerate(values):
        save(folder, model, each)
    return load_bank(folder)


def save(folder: Path, model: int, outputs: np.ndarray) -> None:
    np.save(folder / "outputs" / f"{model:05}.npy", outputs)


def planned(folder: Path, models: int, finished: int, *, holdout: bool, groups: bool = False, **changed: Any) -> Path:
    """A bank that was dealt, with the first few models finished."""
    calibration = RECORDS - QUERY - HOLDOUT if holdout else RECORDS - QUERY
    dealt = np.r_[np.arange(QUERY) // 3, 100 + np.arange(HOLDOUT) // 3] if groups else None
    held = HOLDOUT if holdout else 0
    plan = plan_bank(jax.random.key(3), models, QUERY, holdout=held, calibration=calibration, groups=dealt)
    counts = {"query": QUERY, "holdout": held, "calibration": calibration}
    write_bank(folder, 0)
    said = describe(**{"models": models, "counts": counts, "seed": 3, "groups": groups, **changed})
    (folder / "bank.json").write_text(json.dumps(said))
    np.save(folder / "membership.npy", plan.membership)
    np.save(folder / "seeds.npy", plan.seeds)
    if dealt is not None:
        np.save(folder / "groups.npy", number_groups(dealt))
    train(load_bank(folder), range(finished))
    return folder


def train(bank: Bank, models: Iterable[int], memory: float = 3.0) -> None:
    """What somebody's script does."""
    for model in models:
        save(bank.directory, model, logits(model, bank.membership[model], memory, bank.labels))


def target(
    folder: Path,
    name: str,
    used: np.ndarray,
    memory: float = 3.0,
    model: int = 9000,
    roles: tuple[str, ...] = ("query", "holdout"),
) -> np.ndarray:
    """Outputs of a model that remembers these records of a bank; `NAME.npz` beside it has those on these sets.

    One unused target in 20 is called used. `model` was chosen among the others, after 5000 turned out to be one: what
    is tested with it is what a verdict looks like, and its error rate elsewhere (test_audit_bank).
    """
    bank = load_bank(folder)
    found = logits(model, used, memory, bank.labels)
    write_model(folder.parent / f"{name}.npz", **{role: found[getattr(bank, role)] for role in roles})
    return found

"""A small `attack` audit on random halves and its run: an attack that works and one that guesses."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import msgspec
import numpy as np
from scipy import stats

from jaxaudit.attacks import AttackInputs, PairedShadows
from jaxaudit.audits import AttackAudit, AttackResult, SplitModels, attack_finding, attack_splits, best_on_halves
from jaxaudit.metrics import Estimate
from jaxaudit.report import Run, recorded
from support.saved_runs.provenance import provenance

TARGETS = 30
FACTS: dict[str, Any] = {"train_accuracy": 0.99, "test_accuracy": 0.8, "guess_accuracy": 0.5, "candidates": 100}


@dataclass(frozen=True, eq=False)
class FixedScores:
    """An attack that says what it was given."""

    name: str
    said: np.ndarray
    meaning = "Says what it was given."
    source = "Long, Bindschaedler & Gunter 2017"
    shadows = "paired"

    def scores(self, key: Any, asked: Any, shadows: Any) -> np.ndarray:
        return self.said


def split_models(truth: np.ndarray, pdtp: np.ndarray, **known: Any) -> SplitModels:
    """Models of these halves that say nothing; `known` is what is otherwise than in `FACTS`."""
    models, targets = truth.shape
    none = np.zeros((1, targets, 2), np.float32)
    facts: dict[str, Any] = {"key": jax.random.key(1), **FACTS, **known}
    asked = AttackInputs(
        np.zeros((models, targets, 2), np.float32), np.zeros((targets, 1), np.float32), np.zeros(targets, int), 100
    )
    return SplitModels(
        inputs=asked,
        targets=np.arange(targets),
        truth=truth,
        shadows={"paired": PairedShadows(none, none)},
        measurements=pdtp,
        **facts,
    )


def attack_audit(targets: int = TARGETS, **known: Any) -> AttackAudit:
    """So many targets, attacked eight times each; `known` is what is otherwise than in `FACTS`."""
    rng = np.random.default_rng(2)
    halves = rng.random((4, targets)) < 0.5
    truth = np.stack([halves, ~halves], axis=1).reshape(8, targets)
    pdtp = rng.gamma(1, 0.3, (2, targets))
    attacks: list[Any] = [
        FixedScores(name, np.round(strength * np.where(truth, 1.0, -1.0) + rng.normal(size=truth.shape), 1))
        for name, strength in (("distance", 1.5), ("frequency", 0.0))
    ]
    return attack_splits(split_models(truth, pdtp, **known), attacks=attacks)


def with_splits(audit: AttackAudit, **known: Any) -> AttackAudit:
    """The same with other facts of its splits, found anew."""
    result = audit.result
    assert result.splits is not None
    splits = msgspec.structs.replace(result.splits, **known)
    best = best_on_halves(result.attacks, splits).name
    result = msgspec.structs.replace(result, splits=splits, decided_by=best)
    return replace(audit, result=msgspec.structs.replace(result, finding=attack_finding(result)))


def with_accuracies(audit: AttackAudit, *accuracies: tuple[float, float, float], **known: Any) -> AttackAudit:
    """The same, its attacks with these accuracies, each with the ends of its 95% interval over targets."""
    result, targets = audit.result, audit.result.records
    assert result.splits is not None

    def over_targets(value: float, low: float, high: float) -> np.ndarray:
        apart = (high - low) / 2 / float(stats.t.ppf(0.975, targets - 1)) * np.sqrt(targets)
        return value + apart * stats.zscore(np.arange(targets), ddof=1)

    attacks, each_of = [], {}
    for attack, found in zip(result.attacks, accuracies, strict=True):
        assert attack.metrics is not None
        metrics = msgspec.structs.replace(attack.metrics, accuracy=Estimate(*found))
        attacks.append(msgspec.structs.replace(attack, metrics=metrics))
        each_of[attack.name] = over_targets(*found)
    records = []
    for place, record in enumerate(result.splits.records):
        own = {name: float(values[place]) for name, values in each_of.items()}
        records.append(msgspec.structs.replace(record, accuracy=own))
    p_value = 0.0005 if any(low > 0.5 for _, low, _ in accuracies) else 0.5
    other = replace(audit, result=msgspec.structs.replace(result, attacks=tuple(attacks)))
    return with_splits(other, **{"records": tuple(records), "p_value": p_value} | known)


def attack_run(name: str = "people.csv", audit: AttackAudit | None = None) -> Run[AttackResult]:
    """A run of `attack` on data of this name."""
    audit = attack_audit() if audit is None else audit
    data = {"name": name, "records": 100, "columns": [name], "classes": [name, "no"], "content_hash": "blake2b:aa"}
    result = recorded("attack", audit.result, audit.sources, provenance("attack", name, data))
    return Run("c run", "attack", result, {})

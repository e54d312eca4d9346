"""The `attack` answer as one JSON object; its shape is fixed by `attack.schema.json` beside this file."""

import math
from importlib.resources import files
from typing import Any

import numpy as np
from jaxtyping import Int

from jaxaudit.audits.attack.result import AttackAudit, AttackResult, caveats
from jaxaudit.metrics.attack import Correlation, Estimate, TruePositiveRate

SCHEMA = "jaxaudit.attack/1"
ACCURACIES = (0.6, 0.8)
"""Of which the paper (figure 2) says how many risky records are attacked more often right."""


def attack_json(audit: AttackAudit, records: Int[np.ndarray, " targets"], provenance: dict[str, Any]) -> dict[str, Any]:
    """The object `jaxaudit attack --json` prints.

    Numbers JSON cannot hold: 0/0, or what there is none of, is null; an infinite PDTP is the text `infinity`.

    Args:
        audit: what was found.
        records: the attacked records, by their place in the table that was given.
        provenance: what repeats the run.
    """
    largest, which = audit.strongest
    names = [attack.name for attack in audit.attacks]
    per_target = np.stack([attack.per_target for attack in audit.attacks], axis=1)
    models, targets = audit.truth.shape
    return {
        "schema": SCHEMA,
        "protocol": {
            "candidates": audit.candidates,
            "training_records": audit.candidates // 2,
            "iterations": models // 2,
            "targets": targets,
            "attacks_on_each_target": models,
            "measured_iterations": len(audit.measurements),
            "bins": audit.bins,
        },
        "train_accuracy": audit.train_accuracy,
        "test_accuracy": audit.test_accuracy,
        "attacks": [_attack(attack) for attack in audit.attacks],
        "strongest": {
            "correlation": _correlation(audit.strongest_correlation),
            "pdtp_above_1": int((audit.pdtp > 1).sum()),
            "share_above": {f"{accuracy:g}": audit.share_of_risky_above(accuracy) for accuracy in ACCURACIES},
        },
        "mean_pdtp": _nats(audit.pdtp.mean()),
        "max_pdtp": _nats(audit.pdtp.max()),
        "targets": [
            {
                "index": int(record),
                "pdtp": _nats(value),
                "accuracy": dict(zip(names, each.tolist(), strict=True)),
                "largest_accuracy": float(most),
                "strongest_attack": names[best],
            }
            for record, value, each, most, best in zip(records, audit.pdtp, per_target, largest, which, strict=True)
        ],
        "caveats": list(caveats(audit)),
        "provenance": provenance,
    }


def attack_schema() -> str:
    """The JSON Schema of that object, as text."""
    return (files("jaxaudit.report.attack") / "schema.json").read_text(encoding="utf-8")


def _attack(attack: AttackResult) -> dict[str, Any]:
    found = attack.metrics
    return {
        "name": attack.name,
        **{name: _estimate(getattr(found, name)) for name in ("accuracy", "precision", "recall", "f1", "auc")},
        "true_positive_rates": [_rate(rate) for rate in found.true_positive_rates],
        "correlation": _correlation(attack.correlation),
    }


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {name: _number(value) for name, value in estimate._asdict().items()}


def _rate(rate: TruePositiveRate) -> dict[str, Any]:
    return {
        "at_false_positive_rate": rate.limit,
        **_estimate(rate.rate),
        "false_positive_rate": rate.false_positive_rate,
        "resolvable": rate.resolvable,
    }


def _correlation(found: Correlation) -> dict[str, Any]:
    return {
        "with_pdtp": _number(found.coefficient),
        "p_value": _number(found.p_value),
        "targets": found.count,
        "reason": found.reason,
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _nats(value: float) -> float | str:
    return "infinity" if math.isinf(value) else float(value)

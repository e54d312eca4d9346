"""A small `attack` audit and its run: an attack that works and one that guesses."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jaxaudit.attacks import Distance, Frequency
from jaxaudit.audits.attack.result import AttackAudit, AttackResult
from jaxaudit.metrics.attack import Estimate, attack_metrics, correlation
from jaxaudit.report.attack.record import AttackRecord, attack_record
from jaxaudit.report.run import Run
from support.saved_runs.provenance import provenance

TARGETS = 30
FACTS: dict[str, Any] = {
    "train_accuracy": 0.99,
    "test_accuracy": 0.8,
    "guess_accuracy": 0.5,
    "level": 0.95,
    "candidates": 100,
    "bins": 100,
    "shadow_pairs": 5,
    "models_per_batch": 4,
}


def attack_audit(targets: int = TARGETS, **known: Any) -> AttackAudit:
    """So many targets, attacked eight times each; `known` is what is otherwise than in `FACTS`."""
    rng = np.random.default_rng(2)
    truth = rng.permuted(np.repeat([[True], [False]], 4, axis=0).repeat(targets, axis=1), axis=0)
    pdtp = rng.gamma(1, 0.3, (2, targets))
    results = []
    for attack, strength in ((Distance, 1.5), (Frequency, 0.0)):
        scores = np.round(strength * np.where(truth, 1.0, -1.0) + rng.normal(size=truth.shape), 1)
        place = np.broadcast_to(np.arange(targets), truth.shape)
        found = attack_metrics(jax.random.key(1), scores.ravel(), truth.ravel(), place.ravel(), bootstrap=50)
        per_target = ((scores > 0) == truth).mean(axis=0)
        related = correlation(per_target, pdtp.mean(axis=0))
        results.append(AttackResult(attack.name, found, per_target, related, scores, attack.meaning, attack.source))
    found = {"targets": np.arange(targets), "truth": truth, "attacks": tuple(results), "measurements": pdtp}
    return AttackAudit(**found | FACTS | known)


def with_accuracies(audit: AttackAudit, *accuracies: tuple[float, float, float]) -> AttackAudit:
    """The same, its attacks with these accuracies, each with the ends of its interval."""

    pairs = zip(audit.attacks, accuracies, strict=True)
    return replace(
        audit,
        attacks=tuple(
            replace(attack, metrics=attack.metrics._replace(accuracy=Estimate(*accuracy))) for attack, accuracy in pairs
        ),
    )


def attack_run(name: str = "people.csv", audit: AttackAudit | None = None) -> Run[AttackRecord]:
    """A run of `attack` on data of this name."""
    audit = attack_audit() if audit is None else audit
    data = {"name": name, "records": 100, "columns": [name], "classes": [name, "no"], "content_hash": "blake2b:aa"}
    scores = {f"scores_{attack.name}": attack.scores for attack in audit.attacks}
    result = attack_record(audit, np.arange(len(audit.targets)), provenance("attack", name, data))
    return Run("c run", "attack", result, {"truth": audit.truth, **scores})

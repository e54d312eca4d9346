"""A small `attack` audit and its run: an attack that works and one that guesses."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from scipy import stats

from jaxaudit.attacks import Distance, Frequency
from jaxaudit.audits.attack.result import AttackAudit, AttackResult
from jaxaudit.metrics.attack import Estimate, attack_metrics, correlation
from jaxaudit.metrics.permutation import better_than_guessing
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
    halves = rng.random((4, targets)) < 0.5
    truth = np.stack([halves, ~halves], axis=1).reshape(8, targets)
    pdtp = rng.gamma(1, 0.3, (2, targets))
    results = []
    for attack, strength in ((Distance, 1.5), (Frequency, 0.0)):
        scores = np.round(strength * np.where(truth, 1.0, -1.0) + rng.normal(size=truth.shape), 1)
        place = np.broadcast_to(np.arange(targets), truth.shape)
        found = attack_metrics(jax.random.key(1), scores.ravel(), truth.ravel(), place.ravel(), bootstrap=50)
        per_target = ((scores > 0) == truth).mean(axis=0)
        related = correlation(per_target, pdtp.mean(axis=0))
        results.append(AttackResult(attack.name, found, per_target, related, scores, attack.meaning, attack.source))
    called = np.stack([each.scores for each in results]) > 0
    p_value = better_than_guessing(jax.random.key(1), called, truth)
    attacks: dict[str, Any] = {"attacks": tuple(results), "p_value": p_value}
    found = {"targets": np.arange(targets), "truth": truth, "measurements": pdtp} | attacks
    return AttackAudit(**found | FACTS | known)


def with_accuracies(audit: AttackAudit, *accuracies: tuple[float, float, float]) -> AttackAudit:
    """The same, its attacks with these accuracies, each with the ends of its 95% interval over targets."""
    targets = len(audit.targets)

    def over_targets(value: float, low: float, high: float) -> np.ndarray:
        if targets < 2:
            return np.full(targets, value)
        apart = (high - low) / 2 / float(stats.t.ppf(0.975, targets - 1)) * np.sqrt(targets)
        return value + apart * stats.zscore(np.arange(targets), ddof=1)

    attacks = tuple(
        replace(each, metrics=each.metrics._replace(accuracy=Estimate(*found)), per_target=over_targets(*found))
        for each, found in zip(audit.attacks, accuracies, strict=True)
    )
    return replace(audit, attacks=attacks, p_value=0.0005 if any(low > 0.5 for _, low, _ in accuracies) else 0.5)


def attack_run(name: str = "people.csv", audit: AttackAudit | None = None) -> Run[AttackRecord]:
    """A run of `attack` on data of this name."""
    audit = attack_audit() if audit is None else audit
    data = {"name": name, "records": 100, "columns": [name], "classes": [name, "no"], "content_hash": "blake2b:aa"}
    scores = {f"scores_{attack.name}": attack.scores for attack in audit.attacks}
    result = attack_record(audit, np.arange(len(audit.targets)), provenance("attack", name, data))
    return Run("c run", "attack", result, {"truth": audit.truth, **scores})

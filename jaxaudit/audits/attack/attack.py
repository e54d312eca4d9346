"""Membership attacks: on models of random halves (`train_splits`), or with the shadow models of a bank.

Both have one result: rates by the thresholds of other models, and sections of their own: the paper's numbers and PDTP
of targets (`splits`), or how exposed records are (`exposure`). One rule decides (`finding.py`). The area under the ROC
curve of random halves is of all answers together, with an interval over records, since the two models of a split are
not independent.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float, Int

from jaxaudit.attacks import Attack
from jaxaudit.attacks.records import RECORD_ATTACKS
from jaxaudit.audits.attack.finding import attack_finding, best_on_halves
from jaxaudit.audits.attack.records import attack_records, open_for_attacks
from jaxaudit.audits.attack.result import (
    AttackAudit,
    AttackedRecord,
    AttackOutcome,
    AttackResult,
    SplitAttacks,
    Strongest,
)
from jaxaudit.audits.attack.targets import RecordTarget
from jaxaudit.audits.attack.train_splits import ATTACKS, SplitModels, check_attacks
from jaxaudit.audits.finding import UNDECIDED
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError, check_ranges
from jaxaudit.metrics import attack as metrics
from jaxaudit.metrics.attack_rates import SOURCE as OF_RATES
from jaxaudit.metrics.attack_rates import attack_rates
from jaxaudit.metrics.permutation import better_than_guessing
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import ShadowModels


def attack(
    models: SplitModels | ShadowModels | Bank | Path | str,
    targets: Sequence[RecordTarget] = (),
    *,
    attacks: Sequence[Any] | None = None,
    level: float = 0.95,
    delta: float | None = None,
    progress: Progress | None = None,
) -> AttackAudit:
    """Can an attacker tell which records a model was trained on? This function trains no model.

    With models of random halves: how often are attacks on the target records right? See `attack_splits`. With a bank of
    shadow models: which training records do models of this recipe reveal, and which does each target? See
    `attack_records`.

    Args:
        models: from `train_splits`; or a bank of shadow models, its directory, or `open_bank(bank, by_view=True)`.
        attacks: on random halves `jaxaudit.attacks.Attack`, all tested together; with a bank
            `jaxaudit.attacks.records.RecordAttack`, of which the first decides. By default all that the models allow.
        level: confidence level of the intervals; no verdict depends on it.
        targets, delta, progress: with a bank only; see `attack_records`. `delta` needs records that were included
            by independent fair coins.

    Returns:
        The scores, rates and area under the ROC curve of each attack, with intervals. `result` is what
            `jaxaudit attack` reports, `finding` its verdict.

    >>> import jax
    >>> import jaxaudit as ja
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> people = ja.one_hot(ja.load_table("breast-cancer")).take(np.arange(200))
    >>> learner = ja.EstimatorLearner(KNeighborsClassifier(1), classes=2)
    >>> models = ja.train_splits(jax.random.key(1), people, learner, iterations=5, targets=10, shadow_pairs=2,
    ...     pooled_shadows=0, measured=1)
    >>> audit = attack(models, attacks=[ja.attacks.Distance()])
    >>> audit.finding.verdict, audit.result.attacks[0].auc.value > 0.5
    ('inconclusive', True)
    """
    if isinstance(models, SplitModels):
        if targets or delta is not None:
            raise InputError(
                "targets and delta are of a bank of shadow models; models of random halves are the targets themselves."
            )
        return attack_splits(models, attacks=attacks, level=level)
    if isinstance(models, str | Path):
        models = load_bank(Path(models))
    if isinstance(models, Bank):
        models = open_for_attacks(models, len(RECORD_ATTACKS if attacks is None else attacks))
    return attack_records(models, targets, attacks=attacks, level=level, delta=delta, progress=progress)


ACCURACIES = (0.6, 0.8)
"""Thresholds on accuracy at which the paper (figure 2) counts risky records."""


def attack_splits(models: SplitModels, *, attacks: Sequence[Attack] | None = None, level: float = 0.95) -> AttackAudit:
    """How well do membership attacks work on these models? Long et al. (2017), section 5.4; no model is trained.

    By default all built-in attacks that have the shadow models and bins that they need are made. The verdict does not
    depend on `level`, the confidence level of the intervals over targets.
    """
    check_ranges("(0, 1)", level=level)
    has_shadows = bool(models.pairs), models.pooled is not None
    if attacks is None:
        has = dict(zip(("paired", "pooled"), has_shadows, strict=True))
        attacks = [
            attack for attack in ATTACKS if has[attack.shadows] and (models.inputs.bins or not attack.needs_bins)
        ]
    check_attacks(attacks, models.inputs.bins, *has_shadows)
    scores = {attack.name: _scores(models, attack) for attack in attacks}
    mean_pdtp = models.measurements.mean(axis=0)
    truth, iterations = models.truth, len(models.truth) // 2
    key, records = stream(models.key, "intervals"), len(models.targets)
    outcomes, per_record = [], []
    for attack in attacks:
        attack_scores = scores[attack.name]
        flat = attack_scores.ravel(), truth.ravel(), np.tile(np.arange(records), len(truth))
        per_record.append(metrics.per_target_accuracy(*flat, records))
        answers = metrics.attack_metrics(key, *flat, level=level)
        whole: dict[str, Any] = msgspec.structs.asdict(attack_rates(attack_scores, truth, level=level))
        # The two models of a split are not independent; targets are.
        whole |= {"auc": answers.auc, "metrics": answers, "correlation": metrics.correlation(per_record[-1], mean_pdtp)}
        outcomes.append(AttackOutcome(**whole, name=attack.name, meaning=attack.meaning, source=attack.source))
    splits = SplitAttacks(
        p_value=better_than_guessing(stream(models.key, "verdict"), np.stack(list(scores.values())) > 0, truth),
        candidates=models.candidates,
        training_records=models.candidates // 2,
        iterations=iterations,
        measured_iterations=len(models.measurements),
        bins=models.inputs.bins,
        train_accuracy=models.train_accuracy,
        test_accuracy=models.test_accuracy,
        guess_accuracy=models.guess_accuracy,
        mean_pdtp=float(mean_pdtp.mean()),
        max_pdtp=float(mean_pdtp.max()),
        **_by_record(models.targets, mean_pdtp, list(scores), np.stack(per_record)),
    )
    result = AttackResult(
        finding=UNDECIDED,
        decided_by=best_on_halves(tuple(outcomes), splits).name,
        level=level,
        models=len(truth),
        records=records,
        attacks=tuple(outcomes),
        splits=splits,
    )
    return AttackAudit(
        result=msgspec.structs.replace(result, finding=attack_finding(result)),
        scores=scores,
        truth=truth,
        records=models.targets,
        measurements=models.measurements,
        sources=(*(attack.source for attack in attacks), metrics.SOURCE, OF_RATES),
        models_per_batch=models.models_per_batch,
        form=models.form,
    )


def _scores(models: SplitModels, attack: Attack) -> Float[np.ndarray, "models targets"]:
    if attack.shadows == "pooled":
        assert models.pooled is not None
        return attack.scores(stream(models.key, attack.name), models.inputs, models.pooled)
    parts = []
    for index, pairs in enumerate(models.pairs):
        rows = slice(2 * index, 2 * index + 2) if len(models.pairs) > 1 else slice(None)
        inputs = models.inputs._replace(outputs=models.inputs.outputs[rows])
        parts.append(attack.scores(stream(stream(models.key, "shadows", index), attack.name), inputs, pairs))
    return np.concatenate(parts)


def _by_record(
    targets: Int[np.ndarray, " targets"],
    mean_pdtp: Float[np.ndarray, " targets"],
    names: Sequence[str],
    accuracies: Float[np.ndarray, "attacks targets"],
) -> dict[str, Any]:
    """The results of each target record, and of the largest accuracy over attacks."""
    largest, which = metrics.strongest_attack(accuracies)
    risky = mean_pdtp > 1
    shares = {
        f"{accuracy:g}": float((largest[risky] > accuracy).mean()) if risky.any() else None for accuracy in ACCURACIES
    }
    return {
        "strongest": Strongest(metrics.correlation(largest, mean_pdtp), int(risky.sum()), shares),
        "records": tuple(
            AttackedRecord(
                int(record),
                float(value),
                dict(zip(names, accuracy_of.tolist(), strict=True)),
                float(most),
                names[int(best)],
            )
            for record, value, accuracy_of, most, best in zip(
                targets, mean_pdtp, accuracies.T, largest, which, strict=True
            )
        ),
    }

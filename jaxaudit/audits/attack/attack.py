"""Membership attacks: on models of random halves (`train_splits`), or with the shadow models of a bank.

Both have one result: rates by the thresholds of other models, and a section of their own (`splits`, `exposure`). One
rule decides (`finding.py`). The area under the ROC curve of random halves is of all answers together, with an interval
over records, since the two models of a split are not independent.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jaxaudit.attacks import Attack
from jaxaudit.attacks.records import RECORD_ATTACKS
from jaxaudit.audits.attack.finding import attack_finding, best_on_halves
from jaxaudit.audits.attack.records import attack_records, open_for_attacks
from jaxaudit.audits.attack.result import (
    LEVEL,
    AttackAudit,
    AttackedRecord,
    AttackOutcome,
    AttackResult,
    SplitAttacks,
)
from jaxaudit.audits.attack.targets import RecordTarget
from jaxaudit.audits.attack.train_splits import ATTACKS, SplitModels
from jaxaudit.audits.finding import UNDECIDED
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError, check_distinct
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
    progress: Progress | None = None,
) -> AttackAudit:
    """Can an attacker tell which records a model was trained on? This function trains no model.

    With models of random halves: how often are attacks on the target records right? See `attack_splits`. With a bank of
    shadow models: which training records do models of this recipe reveal, and which does each target?

    Args:
        models: from `train_splits`; or a bank of shadow models, its directory, or `open_bank(bank, by_view=True)`.
        attacks: on random halves `jaxaudit.attacks.Attack`, all tested together; with a bank
            `jaxaudit.attacks.records.RecordAttack`, of which the first decides. By default all that the models allow.
        targets, progress: with a bank only; see `attack_records`.

    Returns:
        Each attack's scores, rates and area under the ROC curve, with intervals. `finding` is the verdict.

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
        if targets:
            raise InputError("targets are of a bank; models of random halves are the targets themselves.")
        return attack_splits(models, attacks=attacks)
    if isinstance(models, str | Path):
        models = load_bank(Path(models))
    if isinstance(models, Bank):
        models = open_for_attacks(models, len(RECORD_ATTACKS if attacks is None else attacks))
    return attack_records(models, targets, attacks=attacks, progress=progress)


def attack_splits(models: SplitModels, *, attacks: Sequence[Attack] | None = None) -> AttackAudit:
    """How well do membership attacks work on these models? Long et al. (2017), section 5.4; no model is trained.

    By default all built-in attacks are made that have their shadow models. Intervals over targets have a level of 95%.
    """
    shadows = models.shadows
    if attacks is None:
        attacks = [attack for attack in ATTACKS if attack.shadows in shadows]
    check_distinct(attacks=[attack.name for attack in attacks])
    keys = {"paired": stream(models.key, "shadows", 0), "pooled": models.key}
    scores = dict[str, np.ndarray]()
    for attack in attacks:
        if attack.shadows not in shadows:
            raise InputError(
                f"the {attack.name} attack learns from {attack.shadows} shadow models, and none were trained: give "
                f"`train_splits` a number of {'shadow_pairs' if attack.shadows == 'paired' else 'pooled_shadows'}."
            )
    for attack in attacks:
        key = stream(keys[attack.shadows], attack.name)
        scores[attack.name] = attack.scores(key, models.inputs, shadows[attack.shadows])
    mean_pdtp, truth, key = models.measurements.mean(axis=0), models.truth, stream(models.key, "intervals")
    accuracies, outcomes = dict[str, np.ndarray](), list[AttackOutcome]()
    for attack in attacks:
        answers = metrics.attack_metrics(key, scores[attack.name], truth)
        accuracies[attack.name] = ((scores[attack.name] > 0) == truth).mean(axis=0)
        whole: dict[str, Any] = msgspec.structs.asdict(attack_rates(scores[attack.name], truth))
        # The two models of a split are not independent; targets are.
        whole |= {"auc": answers.auc, "metrics": answers}
        whole |= {"correlation": metrics.correlation(accuracies[attack.name], mean_pdtp)}
        outcomes.append(AttackOutcome(**whole, name=attack.name, meaning=attack.meaning, source=attack.source))
    splits = SplitAttacks(
        p_value=better_than_guessing(stream(models.key, "verdict"), np.stack(list(scores.values())) > 0, truth),
        candidates=models.candidates,
        measured_iterations=len(models.measurements),
        train_accuracy=models.train_accuracy,
        test_accuracy=models.test_accuracy,
        guess_accuracy=models.guess_accuracy,
        records=tuple(
            AttackedRecord(record, pdtp, {name: float(shares[place]) for name, shares in accuracies.items()})
            for place, (record, pdtp) in enumerate(zip(models.targets.tolist(), mean_pdtp.tolist(), strict=True))
        ),
    )
    result = AttackResult(
        finding=UNDECIDED,
        decided_by=best_on_halves(tuple(outcomes), splits).name,
        level=LEVEL,
        models=len(truth),
        records=len(models.targets),
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
        form=models.form,
    )

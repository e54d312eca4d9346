"""Membership attacks: on models of random halves, or by the shadow models of a bank."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxaudit.audits.attack.evidence import BankOutputs, bank_outputs
from jaxaudit.audits.attack.records import USUAL, attack_records
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.audits.attack.splits import attack_splits
from jaxaudit.audits.attack.targets import RecordTarget
from jaxaudit.audits.attack.train_splits import SplitModels
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError


def attack(
    models: SplitModels | BankOutputs | Bank | Path | str,
    targets: Sequence[RecordTarget] = (),
    *,
    attacks: Sequence[Any] | None = None,
    level: float = 0.95,
    delta: float | None = None,
    pdtp: Float[np.ndarray, " records"] | None = None,
    progress: Progress | None = None,
) -> AttackAudit:
    """Can an attacker tell which records a model was trained on? Nothing is trained here.

    With models of random halves: how often are attacks on target records right? See `attack_splits`. With a bank of
    shadow models: which records do models of this recipe give away, and which targets do? See `attack_records`.

    Args:
        models: from `train_splits`; or a bank of shadow models, its directory, or what `bank_outputs` read of it.
        targets: by a bank: models that are attacked with the thresholds of the shadow models. Without them, these are
            attacked alone.
        attacks: on random halves `jaxaudit.attacks.Attack`, which decide together; by a bank
            `jaxaudit.attacks.records.RecordAttack`, of which the first decides. By default all that there are models
            for.
        level: confidence level of the intervals; no verdict depends on it.
        delta: by a bank that was dealt by fair coins: bound the epsilon of the recipe from below, at this delta.
        pdtp: by a bank: nats, of each record; the deciding attack is compared with it.
        progress: by a bank: told of each attack made.

    Returns:
        Of each attack its scores, rates and area under the ROC curve, with intervals; `result` is what
        `jaxaudit attack` says, `finding` its verdict.

    Raises:
        InputError: as `attack_splits` and `attack_records`; the bank cannot be used; or targets, a delta or PDTP are
            given for models of random halves.

    >>> import jax
    >>> import jaxaudit as ja
    >>> people = ja.one_hot(ja.load_table("breast-cancer")).take(np.arange(200))
    >>> learner = ja.nearest_neighbours(2, neighbours=1)
    >>> models = ja.train_splits(jax.random.key(1), people, learner, iterations=5, targets=10, shadow_pairs=2,
    ...     pooled_shadows=0, measured=1)
    >>> audit = attack(models, attacks=[ja.attacks.Distance()])
    >>> audit.finding.verdict, audit.result.attacks[0].auc.value > 0.5
    ('inconclusive', True)
    """
    if isinstance(models, SplitModels):
        if targets or delta is not None or pdtp is not None:
            raise InputError(
                "targets, delta and pdtp are of a bank of shadow models; models of random halves are the targets "
                "themselves, and come with their PDTP."
            )
        return attack_splits(models, attacks=attacks, level=level)
    if isinstance(models, str | Path):
        models = load_bank(Path(models))
    if isinstance(models, Bank):
        models = bank_outputs(models, len(USUAL if attacks is None else attacks))
    how: dict[str, Any] = {"attacks": attacks, "level": level, "delta": delta, "pdtp": pdtp, "progress": progress}
    return attack_records(models, targets, **how)

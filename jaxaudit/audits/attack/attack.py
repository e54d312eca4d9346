"""Membership attacks: on models of random halves, or with the shadow models of a bank."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxaudit.audits.attack.records import USUAL, attack_records, open_for_attacks
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.audits.attack.splits import attack_splits
from jaxaudit.audits.attack.targets import RecordTarget
from jaxaudit.audits.attack.train_splits import SplitModels
from jaxaudit.data.bank.bank import Bank, load_bank
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError
from jaxaudit.shadow_models import ShadowModels


def attack(
    models: SplitModels | ShadowModels | Bank | Path | str,
    targets: Sequence[RecordTarget] = (),
    *,
    attacks: Sequence[Any] | None = None,
    level: float = 0.95,
    delta: float | None = None,
    pdtp: Float[np.ndarray, " records"] | None = None,
    progress: Progress | None = None,
) -> AttackAudit:
    """Can an attacker tell which records a model was trained on? This function trains no model.

    With models of random halves: how often are attacks on the target records right? See `attack_splits`. With a bank of
    shadow models: which training records do models of this recipe reveal, and which does each target? See
    `attack_records`.

    Args:
        models: from `train_splits`; or a bank of shadow models, its directory, or `open_bank(bank, by_view=True)`.
        targets: with a bank only: models to attack, at thresholds set on the shadow models. Without targets, only the
            shadow models are attacked.
        attacks: on random halves `jaxaudit.attacks.Attack`, all tested together; with a bank
            `jaxaudit.attacks.records.RecordAttack`, of which the first decides. By default all that the models allow.
        level: confidence level of the intervals; no verdict depends on it.
        delta: with a bank of independent Bernoulli(1/2) inclusion only: the delta at which the epsilon of the recipe is
            bounded from below.
        pdtp: with a bank only: PDTP (nats) of each record, compared with the deciding attack.
        progress: with a bank only: called after each attack.

    Returns:
        The scores, rates and area under the ROC curve of each attack, with intervals. `result` is what
        `jaxaudit attack` reports, `finding` its verdict.

    Raises:
        InputError: as `attack_splits` and `attack_records`; the bank cannot be used; or `targets`, `delta` or `pdtp`
            are given for models of random halves.

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
        models = open_for_attacks(models, len(USUAL if attacks is None else attacks))
    how: dict[str, Any] = {"attacks": attacks, "level": level, "delta": delta, "pdtp": pdtp, "progress": progress}
    return attack_records(models, targets, **how)

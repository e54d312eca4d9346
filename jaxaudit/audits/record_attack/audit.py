"""The attacks on every record by a bank of shadow models; nothing is trained."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from jaxaudit.attacks.records import RECORD_ATTACKS, RecordAttack, ShadowScores
from jaxaudit.attacks.records.attack import check, enough
from jaxaudit.attacks.records.lira_code import LiRACode
from jaxaudit.audits.record_attack.beside_pdtp import beside_pdtp
from jaxaudit.audits.record_attack.calls import called_by_shadows, rate_named_at, surely_named
from jaxaudit.audits.record_attack.epsilon import bound_of_recipe
from jaxaudit.audits.record_attack.evidence import BankOutputs, bank_outputs, revealing_classes
from jaxaudit.audits.record_attack.judged import Heard, RecordTarget, compared, heard_by, judged_targets, scores_of
from jaxaudit.audits.record_attack.result import RecordAttackResult, RecordAudit
from jaxaudit.data.bank.bank import Bank
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError
from jaxaudit.metrics.attack_rates import FALSE_POSITIVE_RATES, AttackRates, attack_rates
from jaxaudit.metrics.vulnerability import same_outputs, vulnerability

USUAL: tuple[RecordAttack, ...] = tuple(each for each in RECORD_ATTACKS if not isinstance(each, LiRACode))
MOST_UNJUDGED = 0.5
"""An attack that says nothing of more than this share of records is refused."""


def audit_records(
    bank: Bank,
    targets: Sequence[RecordTarget] = (),
    *,
    attacks: Sequence[RecordAttack] | None = None,
    records: int | None = None,
    false_positive_rates: Sequence[float] = FALSE_POSITIVE_RATES,
    level: float = 0.95,
    delta: float | None = None,
    pdtp: Float[np.ndarray, " records"] | None = None,
    progress: Progress | None = None,
) -> RecordAudit:
    """Which records do models of this recipe give away? Every attack on every record, by the models of a bank.

    Each shadow model is attacked by all others, so rates are those of attacks on models of known membership. Thresholds
    come from the other models, and realised false positive rates stand beside stated ones. Nothing is random. A target
    and the shadow models are compared at the coarser of their resolutions, so its verdict does not depend on whether
    its file has logits or probabilities; the rates over shadow models do not depend on targets.

    Args:
        bank: the shadow models; those without outputs are left out.
        targets: models that are attacked with the thresholds of the shadow models; without them, these are attacked
            alone.
        attacks: the deciding one first; by default all that the bank has enough models for, `stacked` first. No other
            moves a verdict, and the verdict that attacks fail is given by the default one alone.
        records: attack only the first so many of the bank, such as its query set; by default all.
        false_positive_rates: the stated ones.
        level: confidence level of the intervals.
        delta: bound epsilon from below, for differential privacy with this delta, by the deciding attack.
        pdtp: nats, of each record that is attacked, dropped ones included; NaN where it was not measured. The deciding
            attack is compared with it.
        progress: told of each attack made.

    Raises:
        InputError: the bank has fewer than 4 finished models or cannot be used, an attack that was named has too few
            models, or a target's outputs do not fit; or epsilon is to be bounded, and the bank was not dealt by fair
            coins or the extra `dp` is not installed.
    """
    known = bank_outputs(bank, len(USUAL if attacks is None else attacks), records)
    return attack_records(
        bank,
        known,
        targets,
        attacks=attacks,
        false_positive_rates=false_positive_rates,
        level=level,
        delta=delta,
        pdtp=pdtp,
        progress=progress,
    )


def attack_records(
    bank: Bank,
    known: BankOutputs,
    targets: Sequence[RecordTarget] = (),
    *,
    attacks: Sequence[RecordAttack] | None = None,
    false_positive_rates: Sequence[float] = FALSE_POSITIVE_RATES,
    level: float = 0.95,
    delta: float | None = None,
    pdtp: Float[np.ndarray, " records"] | None = None,
    progress: Progress | None = None,
) -> RecordAudit:
    """What these attacks say of the records of a bank whose outputs were read; see `audit_records`."""
    named = USUAL if attacks is None else tuple(attacks)
    if not named or len({each.name for each in named}) < len(named):
        raise InputError(
            f"attacks are {', '.join(each.name for each in named) or 'none'}: give each once, at least one."
        )
    own = known.shadowed
    check(own)
    chosen, left_out = _possible(named, own, refuse=attacks is not None)
    groups = compared(targets, known, bank, len(chosen))
    if pdtp is not None and pdtp.shape != (known.records,):
        raise InputError(f"PDTP is of shape {pdtp.shape}; give one number for each of the {known.records:,} records.")
    # Refused before the attacks are made.
    epsilon = None if delta is None else bound_of_recipe(bank, own, chosen[0], delta, level)
    results: list[RecordAttackResult] = []
    best: tuple[RecordAttack, np.ndarray, list[Heard]] | None = None
    # Of records that all models have, or none, nothing can be told but how the bank was dealt.
    alone = np.asarray(own.membership.all(axis=0) | ~own.membership.any(axis=0))
    for place, attack in enumerate(chosen):
        scores = scores_of(attack, own, alone)
        if np.isnan(scores).all():
            if attacks is not None:
                raise InputError(
                    f"{attack.name} says nothing of any record: some record has too few models with it or without it."
                )
            left_out = (*left_out, attack.name)
            continue
        rates = attack_rates(scores, own.membership, false_positive_rates=false_positive_rates, level=level)
        heard = heard_by(attack, groups, own, scores, alone)
        of_targets = _of_targets(heard, targets, known, false_positive_rates, level)
        best = best or (attack, scores, heard)
        kept = np.stack([each.said for each in heard]) if heard else scores
        results.append(RecordAttackResult(attack.name, attack.meaning, attack.source, kept, rates, of_targets))
        if progress is not None:
            progress(place + 1, len(chosen))
    if best is None:
        raise InputError("the bank has too few shadow models for any attack; train at least 4, preferably 32.")
    deciding, scores, heard = best
    named_at = rate_named_at(results[0].rates)
    called, judged = called_by_shadows(scores, own.membership, named_at)
    odds = own.models.mean(axis=1)
    seen = vulnerability(odds, own.membership, called, judged, level=level)
    found = RecordAudit(
        attacks=tuple(results),
        left_out=left_out,
        targets=(),
        usual=attacks is None or deciding == _possible(USUAL, own, refuse=False)[0][0],
        named_at=named_at,
        surely_named=surely_named(seen, len(own.models)),
        vulnerability=seen,
        saturated=(np.abs(own.models) >= known.limit).mean(axis=(0, 1)),
        copies=same_outputs(odds, bank.labels[known.columns]),
        revealing=revealing_classes(bank, known.models.tolist(), known.columns),
        models=known.models,
        membership=own.membership,
        columns=known.columns,
        records=known.records,
        content_hash=known.content_hash,
        references=(groups[0].shadowed if groups else own).references,
        views=bank.description.queries,
        level=level,
        epsilon=epsilon,
        pdtp=None if pdtp is None else beside_pdtp(pdtp[known.columns], seen.named, seen.separation),
    )
    return replace(found, targets=judged_targets(targets, heard, found, deciding))


def _possible(
    attacks: Sequence[RecordAttack], own: ShadowScores, *, refuse: bool
) -> tuple[tuple[RecordAttack, ...], tuple[str, ...]]:
    """The attacks that the bank has enough models for, and the names of the others."""
    chosen, left_out = [], []
    for attack in attacks:
        known, (inside, outside, together) = enough(own, attack.least).mean(), attack.least
        if known >= 1 - MOST_UNJUDGED:
            chosen.append(attack)
        elif refuse:
            raise InputError(
                f"{attack.name} needs, beside the model that is attacked, {together} shadow model"
                f"{'' if together == 1 else 's'}, {inside} of them trained with a record and {outside} without it; "
                f"{known:.0%} of the records have them in a bank of {len(own.models)}. Add models, or name another "
                "attack: base and rmia need fewest."
            )
        else:
            left_out.append(attack.name)
    if not chosen:
        raise InputError("the bank has too few shadow models for any attack; train at least 4, preferably 32.")
    return tuple(chosen), tuple(left_out)


def _of_targets(
    heard: Sequence[Heard],
    targets: Sequence[RecordTarget],
    known: BankOutputs,
    false_positive_rates: Sequence[float],
    level: float,
) -> AttackRates | None:
    """The rates on targets of known membership."""
    told = [
        (each, target.members[known.columns])
        for each, target in zip(heard, targets, strict=True)
        if target.members is not None and 0 < target.members[known.columns].sum() < len(known.columns)
    ]
    if not told:
        return None
    return attack_rates(
        np.stack([each.said for each, _ in told]),
        np.stack([members for _, members in told]),
        false_positive_rates=false_positive_rates,
        level=level,
        thresholds_of=[(each.scores, each.own.membership) for each, _ in told],
    )

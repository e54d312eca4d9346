"""The attacks on every record by a bank of shadow models; nothing is trained."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxaudit.attacks.records import RECORD_ATTACKS, RecordAttack, Shadowed
from jaxaudit.attacks.records.attack import check, enough
from jaxaudit.attacks.records.lira_code import LiRACode
from jaxaudit.audits.record_attack.beside_pdtp import beside_pdtp
from jaxaudit.audits.record_attack.calls import by_chance, called_by_shadows, expected, rate_named_at, surely_named
from jaxaudit.audits.record_attack.epsilon import bound_of_recipe
from jaxaudit.audits.record_attack.evidence import BankOutputs, bank_outputs, content_hash, revealing_classes
from jaxaudit.audits.record_attack.finding import SURELY, find_target
from jaxaudit.audits.record_attack.result import Named, RecordAttackResult, RecordAudit, TargetRecords
from jaxaudit.data.bank.bank import Bank
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError
from jaxaudit.metrics.attack_rates import FALSE_POSITIVE_RATES, AttackRates, attack_rates, called_at
from jaxaudit.metrics.vulnerability import likeness, same_outputs, vulnerability

USUAL: tuple[RecordAttack, ...] = tuple(each for each in RECORD_ATTACKS if not isinstance(each, LiRACode))
MOST_UNJUDGED = 0.5
"""An attack that says nothing of more than this share of records is refused."""


class RecordTarget(NamedTuple):
    """A model that is attacked.

    Attributes:
        name: as it is shown.
        log_odds: nats, of each record's own class, as `log_odds_by_view` gives them for the bank's own models: a column
            per record that is attacked, dropped ones included.
        members: which of these it was trained on, if that is known.
    """

    name: str
    log_odds: Float[np.ndarray, "views records"]
    members: Bool[np.ndarray, " records"] | None = None

    @property
    def content_hash(self) -> str:
        """`blake2b:...` of its log-odds."""
        return f"blake2b:{hashlib.blake2b(self.log_odds.astype('<f8').tobytes(), digest_size=16).hexdigest()}"


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
    come from the other models, and realised false positive rates stand beside stated ones. Nothing is random.

    Args:
        bank: the shadow models; those without outputs are left out.
        targets: models that are attacked with the thresholds of the shadow models; without them, these are attacked
            alone.
        attacks: the deciding one first; by default all that the bank has enough models for, `stacked` first.
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
    others = _targets(targets, known, bank)
    if pdtp is not None and pdtp.shape != (known.records,):
        raise InputError(f"PDTP is of shape {pdtp.shape}; give one number for each of the {known.records:,} records.")
    # Refused before the attacks are made.
    epsilon = None if delta is None else bound_of_recipe(bank, own, chosen[0], delta, level)
    results, best, named_at, relative = [], None, np.nan, False
    # Of records that all models have, or none, nothing can be told but how the bank was dealt.
    alone = own.membership.all(axis=0) | ~own.membership.any(axis=0)
    for place, attack in enumerate(chosen):
        scores = attack.scores(own)
        scores[:, alone] = np.nan
        if np.isnan(scores).all():
            if attacks is not None:
                raise InputError(
                    f"{attack.name} says nothing of any record: some record has too few models with it or without it."
                )
            left_out = (*left_out, attack.name)
            continue
        rates = attack_rates(scores, own.membership, false_positive_rates=false_positive_rates, level=level)
        said = None
        if others is not None:
            said = attack.scores(others)
            said[:, alone] = np.nan
        of_targets = _of_targets(said, targets, known, scores, own, false_positive_rates, level)
        if best is None:
            best, named_at = (scores, said, rates), rate_named_at(rates)
            asks = getattr(attack, "relative", None)
            relative = asks is not None and asks(own)
        kept = scores if said is None else said
        results.append(RecordAttackResult(attack.name, attack.meaning, attack.source, kept, rates, of_targets))
        if progress is not None:
            progress(place + 1, len(chosen))
    if best is None:
        raise InputError("the bank has too few shadow models for any attack; train at least 4, preferably 32.")
    called, judged = called_by_shadows(best[0], own.membership, named_at)
    odds = own.models.mean(axis=1)
    seen = vulnerability(odds, own.membership, called, judged, level=level)
    found = RecordAudit(
        attacks=tuple(results),
        left_out=left_out,
        targets=(),
        named_at=named_at,
        surely_named=surely_named(seen, len(own.models)),
        vulnerability=seen,
        copies=same_outputs(odds, bank.labels[known.columns]),
        revealing=revealing_classes(bank, known.models.tolist(), known.columns),
        models=known.models,
        membership=own.membership,
        columns=known.columns,
        records=known.records,
        content_hash=content_hash(bank, known),
        references=(own if others is None else others).references,
        views=bank.description.queries,
        level=level,
        epsilon=epsilon,
        pdtp=None if pdtp is None else beside_pdtp(pdtp[known.columns], seen.named, seen.separation),
    )
    if others is None:
        return found
    of_targets = _judged(targets, others, best, own, found, false_positive_rates, relative)
    return replace(found, targets=of_targets)


def _possible(
    attacks: Sequence[RecordAttack], own: Shadowed, *, refuse: bool
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


def _targets(targets: Sequence[RecordTarget], known: BankOutputs, bank: Bank) -> Shadowed | None:
    if not targets:
        return None
    wanted = (bank.description.queries, known.records)
    for target in targets:
        if target.log_odds.shape != wanted:
            raise InputError(
                f"{target.name}: has log-odds of shape {target.log_odds.shape}, but the bank's are {wanted}: views, "
                "records."
            )
    said = np.stack([target.log_odds[:, known.columns] for target in targets])
    unused = known.shadowed.unused
    for target in targets:
        # What a target is said to have used is nothing to compare others with.
        if unused is not None and target.members is not None and (unused & target.members[known.columns]).any():
            unused = None
    found = known.shadowed._replace(targets=said, unused=unused)
    check(found)
    return found


def _of_targets(
    said: np.ndarray | None,
    targets: Sequence[RecordTarget],
    known: BankOutputs,
    scores: np.ndarray,
    own: Shadowed,
    false_positive_rates: Sequence[float],
    level: float,
) -> AttackRates | None:
    """The rates on targets of known membership."""
    told = [
        place
        for place, target in enumerate(targets)
        if target.members is not None and 0 < target.members[known.columns].sum() < len(known.columns)
    ]
    if said is None or not told:
        return None
    truth = np.stack([members[known.columns] for members in (targets[t].members for t in told) if members is not None])
    return attack_rates(
        said[told],
        truth,
        false_positive_rates=false_positive_rates,
        level=level,
        thresholds_of=(scores, own.membership),
    )


def _judged(
    targets: Sequence[RecordTarget],
    others: Shadowed,
    best: tuple[np.ndarray, np.ndarray | None, AttackRates],
    own: Shadowed,
    found: RecordAudit,
    false_positive_rates: Sequence[float],
    relative: bool,
) -> tuple[TargetRecords, ...]:
    """What the deciding attack says of each target."""
    scores, said, rates = best
    assert said is not None
    told = [] if relative else rates.rates
    limits = [rate.stated for rate in told if rate.resolvable and rate.stated in false_positive_rates]
    surely = 1 - SURELY / len(targets)
    called = called_at(said, np.zeros(said.shape, bool), limits, (scores, own.membership))
    chance = by_chance(scores, own.membership, limits)
    at_named = np.zeros(said.shape, bool)
    if np.isfinite(found.named_at):
        at_named = called_at(said, np.zeros(said.shape, bool), [found.named_at], (scores, own.membership))[0]
    odds, judged = own.models.mean(axis=1), []
    for place, target in enumerate(targets):
        records = int((~np.isnan(said[place])).sum())
        numbers = tuple(
            Named(limit, int(each[place].sum()), *expected(by_model, records, surely), surely)
            for limit, each, by_model in zip(limits, called, chance, strict=True)
        )
        like = None
        if others.targets is not None and len(own.models) >= 4:
            like = likeness(others.targets[place].mean(axis=0), odds, own.membership)
        at = next((number for number in numbers if number.stated == found.named_at), None)
        finding = find_target(found.finding, at, like, records, len(own.models), relative)
        judged.append(TargetRecords(target.name, at_named[place], numbers, like, finding))
    return tuple(judged)

"""Attacks on every record, or every group, with a bank of shadow models; no model is trained.

Where models give records away, the outputs of the bank are made coarser, of the shadow models and of the attacked model
alike, and attacked again: what would help, if less were published. An attacker may still ask more than once: classes
alone, of many inputs near a record, tell nearly as much as probabilities of the record (Choquette-Choo, Tramèr, Carlini
& Papernot 2021).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from jaxaudit.attacks.records import RECORD_ATTACKS, RecordAttack, ShadowScores
from jaxaudit.attacks.records.attack import check_shadow_scores, enough, fixed_design, unused_records
from jaxaudit.audits.attack.exposure import SOURCE as OF_GROUPS
from jaxaudit.audits.attack.exposure import (
    AttackUnits,
    attack_units,
    exposure_of,
    rate_named_at,
)
from jaxaudit.audits.attack.finding import GUESSING, INCONCLUSIVE, attack_finding, grade_of
from jaxaudit.audits.attack.finding import SOURCE as OF_GRADES
from jaxaudit.audits.attack.result import AttackAudit, AttackOutcome, AttackResult, Published, RecordArrays
from jaxaudit.audits.attack.targets import (
    RecordTarget,
    TargetScores,
    compare_targets,
    judged_targets,
    scores_of,
    target_scores,
)
from jaxaudit.audits.bank_odds import Detail, StoredOutputs, at_resolution, coarser, detail_of
from jaxaudit.audits.finding import UNDECIDED, plural
from jaxaudit.audits.open_bank import open_bank, pool_of
from jaxaudit.data.bank.bank import Bank, read_models
from jaxaudit.data.bank.description import BY_CLASS
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError, check_distinct
from jaxaudit.metrics.arrays import Members
from jaxaudit.metrics.attack import RATES_SOURCE, attack_rates, called_at, same_outputs, vulnerability
from jaxaudit.metrics.scores import cut
from jaxaudit.metrics.usage import LEVEL
from jaxaudit.shadow_models import ShadowModels

LEAST_MODELS = 4
MOST_UNJUDGED = 0.5
"""An attack without a score for more than this share of records is rejected."""


def open_for_attacks(bank: Bank, attacks: int, records: int | None = None) -> ShadowModels:
    """Reads the outputs of the finished models in each view, a few files at a time; of the first `records`, if given.
    Where the bank deals whole groups, models with a part of one, such as the shadow test's, are left out.
    """
    models, (pool, columns) = bank.finished(), pool_of(bank, records)
    count, units = len(columns), attack_units(pool)
    if units.grouped:
        models = models[~units.split(bank.membership[models][:, columns]).any(axis=1)]
    if len(models) < LEAST_MODELS:
        whole = " on whole groups" if units.grouped else ""
        raise InputError(
            f"the bank has {plural(len(models), 'finished shadow model')}{whole}, and an attack compares each with "
            f"others: finish at least {LEAST_MODELS}, preferably 32."
        )
    needed = 8 * len(models) * count * (bank.description.queries + attacks + 12)
    if needed > MAX_BYTES:
        raise InputError(
            f"{len(models)} models of {count:,} records need {needed >> 30} GiB of memory for {attacks} "
            "attacks; name fewer (`attacks`)."
        )
    return open_bank(bank, models.tolist(), records=records, by_view=True)


def shadow_scores(shadows: ShadowModels, units: AttackUnits) -> ShadowScores:
    """The input of attacks, from a bank opened `by_view`: log-odds, and how records, or units, were dealt to models."""
    assert shadows.views is not None
    assert shadows.bank is not None
    odds, membership = shadows.views[..., units.attacked], shadows.membership[:, units.attacked]
    if (membership == membership[:1]).all():
        raise InputError("no record was in the training sets of some finished models and not of others.")
    bank, columns, planned = shadows.bank, shadows.pool.columns[units.attacked], shadows.bank.membership
    if units.grouped:
        planned = planned[~units.split(planned[:, columns]).any(axis=1)]
    # How units were dealt to models, set by set, from the masks of all planned models.
    firsts = columns[units.first]
    design = np.full((3, len(firsts)), np.inf)
    for part in (bank.query, bank.holdout, bank.calibration):
        of_part = np.flatnonzero((part.start <= firsts) & (firsts < part.stop))
        if len(of_part):
            design[:, of_part] = fixed_design(np.array(planned[:, firsts[of_part]]))
    return ShadowScores(odds, membership, design=design[:, units.of_record], unused=unused_records(planned[:, columns]))


def attack_records(
    shadows: ShadowModels,
    targets: Sequence[RecordTarget] = (),
    *,
    attacks: Sequence[RecordAttack] | None = None,
    progress: Progress | None = None,
) -> AttackAudit:
    """Which training records do models of this recipe reveal? Attacks every record with the shadow models of a bank.

    Each shadow model is attacked with all others as references, so its membership is known. Thresholds come from the
    other models; realised false positive rates are given beside the stated ones. Where the bank deals whole groups, a
    group's score is made of those of its records, and what is said of records holds for groups. Nothing is random. A
    target and the shadow models are compared at the coarser of their resolutions, so a verdict does not depend on
    whether the file has logits or probabilities. The rates over shadow models do not depend on targets.

    Args:
        shadows: from `open_bank` with `by_view`. `targets`: models to attack, at thresholds set on the shadow models;
            without any, these alone are attacked.
        attacks: the deciding attack first; the others do not affect the verdict. By default all that the bank has
            enough models for, `stacked` first (of a bank of scores without those that compare probabilities, such as
            RMIA). Only the default deciding attack can give the verdict `no better than guessing`.
        progress: called after each attack.

    Raises:
        InputError: the bank has too few models for a named attack, outputs do not fit, or a mask has a part of a group.
    """
    candidates = RECORD_ATTACKS if attacks is None else tuple(attacks)
    check_distinct(attacks=[attack.name for attack in candidates])
    units, bank = attack_units(shadows.pool), shadows.bank
    truth = units.whole(shadows.membership, "the shadow models' training sets")
    shadowed, columns = shadow_scores(shadows, units), shadows.pool.columns
    assert bank is not None
    check_shadow_scores(shadowed)
    unlike = [
        attack.name for attack in candidates if shadows.scale is not None and getattr(attack, "of_likelihoods", False)
    ]
    if unlike and attacks is not None:
        raise InputError(
            f"{' and '.join(unlike)}: compares probabilities of records, and this is a bank of scores; plan one of "
            "log-likelihoods (`outputs`), or name other attacks."
        )
    candidates = tuple(attack for attack in candidates if attack.name not in unlike)
    chosen, left_out = _possible(candidates, shadowed, refuse=attacks is not None)
    # Masks that split a group are refused before anything is attacked.
    members = [
        None if target.members is None else units.whole(target.members[columns], target.name) for target in targets
    ]
    groups = compare_targets(targets, shadows, shadowed, units)
    results: list[AttackOutcome] = []
    kept: dict[str, np.ndarray] = {}
    best: tuple[RecordAttack, np.ndarray, list[TargetScores]] | None = None
    for index, attack in enumerate(chosen):
        scores = scores_of(attack, shadowed, units)
        if np.isnan(scores).all():
            if attacks is not None:
                raise InputError(
                    f"{attack.name} says nothing of any record: some record has too few models with it or without it."
                )
            left_out = (*left_out, attack.name)
            continue
        rates = attack_rates(scores, truth)
        scored = target_scores(attack, groups, shadowed, scores, units)
        # The rates on targets of known membership.
        pairs = zip(scored, members, strict=True)
        judged = [(of_target, mask) for of_target, mask in pairs if mask is not None and 0 < mask.mean() < 1]
        of_targets = None
        if judged:
            of_targets = attack_rates(
                np.stack([of_target.target_scores for of_target, _ in judged]),
                np.stack([mask for _, mask in judged]),
                thresholds_of=[(of_target.scores, truth) for of_target, _ in judged],
            )
        best = best or (attack, scores, scored)
        kept[attack.name] = np.stack([of_target.target_scores for of_target in scored]) if scored else scores
        whole = {**msgspec.structs.asdict(rates), "of_targets": of_targets}
        results.append(AttackOutcome(**whole, name=attack.name, meaning=attack.meaning, source=attack.source))
        if progress is not None:
            progress(index + 1, len(chosen))
    if best is None:
        raise InputError("the bank has too few shadow models for any attack; train at least 4, preferably 32.")
    deciding, scores, scored = best
    named_at = rate_named_at(results[0])
    has_score = ~np.isnan(scores) & np.isfinite(named_at)
    called = called_at(scores, truth, [named_at])[0] if np.isfinite(named_at) else has_score
    odds = units.steady_mean(shadowed.models.mean(axis=1))
    seen = vulnerability(odds, truth, called, has_score)
    by_record = RecordArrays(
        vulnerability=seen,
        copies=same_outputs(odds, units.common(shadows.pool.examples.labels)),
        called=np.zeros((0, len(units)), bool),
    )
    result = AttackResult(
        finding=UNDECIDED,
        decided_by=deciding.name,
        level=LEVEL,
        models=len(shadowed.models),
        references=(groups[0][0] if groups else shadowed).references,
        records=len(units.of_record),
        groups=len(units) if units.grouped else None,
        records_of_a_group=(int(units.records.min()), int(units.records.max())) if units.grouped else None,
        views=bank.description.queries,
        left_out=left_out,
        attacks=tuple(results),
        exposure=exposure_of(shadows, units, by_record, named_at),
    )
    usual = attacks is None or deciding == _possible(RECORD_ATTACKS, shadowed, refuse=False)[0][0]
    if grade_of(results[0]) not in (None, GUESSING):
        less = with_less_published(shadows, shadowed, deciding, units, truth, usual)
        result = msgspec.structs.replace(result, published=less)
    judgements, calls = judged_targets(targets, scored, truth, result, deciding)
    return AttackAudit(
        result=msgspec.structs.replace(result, finding=attack_finding(result, usual), targets=judgements),
        scores=kept,
        truth=truth,
        records=columns[units.first],
        unit_of_record=units.of_record if units.grouped else None,
        by_record=replace(by_record, called=calls),
        sources=(
            *(outcome.source for outcome in results),
            RATES_SOURCE,
            OF_GRADES,
            *((PUBLISHED_SOURCE,) if result.published else ()),
            *((OF_GROUPS,) if units.grouped else ()),
        ),
    )


def _possible(
    attacks: Sequence[RecordAttack], shadowed: ShadowScores, *, refuse: bool
) -> tuple[tuple[RecordAttack, ...], tuple[str, ...]]:
    """The attacks that the bank has enough models for, and the names of the others."""
    chosen, left_out = [], []
    for attack in attacks:
        judged, (inside, outside, together) = enough(shadowed, attack.least).mean(), attack.least
        if judged >= 1 - MOST_UNJUDGED:
            chosen.append(attack)
        elif refuse:
            raise InputError(
                f"{attack.name} needs, beside the model that is attacked, {plural(together, 'shadow model')}, "
                f"{inside} of them trained with a record and {outside} without it; "
                f"{judged:.0%} of the records have them in a bank of {len(shadowed.models)}. Add models, or name "
                "another attack: base and rmia need fewest."
            )
        else:
            left_out.append(attack.name)
    return tuple(chosen), tuple(left_out)


PUBLISHED_SOURCE = "Choquette-Choo et al. 2021"
Odds = Float[np.ndarray, "models views n"]
DIGITS = (2, 1)
"""Decimals of the probabilities that are tried."""


def with_less_published(
    shadows: ShadowModels,
    shadowed: ShadowScores,
    attack: RecordAttack,
    units: AttackUnits,
    truth: Members,
    usual: bool,
) -> tuple[Published, ...]:
    """The attack's rates on coarser outputs of the models of a bank; none of a bank without a number for each class.

    An attack that is not the `usual` one shows of no outputs that attacks are no better than guessing, unless no model
    gives other ones.
    """
    rows = []
    for outputs, odds in _coarser_outputs(shadows):
        # Outputs that no model gives otherwise tell nothing; how often others were dealt the record is no output.
        still = np.ptp(odds[..., units.attacked], axis=(0, 1)) == 0
        scores = attack.scores(shadowed._replace(models=odds[..., units.attacked]))
        scores[:, still] = 0
        scores[:, shadowed.alone] = np.nan
        rates = attack_rates(units.scores(scores), truth)
        grade = GUESSING if still.all() else grade_of(rates)
        if grade is None or (grade == GUESSING and not usual and not still.all()):
            grade = INCONCLUSIVE
        rows.append(Published(outputs, grade, rates.auc, rates.tpr_at_fpr))
    return tuple(rows)


def _coarser_outputs(shadows: ShadowModels) -> Iterator[tuple[str, Odds]]:
    """What is published, in words, and the log-odds (nats) of each record's own class that follow from it."""
    assert shadows.bank is not None
    assert shadows.views is not None
    description, odds = shadows.bank.description, shadows.views
    if description.outputs not in BY_CLASS:
        return
    details = [detail_of(resolution) for resolution in shadows.resolutions]
    for decimals in DIGITS:
        detail = Detail(False, decimals, None, "float64", 10.0**-decimals)
        if coarser(details, [detail]):
            yield f"probabilities with {plural(decimals, 'digit')}", at_resolution(odds, [detail])
    right = odds > 0
    if description.classes > 2:
        right, largest = _first_class(shadows)
        # Of a class that is not named an attacker knows that the others share what the first one left.
        left = np.maximum(1 - largest, 0) / (description.classes - 1)
        with np.errstate(divide="ignore"):
            yield "the first class with its probability", np.where(right, odds, cut(special.logit(left)))
    yield "the first class alone", np.where(right, 1.0, -1.0)


def _first_class(shadows: ShadowModels) -> tuple[Bool[np.ndarray, "models views n"], Odds]:
    """Whether the class with the largest probability is the record's own, and that probability."""
    bank, numbers = shadows.bank, shadows.numbers
    assert bank is not None
    assert numbers is not None
    columns, labels = shadows.pool.columns, shadows.pool.examples.labels

    def read(_: int, values: StoredOutputs) -> tuple[np.ndarray, np.ndarray]:
        outputs = np.asarray(values[columns], np.float64)
        if bank.description.outputs == "logits":
            outputs = special.softmax(outputs, axis=2)
        return (outputs.argmax(axis=2) == labels[:, None]).T, outputs.max(axis=2).T

    outputs_of_models, _ = read_models(bank, numbers.tolist(), read)
    right, largest = zip(*outputs_of_models, strict=True)
    return np.stack(right), np.stack(largest)

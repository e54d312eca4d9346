"""Targets of a bank: their outputs from a file, at the shadow models' resolution, scored by attacks, and judged."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from jaxaudit.attacks.records import RecordAttack, ShadowScores
from jaxaudit.attacks.records.attack import check_shadow_scores
from jaxaudit.audits.attack.exposure import AttackUnits, rate_named_at
from jaxaudit.audits.attack.finding import AWAY, FEW_MODELS, RIGHT_CALLS, SOME, SURELY, checks_of_bank
from jaxaudit.audits.attack.result import AttackedTarget, AttackResult, Named
from jaxaudit.audits.bank_odds import (
    Detail,
    at_resolution,
    coarser,
    detail_of,
    log_odds_of,
    outputs_of_first_view,
    score_outputs,
)
from jaxaudit.audits.finding import Checked, Confidence, Finding, in_order, undecided
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.bank.description import SCORED, load_into
from jaxaudit.data.formats.arrays import npy_shape, read_npy
from jaxaudit.data.outputs.checks import EXCHANGED, SHIFTED, OutputsBySet, rows_out_of_line
from jaxaudit.data.outputs.kinds import Kind
from jaxaudit.data.outputs.outputs import Outputs, load_outputs, logit_step
from jaxaudit.data.paths import exists
from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import Mask, Members, Numbers, PerModel, Scores
from jaxaudit.metrics.attack import AttackRates, Likeness, attack_rates, called_at, likeness
from jaxaudit.metrics.checks import counted, described, moved_columns
from jaxaudit.metrics.scores import cut
from jaxaudit.shadow_models import ShadowModels


def prefixes(bank: Bank) -> dict[int, str]:
    """The numbers of records that a target's outputs may be on, each with a name for these records."""
    sizes = bank.description.sizes
    # Without a holdout the last two are of one size: the query set.
    return {
        bank.description.records: "all records",
        sizes.compared: "query set and holdout",
        sizes.query: "query set",
    }


def target_log_odds(path: Path, bank: Bank, kind: Kind = "auto") -> tuple[Float[np.ndarray, "views n"], Outputs]:
    """Log-odds (nats) of each record's own class, and the stored outputs, from a target's file of one of the numbers of
    rows in `prefixes`. A .npy file may have several views, or log-odds, as the bank's own; a bank of scores has one
    column, larger for records that were used.
    """
    sizes_known, description = prefixes(bank), bank.description
    if path.suffix.lower() == ".npy" and exists(path):
        shape = npy_shape(path)
        if shape[:1] and shape[0] not in sizes_known:
            sizes = ", ".join(f"{count:,} ({what_records})" for count, what_records in sizes_known.items())
            raise InputError(f"{path.name}: has {shape[0]:,} rows; the bank has {sizes}: give one row per record.")
        if shape[1:] == description.shape[1:] != (description.classes,) and description.outputs not in SCORED:
            records = shape[0]
            values = load_into(path, msgspec.structs.replace(description, records=records, counts=None))
            grid = outputs_of_first_view(description, values, values.dtype.name, path.name)
            return log_odds_of(description.outputs, values, _labels(bank, records)), grid
        sizes_known = {shape[0]: sizes_known[shape[0]]} if shape else sizes_known
    if description.queries > 1:
        raise InputError(
            f"{path.name}: the bank has {description.queries} views of each record; give a .npy with them, of shape "
            f"{description.shape}."
        )
    problem: InputError | None = None
    # The number of rows of a file other than .npy is unknown before it is read.
    for records, what_records in sorted(sizes_known.items(), reverse=True):
        try:
            if description.outputs in SCORED:
                outputs = score_outputs(path, description, records)
                return outputs.values[None, :, 1], outputs
            outputs = load_outputs(path, description.class_names or description.classes, records, kind, of=what_records)
        except InputError as error:
            problem = problem or error
            continue
        values = outputs.values
        if values.shape[1] == 1:
            second = values.astype(np.float64)
            values = np.concatenate([1 - second if outputs.kind == "probabilities" else 0 * second, second], axis=1)
        outputs = _in_line(_with_order(outputs, bank, records), bank, records)
        of_kind = "probabilities" if outputs.kind == "probabilities" else "logits"
        odds = log_odds_of(of_kind, values[:, None], _labels(bank, records))
        # Cut as the log-odds of the bank's files are: see `log_odds_of`.
        return (odds if description.outputs == "logits" else cut(odds)), outputs
    assert problem is not None
    raise problem


def _with_order(outputs: Outputs, bank: Bank, records: int) -> Outputs:
    """The same outputs, whose reading says if the labels are met far better with their columns in another order."""
    names, kept = bank.description.class_names, ~bank.dropped[:records]
    moved = moved_columns([counted(outputs.probabilities[kept], bank.labels[:records][kept])])
    if moved is None:
        return outputs
    better = described(moved[1], names or tuple(map(str, range(bank.description.classes))))
    note = f"but the labels are met far better with {better}: are the columns in the order of the classes?"
    return replace(outputs, reading=(*outputs.reading, note))


def _in_line(outputs: Outputs, bank: Bank, records: int) -> Outputs:
    """The same outputs, if no rows are of records beside theirs, which would hide what the target remembers."""
    kept = ~bank.dropped[:records]
    of_file = OutputsBySet({"": outputs.probabilities[kept]}, {"": bank.labels[:records][kept]})
    check, message = rows_out_of_line(of_file).get("", (None, ""))
    if check in (SHIFTED, EXCHANGED):
        raise InputError(f"{outputs.name}: {message}.")
    # A model may rightly know nothing of some records.
    return outputs if check is None else replace(outputs, reading=(*outputs.reading, f"but {message}"))


def _labels(bank: Bank, records: int) -> np.ndarray:
    return np.where(bank.dropped, 0, bank.labels)[:records]


def read_members(path: Path, records: int) -> Mask:
    """Which records a target was trained on, from a .npy of booleans; anything else is refused."""
    row = read_npy(path, records + (1 << 16)) if path.suffix.lower() == ".npy" else np.zeros(0)
    if row.shape != (records,) or row.dtype.kind != "b" or row.view(np.uint8).max(initial=0) > 1:
        raise InputError(
            f"{path.name}: which records a target was trained on is read from a .npy with one boolean for each of "
            f"{records:,} records."
        )
    return row


class RecordTarget(NamedTuple):
    """A model that is attacked.

    Attributes:
        log_odds: nats, of each record's own class in each view, as `log_odds_of` computes them; of a bank of scores the
            scores, larger for records that were used. One column for each attacked record, dropped ones included.
        members: which of these records it was trained on, if known.
        stored: its outputs as stored in its file, if there is one; they show the resolution of the log-odds.
    """

    name: str
    log_odds: Float[np.ndarray, "views n"]
    members: Mask | None = None
    stored: Outputs | None = None

    @property
    def content_hash(self) -> str:
        """`blake2b:...` of its log-odds."""
        return f"blake2b:{hashlib.blake2b(self.log_odds.astype('<f8').tobytes(), digest_size=16).hexdigest()}"


ResolutionGroup = tuple[ShadowScores, list[int]]
"""Targets that are compared with the shadow models at one resolution, and their places among all targets."""


class TargetScores(NamedTuple):
    """The scores of an attack on one target, and on the shadow models at the same resolution. Outputs are of records,
    scores of what is attacked: records or groups.
    """

    shadow_scores: ShadowScores
    target: Float[np.ndarray, "views records"]
    target_scores: Numbers
    scores: Scores


def compare_targets(
    targets: Sequence[RecordTarget], shadows: ShadowModels, whole: ShadowScores, units: AttackUnits
) -> list[ResolutionGroup]:
    """Pairs each target with the shadow models, at the coarser of their resolutions; targets do not affect one another.
    `whole` is the input at the models' own resolution.
    """
    shape, columns = (whole.models.shape[1], shadows.pool.given_records), shadows.pool.columns[units.attacked]
    own_details, unused = [detail_of(resolution) for resolution in shadows.resolutions], whole.unused
    # The models at each coarser resolution; at their own resolution they are not copied.
    by_coarse: dict[tuple[Detail, ...], Float[np.ndarray, "models views n"]] = {(): whole.models}
    rows_by_resolution: dict[tuple[tuple[Detail, ...], bool], tuple[list[np.ndarray], list[int]]] = {}
    for index, target in enumerate(targets):
        if target.log_odds.shape != shape:
            raise InputError(
                f"{target.name}: has log-odds of shape {target.log_odds.shape}, but the bank's are {shape}: views, "
                "records."
            )
        odds, details = target.log_odds[:, columns].astype(np.float64), own_details
        if shadows.scale is not None:
            shadows.scale.refuse_coarse(0.0 if target.stored is None else logit_step(target.stored), target.name)
            odds = shadows.scale(odds)
        elif target.stored is not None:
            details = [detail_of(target.stored)]
        coarse = coarser(own_details, details)
        # Round to the target's own resolution too: its file may store one of two classes more precisely.
        odds = at_resolution(odds, (*coarser(details, own_details), *coarse))
        if coarse not in by_coarse:
            by_coarse[coarse] = at_resolution(whole.models, coarse)
        # Records that a target is declared to have used cannot serve as known non-members.
        lent = unused is not None and (target.members is None or not (unused & target.members[columns]).any())
        rows, indices = rows_by_resolution.setdefault((coarse, lent), ([], []))
        rows.append(odds)
        indices.append(index)
    groups = []
    for (coarse, lent), (rows, indices) in rows_by_resolution.items():
        group = whole._replace(models=by_coarse[coarse], targets=np.stack(rows), unused=unused if lent else None)
        check_shadow_scores(group)
        groups.append((group, indices))
    return groups


def scores_of(attack: RecordAttack, shadowed: ShadowScores, units: AttackUnits) -> Float[np.ndarray, "attacked n"]:
    """The scores of an attack on each unit; NaN where all shadow models or none were trained on a record."""
    scores = attack.scores(shadowed)
    scores[:, shadowed.alone] = np.nan
    return units.scores(scores)


def target_scores(
    attack: RecordAttack,
    groups: Sequence[ResolutionGroup],
    shadowed: ShadowScores,
    scores: Scores,
    units: AttackUnits,
) -> list[TargetScores]:
    """The scores of an attack on each target. `scores` are of the shadow models, at the resolution of their files."""
    scores_at: dict[int, TargetScores] = {}
    for group, places in groups:
        among = group._replace(targets=None)
        same = (among.unused is None) == (shadowed.unused is None) and np.array_equal(among.models, shadowed.models)
        of_shadows = scores if same else scores_of(attack, among, units)
        all_scores = scores_of(attack, group, units)
        for index, target, row in zip(places, group.attacked, all_scores, strict=True):
            scores_at[index] = TargetScores(among, target, row, of_shadows)
    return [scores_at[index] for index in sorted(scores_at)]


def judged_targets(
    targets: Sequence[RecordTarget],
    scored: Sequence[TargetScores],
    truth: Members,
    result: AttackResult,
    attack: RecordAttack,
) -> tuple[tuple[AttackedTarget, ...], Bool[np.ndarray, "targets n"]]:
    """The verdict of the deciding attack on each target, with thresholds of the shadow models at the same resolution;
    and which records, or groups, are called members of each target, at the false positive rate of `rate_named_at`.
    """
    surely = 1 - SURELY / max(len(targets), 1)
    rates_of = {id(of_target.scores): of_target for of_target in scored}
    asks, limits_of = getattr(attack, "relative", None), [rate.fpr for rate in result.deciding.tpr_at_fpr]
    rates = {
        at: attack_rates(of_target.scores, truth, false_positive_rates=limits_of) for at, of_target in rates_of.items()
    }
    judged, calls = [], []
    for target, of_target in zip(targets, scored, strict=True):
        shadowed, rates_here = of_target.shadow_scores, rates[id(of_target.scores)]
        relative = asks is not None and asks(shadowed)
        limits = [] if relative else [rate.fpr for rate in rates_here.tpr_at_fpr if rate.resolvable and rate.holds]
        named_at, records = rate_named_at(rates_here), int((~np.isnan(of_target.target_scores)).sum())
        rate_limits = [*limits, named_at] if np.isfinite(named_at) else limits
        none, thresholds = np.zeros((1, len(of_target.target_scores)), bool), [(of_target.scores, truth)]
        called = called_at(of_target.target_scores[None], none, rate_limits, thresholds)[:, 0]
        chance = by_chance(of_target.scores, truth, limits)
        numbers = tuple(
            Named(limit, int(row.sum()), *expected(by_model, records, surely), surely)
            for limit, row, by_model in zip(limits, called, chance, strict=False)
        )
        likeness_found = None
        if len(shadowed.models) >= 4:
            likeness_found = likeness(of_target.target.mean(axis=0), shadowed.models.mean(axis=1), shadowed.membership)
        at = next((of_rate for of_rate in numbers if of_rate.fpr == named_at), None)
        target_finding = find_target(result, rates_here, at, likeness_found, records, relative)
        judged.append(AttackedTarget(target.name, target_finding, numbers))
        calls.append(called[-1] if np.isfinite(named_at) else none[0])
    return tuple(judged), np.array(calls, bool).reshape(len(judged), result.attacked)


def by_chance(scores: Scores, truth: Members, limits: Sequence[float]) -> list[Float[np.ndarray, " judged"]]:
    """The realised false positive rate of each shadow model with scored non-members, at each stated rate."""
    outside = ~truth & ~np.isnan(scores)
    kept = outside.any(axis=1)
    return [
        (called & outside)[kept].sum(axis=1) / outside[kept].sum(axis=1) for called in called_at(scores, truth, limits)
    ]


def expected(rates: PerModel, records: int, level: float) -> tuple[float, float]:
    """How many of these records are called members of a model that used none: the mean, and a prediction bound."""
    mean = float(rates.mean())
    if len(rates) < 2:
        return mean * records, float(records)
    spread = rates.std(ddof=1) * np.sqrt(1 + 1 / len(rates))
    most = mean + float(special.stdtrit(len(rates) - 1, level)) * max(spread, np.sqrt(mean * (1 - mean) / records))
    return mean * records, float(most * records)


def find_target(
    result: AttackResult,
    rates: AttackRates,
    called_members: Named | None,
    alikeness: Likeness | None,
    records: int,
    relative: bool,
) -> Finding:
    """The verdict of the deciding attack over one target: `gives some away` if more of its `records` scored records are
    called members than chance explains, `gives records away` if `RIGHT_CALLS` more are for each that chance explains;
    else `inconclusive`: the target may have used none, or the attack may be too weak.

    Also `inconclusive`: no threshold can be set (`called_members` is None), the target is unlike the shadow models
    (`alikeness`), or the attack is `relative`: it compares a record with others. `rates` are the shadow models'.
    """
    attack, checks = result.decided_by, in_order((_like(alikeness), *checks_of_bank(result, rates)))
    caveats = (
        f"A {result.unit} that is called a member was not for certain in the training set: see the expected number of "
        "false calls. Thresholds come from the shadow models and hold for targets that are trained as they are.",
    )

    if relative:
        why = (
            f"The deciding attack compares a {result.unit} with the target's others, so how many it would call by "
            "chance depends on how many the target used. Name another attack first, or give the bank 100 "
            f"{result.unit}s that neither its models nor the target used."
        )
        return undecided("This attack does not tell how many calls are by chance.", (), why, caveats, checks=checks)
    if called_members is None:
        why = (
            f"The bank has too few {result.unit}s without their model to set a threshold, or the thresholds of other "
            "models do not hold."
        )
        sentence = f"No threshold can be set for the deciding attack, {attack}."
        return undecided(sentence, (), why, caveats, checks=checks)
    words = (
        f"{called_members.count:,} of {records:,} {result.unit}s are called members by {attack}, which decides, at "
        f"{called_members.fpr:.0%} false positives; about {called_members.by_chance:,.0f} would be if none were, and "
        f"up to {called_members.at_most:,.0f} by chance"
    )
    if alikeness is not None and not alikeness.is_like:
        return undecided(
            f"The target's outputs are unlike those of the shadow models, so its thresholds may not hold ({words}).",
            (words,),
            "What is known of the shadow models need not hold for this target.",
            caveats,
            ("Train shadow models as the target was trained, and add them to a bank.",),
            checks,
        )
    if called_members.count > called_members.at_most:
        weak = result.models < FEW_MODELS or called_members.count < 1.5 * called_members.at_most
        why = (
            f"By chance at most {called_members.at_most:,.0f} would be called, with probability "
            f"{called_members.level:.2%}: a bound over shadow models, for all targets together."
        )
        sure = Confidence("weak" if weak else "strong", why)
        # Ten right calls for each wrong one, of which there may be one at least.
        wrong = max(called_members.at_most, 1.0)
        verdict = AWAY if called_members.count - wrong >= RIGHT_CALLS * wrong else SOME
        return Finding(verdict, "bad", f"Members can be named: {words}.", (words,), sure, checks, caveats)
    return undecided(
        f"No more {result.unit}s are called members than chance explains ({words}).",
        (words,),
        f"Either the target used few of these {result.unit}s, or it does not give them away.",
        caveats,
        ("Whether it used the records as a whole is what `jaxaudit ks` asks, with more power.",),
        checks,
    )


def _like(likeness: Likeness | None) -> Checked:
    name = "trained as the shadow models"
    if likeness is None:
        return Checked(name, "warning", "too few shadow models tell what is usual for one")
    words = (
        f"distance of its outputs from the nearer kind of shadow models {likeness.strangeness:.2f}, usual "
        f"{likeness.usual:.2f} (p = {likeness.p_value:.2g})"
    )
    return Checked(name, "passed" if likeness.is_like else "failed", words)

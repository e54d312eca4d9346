"""The answer of `attack --shadows` as JSON: what `--json` prints and `--out` writes."""

from typing import Any, Literal

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.record_attack.result import RecordAttackResult, RecordAudit, TargetRecords
from jaxaudit.metrics import attack_rates as metrics
from jaxaudit.metrics.epsilon import SOURCE
from jaxaudit.report.papers import cited
from jaxaudit.report.record import Number, Part, Provenance, Record, number
from jaxaudit.report.record_attack.beside_pdtp import BesidePDTP, beside_of
from jaxaudit.report.record_attack.epsilon import Epsilon, epsilon_of
from jaxaudit.report.record_attack.exposure import Exposure, Names, exposure_of

MEMBER_SHARES = (0.01, 0.1, 0.5)
"""Of all records, for which the share of right calls is given."""


class Estimate(Part):
    """A number and its interval."""

    value: Number
    low: Number
    high: Number


class TruePositive(Part):
    """What an attack reaches at a stated false positive rate; null where the records are too few to tell.

    Unless `holds`, the thresholds call more non-members than stated, beyond chance, so there is no rate at this limit.
    `value` is the share of members found with thresholds of other models; `on_curve` with the best threshold that knows
    the truth; `spread` the standard deviation over models; `predictive_value` the share of calls that are right, by the
    share of members among all records.
    """

    fpr: float
    value: Number
    low: Number
    high: Number
    on_curve: Number
    spread: Number
    predictive_value: dict[str, Number]
    resolvable: bool
    holds: bool


class Realised(Part):
    """The false positive rate that the thresholds of other models led to, and the stated one."""

    fpr: float
    value: Number
    low: Number
    high: Number


class Curve(Part):
    """Points of the ROC curve of all models together, and its band."""

    fpr: list[float]
    tpr: list[float]
    low: list[float]
    high: list[float]


class Rates(Part):
    """How well an attack separates members from non-members."""

    auc: Estimate
    balanced_accuracy: Estimate
    tpr_at_fpr: list[TruePositive]
    realised_fpr: list[Realised]
    roc: Curve
    members: int
    non_members: int
    unjudged: float
    tied: float


class Attack(Rates, kw_only=True):
    """One attack on the shadow models, and on targets of known membership."""

    name: str
    meaning: str
    source: str
    of_targets: Rates | None


class NamedAt(Part):
    """Records of a target that are called members at a stated false positive rate."""

    fpr: float
    count: int
    by_chance: float
    at_most: float
    level: float


class Target(Part):
    """One target of unknown membership."""

    name: str
    finding: Finding
    named: list[NamedAt]
    strangeness: Number
    usual_strangeness: Number
    likeness_p_value: Number


class RecordAttackRecord(Record, kw_only=True):
    """The object; `decided_by` is the attack that the finding is about."""

    schema: Literal["jaxaudit.record-attack/2"] = "jaxaudit.record-attack/2"
    finding: Finding
    decided_by: str
    level: float
    models: int
    references: int
    records: int
    views: int
    left_out: list[str]
    attacks: list[Attack]
    exposure: Exposure
    targets: list[Target]
    epsilon: Epsilon | None = None
    beside_pdtp: BesidePDTP | None = None


def record_attack_record(audit: RecordAudit, names: Names, provenance: Provenance) -> RecordAttackRecord:
    """The record of an audit."""
    return RecordAttackRecord(
        finding=audit.finding,
        decided_by=audit.attacks[0].name,
        level=audit.level,
        models=len(audit.models),
        references=audit.references,
        records=len(audit.columns),
        views=audit.views,
        left_out=list(audit.left_out),
        attacks=[_attack(attack) for attack in audit.attacks],
        exposure=exposure_of(audit, names),
        targets=[_target(target) for target in audit.targets],
        epsilon=None if audit.epsilon is None else epsilon_of(audit.epsilon),
        beside_pdtp=beside_of(audit),
        papers=cited([*(each.source for each in audit.attacks), metrics.SOURCE, *_of_epsilon(audit)]),
        provenance=provenance,
    )


def _of_epsilon(audit: RecordAudit) -> list[str]:
    return [] if audit.epsilon is None else [SOURCE]


def _attack(attack: RecordAttackResult) -> Attack:
    of_targets = attack.of_targets and Rates(**_rates(attack.of_targets))
    return Attack(
        name=attack.name, meaning=attack.meaning, source=attack.source, of_targets=of_targets, **_rates(attack.rates)
    )


def _rates(found: metrics.AttackRates) -> dict[str, Any]:
    return {
        "auc": _estimate(found.auc),
        "balanced_accuracy": _estimate(found.balanced_accuracy),
        "tpr_at_fpr": [
            TruePositive(
                rate.stated,
                number(rate.true_positive.value),
                number(rate.true_positive.low),
                number(rate.true_positive.high),
                number(rate.on_curve),
                number(rate.spread),
                {
                    f"{share:g}": number(
                        metrics.positive_predictive_value(rate.true_positive.value, rate.realised.value, share)
                    )
                    for share in MEMBER_SHARES
                },
                rate.resolvable,
                rate.holds,
            )
            for rate in found.rates
        ],
        "realised_fpr": [_realised(rate) for rate in found.rates],
        "roc": _curve(found.curve),
        "members": found.members,
        "non_members": found.others,
        "unjudged": found.unjudged,
        "tied": found.tied,
    }


def _estimate(found: metrics.Interval) -> Estimate:
    return Estimate(number(found.value), number(found.low), number(found.high))


def _realised(rate: metrics.RateAt) -> Realised:
    found = rate.realised
    return Realised(rate.stated, number(found.value), number(found.low), number(found.high))


def _curve(found: metrics.Curve) -> Curve:
    return Curve(found.false_positive.tolist(), found.true_positive.tolist(), found.low.tolist(), found.high.tolist())


def _target(target: TargetRecords) -> Target:
    like = target.likeness
    return Target(
        name=target.name,
        finding=target.finding,
        named=[NamedAt(*each) for each in target.named],
        strangeness=None if like is None else number(like.strangeness),
        usual_strangeness=None if like is None else number(like.usual),
        likeness_p_value=None if like is None else number(like.p_value),
    )

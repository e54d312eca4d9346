"""The answer of `attack --shadows` as JSON: what `--json` prints and `--out` writes."""

from typing import Any, Literal, NamedTuple

import numpy as np

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.record_attack.result import RecordAttackResult, RecordAudit, TargetRecords
from jaxaudit.metrics import attack_rates as metrics
from jaxaudit.report.record import Number, Part, Provenance, Record, number
from jaxaudit.report.record_attack.epsilon import Epsilon, epsilon_of

MEMBER_SHARES = (0.01, 0.1, 0.5)
"""Of all records, for which the share of right calls is given."""
LISTED = 100
"""The riskiest records that the result lists; records.csv has all."""
BINS = 20
"""Of the histogram of separations."""


class Estimate(Part):
    """A number and its interval."""

    value: Number
    low: Number
    high: Number


class TruePositive(Part):
    """What an attack reaches at a stated false positive rate; null where the records are too few to tell.

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


class Riskiest(Part):
    """A record that is given away; places count from 0 in its set."""

    set: str
    place: int
    label: str
    named: float
    named_low: float
    named_high: float
    models: int
    gap: Number
    gap_low: Number
    gap_high: Number
    separation: Number
    revealing: str | None
    copies: int


class Exposure(Part):
    """How far records are given away over models; log-odds in nats.

    `at_fpr` is the false positive rate that records are named at, null if none can be told; `surely_named` counts the
    records that are named more often than chance explains; `exposed` is the share of records that are named in half or
    more of the models trained on them.
    """

    at_fpr: Number
    surely_named: int
    exposed: Number
    judged: int
    copies: int
    separation_edges: list[float]
    separation_counts: list[int]
    riskiest: list[Riskiest]


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


class Names(NamedTuple):
    """Where the records of a bank are: names and sizes of its sets in order, the class of each record, class names."""

    sets: dict[str, int]
    labels: list[int]
    classes: list[str]

    def of(self, column: int) -> tuple[str, int]:
        """The set of a column, and its place there."""
        for name, count in self.sets.items():
            if column < count:
                return name, column
            column -= count
        raise IndexError(column)

    def class_of(self, number: int) -> str:
        """The name of a class."""
        return self.classes[number] if self.classes else str(number)


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
        exposure=_exposure(audit, names),
        targets=[_target(target) for target in audit.targets],
        epsilon=None if audit.epsilon is None else epsilon_of(audit.epsilon),
        provenance=provenance,
    )


def riskiest_order(audit: RecordAudit) -> np.ndarray:
    """Places of the judged records, the riskiest first: by the share of models that name them, then by separation."""
    found = audit.vulnerability
    judged = np.flatnonzero(np.isfinite(found.named))
    separation = np.nan_to_num(found.separation[judged])
    gap = np.nan_to_num(found.gap_low[judged], nan=-np.inf)
    return judged[np.lexsort((-gap, -separation, -found.named[judged]))]


def _exposure(audit: RecordAudit, names: Names) -> Exposure:
    found = audit.vulnerability
    known = found.separation[np.isfinite(found.separation)]
    counts, edges = np.histogram(known, bins=BINS, range=(0, 1))
    riskiest = []
    for at in riskiest_order(audit)[:LISTED].tolist():
        of, place = names.of(int(audit.columns[at]))
        revealing = None if audit.revealing is None or audit.revealing[at] < 0 else int(audit.revealing[at])
        group = int(audit.copies[at])
        riskiest.append(
            Riskiest(
                set=of,
                place=place,
                label=names.class_of(names.labels[int(audit.columns[at])]),
                named=float(found.named[at]),
                named_low=float(found.named_low[at]),
                named_high=float(found.named_high[at]),
                models=int(found.inside[at]),
                gap=number(found.gap[at]),
                gap_low=number(found.gap_low[at]),
                gap_high=number(found.gap_high[at]),
                separation=number(found.separation[at]),
                revealing=None if revealing is None else names.class_of(revealing),
                copies=0 if group < 0 else int((audit.copies == group).sum()) - 1,
            )
        )
    return Exposure(
        at_fpr=number(audit.named_at),
        surely_named=audit.surely_named,
        exposed=number(audit.exposed),
        judged=int(np.isfinite(found.named).sum()),
        copies=int((audit.copies >= 0).sum()),
        separation_edges=edges.tolist(),
        separation_counts=counts.tolist(),
        riskiest=riskiest,
    )


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

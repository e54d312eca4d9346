"""The `attack` answer as JSON: what `jaxaudit attack --json` prints and `--out` writes."""

from typing import Literal

import numpy as np
from jaxtyping import Int

from jaxaudit.audits.attack.finding import best_attack
from jaxaudit.audits.attack.result import AttackAudit, AttackResult
from jaxaudit.audits.finding import Finding
from jaxaudit.metrics import attack as metrics
from jaxaudit.report.papers import cited
from jaxaudit.report.record import Extended, Number, Part, Provenance, Record, extended, number

ACCURACIES = (0.6, 0.8)
"""Of which the paper (figure 2) says how many risky records are attacked more often right."""


class Estimate(Part):
    """A number and its bootstrap interval."""

    value: Number
    low: Number
    high: Number


class Rate(Part):
    """A true positive rate at a bounded false positive rate; see `jaxaudit.metrics.attack.TruePositiveRate`."""

    at_false_positive_rate: float
    value: Number
    low: Number
    high: Number
    false_positive_rate: float
    resolvable: bool


class Correlation(Part):
    """Pearson's, with PDTP over targets; null with a reason where there is none."""

    with_pdtp: Number
    p_value: Number
    targets: int
    reason: str | None


class Attack(Part):
    """How well one attack does."""

    name: str
    accuracy: Estimate
    precision: Estimate
    recall: Estimate
    f1: Estimate
    auc: Estimate
    true_positive_rates: list[Rate]
    correlation: Correlation
    meaning: str
    source: str


class Protocol(Part):
    """How many records, splits and targets there were."""

    candidates: int
    training_records: int
    iterations: int
    targets: int
    attacks_on_each_target: int
    measured_iterations: int
    bins: int


class Strongest(Part):
    """The largest accuracy of each target over attacks."""

    correlation: Correlation
    pdtp_above_1: int
    share_above: dict[str, Number]


class Target(Part):
    """One attacked record; PDTP in nats."""

    index: int
    pdtp: Extended
    accuracy: dict[str, float]
    largest_accuracy: float
    strongest_attack: str


class AttackRecord(Record, kw_only=True):
    """The object; `best_attack` is the one that the finding is about."""

    schema: Literal["jaxaudit.attack/2"] = "jaxaudit.attack/2"
    finding: Finding
    best_attack: str
    p_value: float
    level: float
    protocol: Protocol
    train_accuracy: float
    test_accuracy: float
    guess_accuracy: float
    attacks: list[Attack]
    strongest: Strongest
    mean_pdtp: Extended
    max_pdtp: Extended
    targets: list[Target]


def attack_record(audit: AttackAudit, records: Int[np.ndarray, " targets"], provenance: Provenance) -> AttackRecord:
    """The record of an audit.

    Args:
        audit: what was found.
        records: the attacked records, by their place in the table that was given.
        provenance: what repeats the run.
    """
    largest, which = audit.strongest
    names = [attack.name for attack in audit.attacks]
    per_target = np.stack([attack.per_target for attack in audit.attacks], axis=1)
    models, targets = audit.truth.shape
    return AttackRecord(
        finding=audit.finding,
        best_attack=best_attack(audit.attacks).name,
        p_value=audit.p_value,
        level=audit.level,
        protocol=Protocol(
            candidates=audit.candidates,
            training_records=audit.candidates // 2,
            iterations=models // 2,
            targets=targets,
            attacks_on_each_target=models,
            measured_iterations=len(audit.measurements),
            bins=audit.bins,
        ),
        train_accuracy=audit.train_accuracy,
        test_accuracy=audit.test_accuracy,
        guess_accuracy=audit.guess_accuracy,
        attacks=[_attack(attack) for attack in audit.attacks],
        strongest=Strongest(
            _correlation(audit.strongest_correlation),
            int((audit.pdtp > 1).sum()),
            {f"{accuracy:g}": audit.share_of_risky_above(accuracy) for accuracy in ACCURACIES},
        ),
        mean_pdtp=extended(audit.pdtp.mean()),
        max_pdtp=extended(audit.pdtp.max()),
        targets=[
            Target(int(record), extended(value), dict(zip(names, each.tolist(), strict=True)), float(most), names[best])
            for record, value, each, most, best in zip(records, audit.pdtp, per_target, largest, which, strict=True)
        ],
        papers=cited([*(each.source for each in audit.attacks), metrics.SOURCE]),
        provenance=provenance,
    )


def _attack(attack: AttackResult) -> Attack:
    found = attack.metrics
    return Attack(
        name=attack.name,
        accuracy=_estimate(found.accuracy),
        precision=_estimate(found.precision),
        recall=_estimate(found.recall),
        f1=_estimate(found.f1),
        auc=_estimate(found.auc),
        true_positive_rates=[_rate(rate) for rate in found.true_positive_rates],
        correlation=_correlation(attack.correlation),
        meaning=attack.meaning,
        source=attack.source,
    )


def _estimate(found: metrics.Estimate) -> Estimate:
    return Estimate(number(found.value), number(found.low), number(found.high))


def _rate(found: metrics.TruePositiveRate) -> Rate:
    value, low, high = map(number, found.rate)
    return Rate(found.limit, value, low, high, found.false_positive_rate, found.resolvable)


def _correlation(found: metrics.Correlation) -> Correlation:
    return Correlation(number(found.coefficient), number(found.p_value), found.count, found.reason)

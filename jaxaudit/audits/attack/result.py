"""The result of the `attack` audit, which is its JSON, and the value that the audit returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.audits.finding import Finding
from jaxaudit.json_types import Count, Nats, NumberOrNaN, StrictStruct, demand
from jaxaudit.metrics.arrays import Integers, Members
from jaxaudit.metrics.attack import AttackMetrics, AttackRates, Correlation, RateAt, Vulnerability
from jaxaudit.metrics.over_models import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Named(StrictStruct, frozen=True):
    """The records of a target that are called members at a stated false positive rate (`fpr`).

    Attributes:
        count: number of records called members.
        by_chance: expected number if the target had used none of the records: the shadow models' mean realised false
            positive rate times the number of records.
        at_most: upper prediction bound on the number called by chance, with probability `level`, over models.
    """

    fpr: float
    count: Count
    by_chance: float
    at_most: float
    level: float


class AttackedTarget(StrictStruct, frozen=True):
    """The result of the deciding attack on one target of unknown membership.

    Attributes:
        named: at each false positive rate that the bank resolves and whose thresholds hold.
    """

    name: str
    finding: Finding
    named: tuple[Named, ...]


class Riskiest(StrictStruct, frozen=True):
    """An exposed record, or group of records.

    Attributes:
        id: the caller's own name of it, if the bank keeps these. `set`, `place`: its set in the bank, and its index
            within that set, from 0. Of a group, all three are those of its first record.
        records: the number of its records.
        label: its class; empty if the records of a group have several.
        named, named_low, named_high: the share of the models trained on it in which it is called a member, with an
            interval; `models` is the number of these models.
        separation: the probability that a model trained on it is surer of its class than a model that was not.
        copies: number of other records with equal outputs in every model.
    """

    id: str
    set: str
    place: Count
    records: Count
    label: str
    named: float
    named_low: float
    named_high: float
    models: Count
    separation: NumberOrNaN
    copies: Count


class Exposure(StrictStruct, frozen=True):
    """How exposed records are to the deciding attack, over the models of a bank.

    Attributes:
        at_fpr: the false positive rate at which records are named; NaN if none can be measured, or no threshold holds.
        surely_named: number of records named more often than chance explains, corrected for the number of records.
        exposed: the share of judged records that are named in half or more of the models trained on them.
        judged: number of records for which that share is known.
        copies: number of records with the same outputs as another record in every model.
    """

    at_fpr: NumberOrNaN
    surely_named: Count
    exposed: NumberOrNaN
    judged: Count
    copies: Count
    riskiest: tuple[Riskiest, ...]


class Published(StrictStruct, frozen=True):
    """What the deciding attack reaches on the models of a bank if only these `outputs` are published, in words.

    Attributes:
        verdict: the grade by these rates, or `inconclusive`.
    """

    outputs: str
    verdict: str
    auc: Estimate
    tpr_at_fpr: tuple[RateAt, ...]


class AttackedRecord(StrictStruct, frozen=True):
    """One target record, attacked on models of random halves.

    Attributes:
        index: its row in the given table, from 0.
        pdtp: mean over the measured iterations, nats.
        accuracy: of each attack, the share of its answers on this record that were right.
    """

    index: Count
    pdtp: Nats
    accuracy: dict[str, float]

    @property
    def largest_accuracy(self) -> float:
        """That of the attack that is right most often."""
        return max(self.accuracy.values())


class SplitAttacks(StrictStruct, frozen=True):
    """Attacks on models of random halves; see `attack_splits`.

    Attributes:
        p_value: of "no attack is right more often than by guessing", see `better_than_guessing`.
        candidates: number of records that were split into halves.
        measured_iterations: number of random splits in which PDTP was measured.
        train_accuracy, test_accuracy: the attacked models' mean accuracy on their own half, and on the other half.
        guess_accuracy: accuracy of guessing the commonest class.
    """

    p_value: float
    candidates: Count
    measured_iterations: Count
    train_accuracy: float
    test_accuracy: float
    guess_accuracy: float
    records: tuple[AttackedRecord, ...]


class AttackOutcome(AttackRates, frozen=True, kw_only=True):
    """How well one attack separates members from non-members of the attacked models; larger means more exposed.

    On models of random halves, `auc` equals that of `metrics`: over all answers, with an interval over records.

    Attributes:
        of_targets: the same rates on targets of known membership, if there are any.
        metrics: of its answers on models of random halves, where a score above 0 means `in`.
        correlation: between its accuracy on a record and the record's mean PDTP; None with a bank.
    """

    name: str
    meaning: str
    source: str
    of_targets: AttackRates | None = None
    metrics: AttackMetrics | None = None
    correlation: Correlation | None = None


class AttackResult(StrictStruct, frozen=True, kw_only=True):
    """The results of all attacks, with their context.

    Attributes:
        finding: the verdict over models of this recipe.
        decided_by: the attack of the verdict: with a bank the first, on random halves the one that does best.
        models, records, views: numbers of attacked models and records, and of augmented queries of each record.
        references: the least number of shadow models that attack one model of a bank.
        groups: number of attacked groups, where a bank deals these; what is said of records then holds for groups.
        records_of_a_group: the smallest and the largest number.
        left_out: names of the attacks that the bank has too few models for.
        exposure: with a bank. `splits`: on random halves.
        published: with a bank whose models give some of its records away, what publishing less would change.
    """

    finding: Finding
    decided_by: str
    level: float
    models: Count
    references: Count | None = None
    records: Count
    groups: Count | None = None
    records_of_a_group: tuple[Count, Count] | None = None
    views: Count = 1
    left_out: tuple[str, ...] = ()
    attacks: tuple[AttackOutcome, ...]
    targets: tuple[AttackedTarget, ...] = ()
    exposure: Exposure | None = None
    published: tuple[Published, ...] = ()
    splits: SplitAttacks | None = None

    @property
    def deciding(self) -> AttackOutcome:
        """The attack that the verdict is about."""
        return next(attack for attack in self.attacks if attack.name == self.decided_by)

    @property
    def unit(self) -> Literal["record", "group"]:
        """What is attacked, in a word."""
        return "record" if self.groups is None else "group"

    @property
    def attacked(self) -> int:
        """The number of attacked records, or groups."""
        return self.records if self.groups is None else self.groups


@dataclass(frozen=True, eq=False)
class RecordArrays:
    """Results for each attacked record of a bank, or each group.

    Attributes:
        vulnerability: under the deciding attack, at `Exposure.at_fpr`.
        copies: number of the group of records with equal outputs in every model; -1 for a record without copies.
        called: which records are called members of each target.
    """

    vulnerability: Vulnerability
    copies: Integers
    called: Bool[np.ndarray, "targets n"]


@dataclass(frozen=True, eq=False)
class AttackAudit:
    """The result of the `attack` audit, and its arrays.

    Attributes:
        scores: of each attack, the score of each record on each attacked model, larger for a member; NaN if the attack
            has no score. On models of random halves a score above 0 means `in`.
        truth: which records each attacked model was trained on; for targets of a bank, the masks of the shadow models.
        records: index of each attacked record: its column in the bank, or its row among the candidates; of a group,
            that of its first record.
        unit_of_record: where a bank deals whole groups, the group of each of its records that is not dropped, numbered
            from 0 as the columns of `scores`.
        measurements: PDTP of each record in nats, one row per measured iteration; None with a bank.
        by_record: results for each record of a bank.
        sources: the papers that the numbers rest on.
        form: how convolutions were computed (`kernels.convolutions`); None: as JAX has them, or there are none.
    """

    result: AttackResult
    scores: Mapping[str, Float[np.ndarray, "attacked n"]]
    truth: Members
    records: Integers
    unit_of_record: Int[np.ndarray, " records"] | None = None
    measurements: Float[np.ndarray, "measurements n"] | None = None
    by_record: RecordArrays | None = None
    sources: tuple[str, ...] = ()
    form: str | None = None

    @property
    def finding(self) -> Finding:
        """The verdict over models of this recipe."""
        return self.result.finding

    def plot(self) -> "Figure":
        """ROC curves with the band of the deciding attack, and on random halves accuracy against PDTP."""
        from jaxaudit.plots import charts as plot
        from jaxaudit.plots.style import panels

        result = self.result
        figure, (curves, *records) = panels(1 if result.splits is None else 2)
        drawn = (result.deciding, *(attack for attack in result.attacks if attack.name != result.decided_by))
        plot.draw_curves(curves, {attack.name: attack.roc for attack in drawn})
        if result.splits is not None:
            plot.draw_accuracies(records[0], result.splits.records, [attack.name for attack in result.attacks])
        return figure


def check_attack_result(result: AttackResult) -> None:
    demand(result.decided_by in [attack.name for attack in result.attacks], "what decides is none of its attacks")
    for attack in result.attacks:
        points = (attack.roc.fpr, attack.roc.tpr, attack.roc.low, attack.roc.high)
        demand(len({len(point) for point in points}) == 1 and len(points[0]) > 0, "its ROC curve is misshapen")
    limits = {tuple(rate.fpr for rate in attack.tpr_at_fpr) for attack in result.attacks}
    demand(len(limits) == 1, "its attacks are measured at other false positive rates")

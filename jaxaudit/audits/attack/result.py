"""The result of the attacks, which is its JSON; and what the audit returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxaudit.audits.finding import Finding
from jaxaudit.json_types import Count, Nats, Number, NumberOrNaN, StrictStruct, demand
from jaxaudit.metrics.attack import AttackMetrics, Correlation
from jaxaudit.metrics.attack_rates import AttackRates
from jaxaudit.metrics.epsilon import EpsilonBound
from jaxaudit.metrics.vulnerability import Vulnerability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 5_000
"""Records of which `BesidePDTP` lists both numbers; of more, these with the largest PDTP."""


class AttackOutcome(AttackRates, frozen=True, kw_only=True):
    """How well one attack separates members from non-members of the attacked models; larger means more exposed.

    On models of random halves `auc` is that of `metrics`: of all answers together, with an interval over records.

    Attributes:
        name, meaning, source: as of the attack.
        of_targets: the same on targets of known membership; None without.
        metrics: of its answers on models of random halves, where it answers `in` if a score is above 0; None of a bank.
        correlation: of its accuracy on a record with the record's mean PDTP; None of a bank.
    """

    name: str
    meaning: str
    source: str
    of_targets: AttackRates | None = None
    metrics: AttackMetrics | None = None
    correlation: Correlation | None = None


class Named(StrictStruct, frozen=True):
    """The records of a target that are called members at a stated false positive rate.

    Attributes:
        fpr: the rate.
        count: records called.
        by_chance: records that would be called if the target had used none: the mean over shadow models of their
            realised false positive rate, times the records.
        at_most: as many are called by chance at most, with probability `level`: a prediction bound over models.
    """

    fpr: float
    count: Count
    by_chance: float
    at_most: float
    level: float


class AttackedTarget(StrictStruct, frozen=True):
    """What the deciding attack says of one target of unknown membership.

    Attributes:
        name: of its file.
        finding: what the audit concludes of it.
        named: how many records are called members, at each false positive rate that the bank resolves and its
            thresholds hold at.
        strangeness, usual_strangeness, likeness_p_value: whether its outputs are such as the shadow models give, see
            `jaxaudit.metrics.vulnerability.Likeness`; None where too few models tell.
    """

    name: str
    finding: Finding
    named: tuple[Named, ...]
    strangeness: Number
    usual_strangeness: Number
    likeness_p_value: Number


class Riskiest(StrictStruct, frozen=True):
    """A record that is given away.

    Attributes:
        set, place: the set of the bank that it is in, and its place there, from 0.
        label: its class.
        named, named_low, named_high: the share of the models trained on it in which it is called a member; `models` is
            their number.
        gap, gap_low, gap_high: see `jaxaudit.metrics.vulnerability.Vulnerability`; nats.
        saturated: the share of shadow models whose log-odds lie where their files can say no more, so that the gap is
            not known.
        separation: the chance that a model with it is surer of its class than a model without it.
        revealing: the class that gives it away; None if the bank does not say.
        copies: other records with the same outputs in every model.
    """

    set: str
    place: Count
    label: str
    named: float
    named_low: float
    named_high: float
    models: Count
    gap: NumberOrNaN
    gap_low: NumberOrNaN
    gap_high: NumberOrNaN
    saturated: float
    separation: NumberOrNaN
    revealing: str | None
    copies: Count


class Exposure(StrictStruct, frozen=True):
    """How far records are given away over the models of a bank, by the deciding attack.

    Attributes:
        at_fpr: the false positive rate that records are named at; NaN if none can be told or thresholds hold at none.
        surely_named: how many records are named more often than chance explains, whatever their number.
        exposed: the share of records that are named in half or more of the models trained on them.
        judged: records of which that is known.
        copies: records with the same outputs as another in every model.
        separation_edges, separation_counts: a histogram of the separations.
        riskiest: the records that are given away most.
    """

    at_fpr: NumberOrNaN
    surely_named: Count
    exposed: NumberOrNaN
    judged: Count
    copies: Count
    separation_edges: tuple[float, ...]
    separation_counts: tuple[Count, ...]
    riskiest: tuple[Riskiest, ...]


class Epsilon(EpsilonBound, frozen=True, kw_only=True):
    """A lower bound on the epsilon of the recipe; see `metrics/epsilon.py`.

    Attributes:
        method: of the bound.
        attack: the attack that gave it.
        sentence: what it says of a claim of differential privacy.
    """

    method: str
    attack: str
    sentence: str


class BesidePDTP(StrictStruct, frozen=True):
    """PDTP of records beside how often the deciding attack names them.

    PDTP asks how far leaving a record out moves a model's output on it, an attack how far that is beyond what models
    differ by anyhow. A record is at risk by PDTP above 1 nat, and by the attack if half or more of the models trained
    on it name it.

    Attributes:
        rank_correlation, p_value: Spearman's, of PDTP and the share of models that name the record; NaN where there is
            none.
        separation_correlation: of PDTP and the separation.
        both, pdtp_alone, attack_alone, neither: records, by what they are at risk by.
        pdtp, named: nats, and shares, of at most `MOST_POINTS` records.
    """

    rank_correlation: NumberOrNaN
    p_value: NumberOrNaN
    separation_correlation: NumberOrNaN
    both: Count
    pdtp_alone: Count
    attack_alone: Count
    neither: Count
    pdtp: tuple[Nats, ...]
    named: tuple[float, ...]


class AttackedRecord(StrictStruct, frozen=True):
    """One record that models of random halves were attacked on.

    Attributes:
        index: its place in the given table, from 0.
        pdtp: mean over the measured iterations, nats.
        accuracy: by attack, the share of attacks on it that were right.
        largest_accuracy, strongest_attack: the largest of these, and which attack has it.
    """

    index: Count
    pdtp: Nats
    accuracy: dict[str, float]
    largest_accuracy: float
    strongest_attack: str


class Strongest(StrictStruct, frozen=True):
    """The largest accuracy on each record over attacks (figure 2 of the paper).

    Attributes:
        correlation: with mean PDTP (0.8936 for the paper's network).
        pdtp_above_1: records with a mean PDTP above 1.
        share_above: of these, the share with an accuracy above each of `ACCURACIES`; None if there are none.
    """

    correlation: Correlation
    pdtp_above_1: Count
    share_above: dict[str, Number]


class Splits(StrictStruct, frozen=True):
    """Attacks on models of random halves; see `attack_splits`.

    Attributes:
        p_value: of "no attack is right more often than by guessing", see `better_than_guessing`.
        candidates, training_records: records of the candidate set, and half of them.
        iterations, measured_iterations: random splits, and those in which PDTP was measured.
        bins: equal bins of [0, 1] into which outputs were rounded; 0 for none.
        train_accuracy, test_accuracy: the attacked models' mean accuracy on their own half, and on the other.
        guess_accuracy: of guessing the commonest class.
        mean_pdtp, max_pdtp: over the attacked records, nats.
        strongest: each record's largest accuracy.
        records: the attacked records.
    """

    p_value: float
    candidates: Count
    training_records: Count
    iterations: Count
    measured_iterations: Count
    bins: Count
    train_accuracy: float
    test_accuracy: float
    guess_accuracy: float
    mean_pdtp: Nats
    max_pdtp: Nats
    strongest: Strongest
    records: tuple[AttackedRecord, ...]


class AttackResult(StrictStruct, frozen=True, kw_only=True):
    """All attacks, and their context.

    Attributes:
        finding: what the audit concludes of models of this recipe.
        decided_by: the attack that the finding is about: of a bank the first, of random halves the one that does best.
        level: confidence level of the intervals; no verdict depends on it.
        models: models that were attacked.
        references: of a bank, shadow models that attack each of them, at least; None of random halves.
        records: records that were attacked.
        views: of each record.
        left_out: attacks that a bank has too few models for, by name.
        attacks: one each.
        targets: what is concluded of each target of a bank.
        exposure: how far single records are given away; None of random halves.
        splits: of random halves; None of a bank.
        epsilon: a lower bound on the epsilon of the recipe; None where it was not asked for.
        beside_pdtp: PDTP beside the deciding attack; None where it was not given.
    """

    finding: Finding
    decided_by: str
    level: float
    models: Count
    references: Count | None = None
    records: Count
    views: Count = 1
    left_out: tuple[str, ...] = ()
    attacks: tuple[AttackOutcome, ...]
    targets: tuple[AttackedTarget, ...] = ()
    exposure: Exposure | None = None
    splits: Splits | None = None
    epsilon: Epsilon | None = None
    beside_pdtp: BesidePDTP | None = None

    @property
    def deciding(self) -> AttackOutcome:
        """The attack that the finding is about."""
        return next(attack for attack in self.attacks if attack.name == self.decided_by)


@dataclass(frozen=True, eq=False)
class RecordArrays:
    """What is known of each record of a bank that was attacked.

    Attributes:
        vulnerability: by the deciding attack, at `Exposure.at_fpr`.
        saturated: the share of shadow models, over its views, whose log-odds lie where the files of the bank can say no
            more: a probability of 1, or log-odds beyond 20 nats of probabilities. There the gap of a record is not
            known; where it is 0, the gap is that of the models' logits.
        copies: the group of records with the same outputs in every model; -1 of one alone.
        revealing: the class that gives each record away; None if the bank does not say.
        called: which records are called members of each target.
        pdtp: nats; None where it was not given.
    """

    vulnerability: Vulnerability
    saturated: Float[np.ndarray, " n"]
    copies: Int[np.ndarray, " n"]
    revealing: Int[np.ndarray, " n"] | None
    called: Bool[np.ndarray, "targets n"]
    pdtp: Float[np.ndarray, " n"] | None


@dataclass(frozen=True, eq=False)
class AttackAudit:
    """A result, and its arrays.

    Attributes:
        result: the result.
        scores: by attack, of each record under each attacked model, larger for a member; NaN where the attack says
            nothing. On models of random halves the attack answers `in` above 0.
        truth: which records each attacked model was trained on; of targets of a bank, that of the shadow models.
        records: places of the attacked records: columns of the bank, or among the candidates.
        measurements: PDTP of each record in nats, one row per measured iteration; None of a bank.
        by_record: of a bank; None of random halves.
        sources: the papers that its numbers rest on.
        models_per_batch: models trained at the same time; None of a bank.
    """

    result: AttackResult
    scores: Mapping[str, Float[np.ndarray, "attacked n"]]
    truth: Bool[np.ndarray, "models n"]
    records: Int[np.ndarray, " n"]
    measurements: Float[np.ndarray, "measurements n"] | None = None
    by_record: RecordArrays | None = None
    sources: tuple[str, ...] = ()
    models_per_batch: int | None = None

    @property
    def finding(self) -> Finding:
        """What the audit concludes of models of this recipe."""
        return self.result.finding

    def plot(self) -> "Figure":
        """ROC curves with their band, and single records: accuracy against PDTP, or separations."""
        from jaxaudit.audits.attack.figure import plot_attack

        return plot_attack(self.result)


def check(result: AttackResult, arrays: Mapping[str, np.ndarray]) -> None:
    """Holds a result that was read against itself; there are no arrays beside it.

    Raises:
        ValueError: what does not fit.
    """
    names = [attack.name for attack in result.attacks]
    demand(len(set(names)) == len(names) > 0, "it has no attack, or one is named twice")
    demand(result.decided_by in names, "the attack that decides is none of its attacks")
    demand((result.splits is None) != (result.exposure is None), "it is of a bank and of random halves, or of neither")
    for attack in result.attacks:
        _check_rates(attack)
        if attack.of_targets is not None:
            _check_rates(attack.of_targets)
        demand(
            (attack.metrics is None) == (attack.correlation is None) == (result.splits is None), "metrics are missing"
        )
    limits = {tuple(rate.fpr for rate in attack.tpr_at_fpr) for attack in result.attacks}
    demand(len(limits) == 1 and limits != {()}, "its attacks have different false positive rates, or none")
    if result.splits is not None:
        _check_splits(result.splits, names)
    if result.exposure is not None:
        demand(result.decided_by == names[0], "its first attack is not the one that decides")
        edges, counts = result.exposure.separation_edges, result.exposure.separation_counts
        demand(len(edges) == len(counts) + 1 > 1, "its histogram is misshapen")
        demand(all(a < b for a, b in pairwise(edges)), "its histogram is out of order")
    if result.epsilon is not None:
        bound = result.epsilon
        demand(bound.bound >= 0 and 0 < bound.delta < 1 and 0 < bound.level < 1, "its epsilon, delta or level is none")
        demand(0 <= bound.right <= bound.guesses <= bound.members + bound.non_members, "its guesses are miscounted")
    if result.beside_pdtp is not None:
        beside = result.beside_pdtp
        compared = beside.both + beside.pdtp_alone + beside.attack_alone + beside.neither
        points = min(compared, MOST_POINTS)
        demand(len(beside.pdtp) == len(beside.named) == points, "PDTP and calls are of other records")
        demand(all(0 <= each <= 1 for each in beside.named), "a share of models that name a record is none")


def _check_rates(rates: AttackRates) -> None:
    stated = [[rate.fpr for rate in each] for each in (rates.tpr_at_fpr, rates.realised_fpr)]
    demand(stated[0] == stated[1], "true and false positive rates are not of the same stated ones")
    demand(all(0 < each < 1 for each in stated[0]), "a stated false positive rate is not between 0 and 1")
    for rate in rates.tpr_at_fpr:
        told = rate.resolvable and rate.holds
        demand(told != bool(np.isnan(rate.value)), "a rate is shown that cannot be told, or the reverse")
    shares = {tuple(rate.predictive_value) for rate in rates.tpr_at_fpr}
    demand(len(shares) == 1 and all(_is_share(each) for each in shares.pop()), "its shares of members are no shares")
    points = [rates.roc.fpr, rates.roc.tpr, rates.roc.low, rates.roc.high]
    demand(len({len(each) for each in points}) == 1 and len(points[0]) > 0, "its ROC curve is misshapen")
    demand(all(0 <= value <= 1 for each in points for value in each), "its ROC curve leaves the unit square")


def _check_splits(found: Splits, names: list[str]) -> None:
    demand(0 < found.p_value <= 1, "its p-value is none")
    demand(len(found.records) > 0, "no record was attacked")
    for record in found.records:
        demand(set(record.accuracy) == set(names), "a record's accuracies are not of the attacks")


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False

"""Sections of a result of attacks: targets, exposed records, random halves, epsilon, an attack beside PDTP.

PDTP: how far leaving a record out of training moves the output on it, in nats.
"""

from typing import Literal

from jaxaudit.audits.finding import Finding
from jaxaudit.json_types import Count, Nats, Number, NumberOrNaN, StrictStruct
from jaxaudit.metrics.attack import Correlation
from jaxaudit.metrics.epsilon import EpsilonBound

MOST_POINTS = 5_000
"""The most records for which `BesidePDTP` lists both numbers: those with the largest PDTP."""


class Named(StrictStruct, frozen=True):
    """The records of a target that are called members at a stated false positive rate.

    Attributes:
        fpr: the stated rate.
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
        name: of its file.
        finding: the verdict over the target.
        named: number of records called members, at each false positive rate that the bank resolves and whose thresholds
            hold.
        strangeness, usual_strangeness, likeness_p_value: whether its outputs look like those of the shadow models, see
            `jaxaudit.metrics.vulnerability.Likeness`; None with too few models.
    """

    name: str
    finding: Finding
    named: tuple[Named, ...]
    strangeness: Number
    usual_strangeness: Number
    likeness_p_value: Number


class Riskiest(StrictStruct, frozen=True):
    """An exposed record, or group of records.

    Attributes:
        set, place: its set in the bank, and its index within that set, from 0; of a group, that of its first record.
        records: the number of its records.
        label: its class; empty if the records of a group have several.
        named, named_low, named_high: the share of the models trained on it in which it is called a member, with an
            interval; `models` is the number of these models.
        gap, gap_low, gap_high: see `jaxaudit.metrics.vulnerability.Vulnerability`; nats.
        saturated: the share of shadow models whose log-odds are at the limit of what their files represent; above 0,
            the gap is unknown.
        separation: the probability that a model trained on it is surer of its class than a model that was not.
        revealing: the class whose probability reveals it most; None if the bank does not store it.
        copies: number of other records with equal outputs in every model.
    """

    set: str
    place: Count
    records: Count
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
    """How exposed records are to the deciding attack, over the models of a bank.

    Attributes:
        at_fpr: the false positive rate at which records are named; NaN if no rate can be measured, or no threshold
            holds.
        surely_named: number of records named more often than chance explains, corrected for the number of records.
        exposed: the share of judged records that are named in half or more of the models trained on them.
        judged: number of records for which that share is known.
        copies: number of records with the same outputs as another record in every model.
        separation_edges, separation_counts: a histogram of the separations.
        riskiest: the most exposed records.
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
        method: how the bound was computed.
        attack: the attack that it rests on.
        sentence: what follows for a claim of differential privacy.
        of: what is added or removed, a record or a whole group; differential privacy of groups is also called that of
            users.
    """

    method: str
    attack: str
    sentence: str
    of: Literal["record", "group"] = "record"


class BesidePDTP(StrictStruct, frozen=True):
    """PDTP of records compared with how often the deciding attack names them.

    PDTP measures how far leaving a record out moves a model's output on it. An attack measures how far that change
    exceeds the usual differences between models. A record is at risk by PDTP above 1 nat, and by the attack if half or
    more of the models trained on it name it.

    Attributes:
        rank_correlation, p_value: Spearman's, between PDTP and the share of models that name the record; NaN if
            undefined.
        separation_correlation: Spearman's, between PDTP and the separation.
        both, pdtp_alone, attack_alone, neither: number of records at risk by both measures, by one, or by neither.
        pdtp, named: PDTP (nats) and shares, of at most `MOST_POINTS` records.
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
    """One target record, attacked on models of random halves.

    Attributes:
        index: its row in the given table, from 0.
        pdtp: mean over the measured iterations, nats.
        accuracy: of each attack, the share of its answers on this record that were right.
        largest_accuracy, strongest_attack: the largest accuracy, and the attack that reached it.
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


class SplitAttacks(StrictStruct, frozen=True):
    """Attacks on models of random halves; see `attack_splits`.

    Attributes:
        p_value: of "no attack is right more often than by guessing", see `better_than_guessing`.
        candidates, training_records: number of candidates, and half of it.
        iterations, measured_iterations: number of random splits, and of those in which PDTP was measured.
        bins: equal bins of [0, 1] into which outputs were rounded; 0 for none.
        train_accuracy, test_accuracy: the attacked models' mean accuracy on their own half, and on the other half.
        guess_accuracy: accuracy of guessing the commonest class.
        mean_pdtp, max_pdtp: over the attacked records, nats.
        strongest: the largest accuracy over attacks.
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

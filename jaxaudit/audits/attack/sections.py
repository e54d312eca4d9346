"""Sections of a result of attacks: targets, exposed records, random halves, epsilon, and PDTP beside an attack."""

from jaxaudit.audits.finding import Finding
from jaxaudit.json_types import Count, Nats, Number, NumberOrNaN, StrictStruct
from jaxaudit.metrics.attack import Correlation
from jaxaudit.metrics.epsilon import EpsilonBound

MOST_POINTS = 5_000
"""Records of which `BesidePDTP` lists both numbers; of more, these with the largest PDTP."""


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

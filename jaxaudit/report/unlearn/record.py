"""The `unlearn` answer as JSON: what `jaxaudit unlearn --json` prints and `--out` writes."""

from typing import Literal

import msgspec
import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.unlearn.finding import LEAST_SEEDS, Conclusion, Position, together
from jaxaudit.audits.unlearn.result import COMPARED, MethodResult, UnlearnAudit
from jaxaudit.metrics import ChallengeScore, retrained_band
from jaxaudit.metrics.attack import Estimate
from jaxaudit.report.papers import cited
from jaxaudit.report.record import Extended, Number, Part, Provenance, Record, extended, number

Score = Literal["efficacy", "bound", "remaining_accuracy", "forgotten_accuracy", "test_accuracy", "attack"]


class Protocol(Part):
    """How many records and models there were, and what the test over seeds asks for."""

    training_records: int
    forgotten_records: int
    test_records: int
    attack_nonmembers: int
    seeds: int
    level: float
    p_value_threshold: float
    enough_seeds: bool
    members_share: Number
    seeds_to_compare: int = LEAST_SEEDS


class Spread(Part):
    """A score of the models of all seeds, in the order of the seeds."""

    median: Extended
    low: Extended
    high: Extended
    mean: Extended
    values: list[Extended]


class Scores(Part):
    """The scores of one method; null where they were not measured. See `jaxaudit.audits.unlearn.result.Scores`."""

    efficacy: Spread | None
    information: Spread | None
    bound: Spread | None
    remaining_accuracy: Spread | None
    forgotten_accuracy: Spread | None
    test_accuracy: Spread | None
    attack: Spread | None


class Place(Part):
    """Where a score lies among those of retrained models; see `jaxaudit.metrics.retrained_band.Place`."""

    verdict: Position
    p_value: float
    retrained_low: Extended
    retrained_high: Extended
    share_below: float
    share_above: float


class Ranged(Part):
    """A number and its interval over models."""

    value: float
    low: float
    high: float


class Challenge(Part):
    """The score of the NeurIPS 2023 unlearning challenge; see `jaxaudit.metrics.forgetting_quality.ChallengeScore`.

    `epsilon` has one number for each forgotten record, in their order. A ratio or a score is null where the accuracy of
    retrained models is 0.
    """

    epsilon: list[float]
    quality: Ranged
    remaining_ratio: Number
    test_ratio: Number
    score: Ranged | None


class Method(Part):
    """One method; a reference has no conclusion and no finding.

    `challenge` and the accuracy of `u_lira` compare its models of one half of the seeds with retrained models of the
    other half; null for untrained models, and with fewer seeds than `Protocol.seeds_to_compare`. `layers` is the
    information of each layer, the median of its models.
    """

    name: str
    scores: Scores
    places: dict[Score, Place]
    conclusion: Conclusion | None
    finding: Finding | None
    challenge: Challenge | None = None
    u_lira: Ranged | None = None
    layers: dict[str, float] = msgspec.field(default_factory=dict)


class UnlearnRecord(Record, kw_only=True):
    """The object, about one set to forget; `caveats` are those of the finding."""

    schema: Literal["jaxaudit.unlearn/2"] = "jaxaudit.unlearn/2"
    finding: Finding
    forgotten: str
    protocol: Protocol
    methods: list[Method]
    caveats: list[str]


def unlearn_record(
    audit: UnlearnAudit, forgotten: str, notes: tuple[str, ...], provenance: Provenance
) -> UnlearnRecord:
    """The record of an audit of one set to forget; of several, that of the first.

    Args:
        audit: what was found.
        forgotten: what was to be forgotten, in words.
        notes: further sentences, which become caveats of every finding.
        provenance: what repeats the run.
    """

    def noted(finding: Finding) -> Finding:
        return msgspec.structs.replace(finding, caveats=(*finding.caveats, *notes))

    findings = audit.findings()
    whole = noted(together(findings))
    noted_findings = {name: noted(finding) for name, finding in findings.items()}
    return UnlearnRecord(
        finding=whole,
        forgotten=forgotten,
        protocol=Protocol(
            training_records=audit.examples,
            forgotten_records=int(audit.forgotten[0]),
            test_records=audit.test_examples,
            attack_nonmembers=audit.nonmembers,
            seeds=audit.seeds,
            level=audit.level,
            p_value_threshold=audit.threshold,
            enough_seeds=audit.enough_seeds,
            members_share=audit.members_share if audit.nonmembers else None,
        ),
        methods=[_method(audit, method, noted_findings.get(method.name)) for method in audit.methods],
        caveats=list(whole.caveats),
        papers=cited(audit.sources),
        provenance=provenance,
    )


def median(values: Float[np.ndarray, " seeds"]) -> float:
    """The median, of an even number the mean of the two in the middle; infinite where either is."""
    ordered = np.sort(values)
    low, high = ordered[(len(values) - 1) // 2], ordered[len(values) // 2]
    return float(low) if low == high else float(low / 2 + high / 2)


def _method(audit: UnlearnAudit, method: MethodResult, finding: Finding | None) -> Method:
    return Method(
        method.name,
        Scores(**{name: _spread(values[0]) for name, values in method.scores._asdict().items()}),
        {name: _place(audit, method.places[name][0]) for name in COMPARED if name in method.places},
        None if finding is None else audit.conclusion(method.name),
        finding,
        _challenge(method.challenge[0]) if method.challenge else None,
        _ranged(method.u_lira[0].accuracy) if method.u_lira else None,
        {name: median(values[0]) for name, values in method.layers.items()},
    )


def _challenge(found: ChallengeScore) -> Challenge:
    return Challenge(
        found.epsilon.tolist(),
        _ranged(found.quality),
        number(found.remaining_ratio),
        number(found.test_ratio),
        _ranged(found.score) if np.isfinite(found.score).all() else None,
    )


def _ranged(found: Estimate) -> Ranged:
    return Ranged(*map(float, found))


def _spread(values: np.ndarray) -> Spread | None:
    if np.isnan(values).any():
        return None
    middle, low, high, mean = map(extended, (median(values), values.min(), values.max(), values.mean()))
    return Spread(middle, low, high, mean, [extended(value) for value in values])


def _place(audit: UnlearnAudit, place: retrained_band.Place) -> Place:
    ends = extended(place.low), extended(place.high)
    return Place(audit.verdict(place), place.p_value, *ends, place.below, place.above)

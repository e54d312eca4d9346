"""The `ks` answer as JSON: what `jaxaudit ks --json` prints and `--out` writes."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxaudit.audits.finding import Confidence, Finding
from jaxaudit.audits.ks.result import KSAudit, TargetResult
from jaxaudit.audits.ks.tests.ema import medians
from jaxaudit.audits.ks.tests.test import Judgement
from jaxaudit.metrics import checks
from jaxaudit.metrics import ks as of_rho
from jaxaudit.metrics import usage as of_use
from jaxaudit.metrics.ema import EMA as Replicate
from jaxaudit.metrics.ema import ema_rule
from jaxaudit.report.papers import cited
from jaxaudit.report.record import Number, Part, Provenance, Record, number

Verdict = Literal["forgotten", "not forgotten", "inconclusive"]


class Truth(Part):
    """What a simulated target was trained on."""

    used_fraction: float
    training_records: int
    expected: Verdict


class Rho(Part):
    """The ratio over replicates and its interval."""

    median: Number
    low: Number
    high: Number
    values: list[Number]


class Distances(Part):
    """Kolmogorov-Smirnov distances from the query model of each replicate."""

    target: list[Number]
    calibration: list[Number]


class Check(Part):
    """See `jaxaudit.metrics.checks.Check`."""

    name: str
    passed: bool
    value: Number
    threshold: Number
    decisive: bool
    message: str


class Usage(Part):
    """See `jaxaudit.metrics.usage.Usage`; `fraction` is null where the data do not determine it.

    `verdict` is what these numbers alone say; what is concluded, with the checks, is the finding of the test.
    `p_confidence` is how far to trust `p_never`, `fraction_confidence` the fraction and its limits. `question` is what
    the fraction is of: what was used, or what is left; runs of older versions do not have it.
    """

    method: str
    verdict: Verdict
    p_never: float
    p_fully: Number
    fraction: Number
    fraction_low: Number
    fraction_high: Number
    detectable: Number
    reasons: list[str]
    upper: float
    p_never_adjusted: Number
    design: Literal["guessed", "mixed", "none"]
    p_confidence: Confidence
    fraction_confidence: Confidence
    question: of_use.Question = "used"


class Change(Part):
    """See `jaxaudit.metrics.before_after.Change`; `fraction` is null where it is unknown."""

    fraction: Number
    low: float
    high: float
    p_value: float
    p_never_before: float


class EMA(Part):
    """Medians over replicates, each replicate's numbers, and what the paper's rule says; see the test's finding."""

    p_value: Number
    member_share: Number
    p_values: list[Number]
    member_shares: list[Number]
    rule: Verdict


class Test(Part):
    """What one test says; the first of a target decides."""

    name: str
    title: str
    finding: Finding


class Resembles(Part):
    """The design of shadow models that a target is most like, and how often a shadow model's own is recognised."""

    design: str
    recognised: float


class Target(Part):
    """One target. `verdict`, `because` and `method` are those of `finding`, in the words of version 1.

    `paper_rule`, `rho`, `rho_verdict`, `ks` and `controls` are null in a run without rho.
    """

    name: str
    truth: Truth | None
    finding: Finding
    verdict: Verdict
    because: str
    method: str
    paper_rule: Verdict | None
    rho: Rho | None
    rho_verdict: Verdict | None
    ks: Distances | None
    controls: list[Rho] | None
    usage: list[Usage]
    change: Change | None
    ema: EMA | None
    tests: list[Test]
    checks: list[Check]
    resembles: Resembles | None = None


class Floor(Part):
    """Distances between query models that differ by their seed alone."""

    median: Number
    max: Number
    values: list[Number]


class Rates(Part):
    """How often a test gave each verdict for shadow models that used this fraction of so many query records."""

    test: str
    used: float
    records: int
    targets: int
    not_forgotten: int
    forgotten: int
    inconclusive: int


class KSRecord(Record, kw_only=True):
    """The object; `noise_floor` is null in a run without rho, `rates` without --leave-one-out."""

    schema: Literal["jaxaudit.ks/2"] = "jaxaudit.ks/2"
    level: float
    targets: list[Target]
    noise_floor: Floor | None
    rates: list[Rates] | None = None


class OfRho(NamedTuple):
    """What rho says of one target: see `Target`."""

    paper_rule: Verdict
    rho: Rho
    verdict: Verdict
    ks: Distances
    controls: list[Rho]


def rho_of(target: Target) -> OfRho | None:
    """What rho says of a target; None in a run without rho."""
    rule, rho, verdict, ks, controls = target.paper_rule, target.rho, target.rho_verdict, target.ks, target.controls
    if rule is None or rho is None or verdict is None or ks is None or controls is None:
        return None
    return OfRho(rule, rho, verdict, ks, controls)


def with_rho(targets: Sequence[Target]) -> list[tuple[Target, OfRho]]:
    """The targets with what rho says of them; none in a run without rho."""
    return [(target, rho) for target in targets if (rho := rho_of(target)) is not None]


def ks_record(audit: KSAudit, provenance: Provenance) -> KSRecord:
    """The record of an audit: numbers JSON cannot hold (no interval, no ratio) are null."""
    targets = [_target(target) for target in audit.targets]
    floor = None if all(target.rho is None for target in targets) else _floor(audit.noise_floor)
    rates = [Rates(*each) for each in audit.rates] or None
    papers = cited(each.source for target in audit.targets for each in target.judgements)
    return KSRecord(
        level=audit.level, targets=targets, noise_floor=floor, rates=rates, papers=papers, provenance=provenance
    )


def _target(target: TargetResult) -> Target:
    truth: Any = target.truth
    rho, verdict = target.rho, target.rho_verdict
    return Target(
        name=target.name,
        truth=truth and Truth(truth.used_fraction, truth.records, truth.expected),
        finding=target.finding,
        verdict=_verdict(target.verdict),
        because=target.because,
        method=target.method,
        paper_rule=target.paper_rule,
        rho=rho and _rho(rho),
        rho_verdict=None if verdict is None else _verdict(verdict),
        ks=rho and Distances(_numbers(rho.distances), _numbers(rho.calibration_distances)),
        controls=rho and [_rho(control) for control in target.controls],
        usage=[_usage(each.usage, each) for each in target.judgements if each.usage is not None],
        change=None if target.change is None else Change(number(target.change.fraction), *target.change[1:]),
        ema=_ema(target.ema),
        tests=[Test(each.test, each.title, each.finding) for each in target.judgements],
        checks=[_check(check) for check in target.checks],
        resembles=target.resembles and Resembles(*target.resembles),
    )


def _floor(floor: np.ndarray) -> Floor:
    return Floor(
        number(np.median(floor)) if len(floor) else None, number(np.max(floor)) if len(floor) else None, _numbers(floor)
    )


def _verdict(verdict: str) -> Verdict:
    found: dict[str, Verdict] = {each: each for each in ("forgotten", "not forgotten", "inconclusive")}
    return found[verdict]


NOT_SAID = Confidence("none", "The test does not say.")


def _usage(found: of_use.Usage, judgement: Judgement) -> Usage:
    share = of_use.used_share(found)
    return Usage(
        found.method,
        found.verdict,
        found.p_never,
        found.p_fully,
        share and share.value,
        number(found.fraction_low),
        number(found.fraction_high),
        found.detectable,
        list(found.reasons),
        found.upper,
        found.p_never_adjusted,
        "mixed" if found.design == "mixed" else "none" if found.design == "none" else "guessed",
        judgement.p_confidence or NOT_SAID,
        judgement.fraction_confidence or NOT_SAID,
        found.question,
    )


def _ema(emas: tuple[Replicate, ...]) -> EMA | None:
    if not emas:
        return None
    p_value, share = medians(emas)
    p_values, shares = ([number(getattr(each, name)) for each in emas] for name in ("p_value", "member_share"))
    return EMA(number(p_value), number(share), p_values, shares, ema_rule(p_value))


def _rho(rho: of_rho.Rho) -> Rho:
    return Rho(number(rho.median), number(rho.low), number(rho.high), _numbers(rho.values))


def _check(check: checks.Check) -> Check:
    return Check(check.name, check.passed, number(check.value), number(check.threshold), check.decisive, check.message)


def _numbers(values: np.ndarray) -> list[Number]:
    return [number(value) for value in values]

"""Small `ks` audits and their runs: the numbers of every test are given, and the tests decide on them as ever."""

from typing import Any

import numpy as np
from scipy import stats

from jaxaudit.audits.ks.evidence import Truth
from jaxaudit.audits.ks.result import KSAudit, TargetResult, conclude
from jaxaudit.audits.ks.tests import EMATest, HoldoutTest, Judgement, RhoTest, ShadowTest
from jaxaudit.audits.ks.tests.holdout import with_change
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.before_after import Change
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import EMA, Thresholds
from jaxaudit.metrics.ks import Rho
from jaxaudit.metrics.usage import Usage
from jaxaudit.plots.ks import widest_gap
from jaxaudit.report.ks.record import KSRecord, ks_record
from jaxaudit.report.run import Run
from support.saved_runs.provenance import provenance

RECORDS = 400
OF_RHO = (
    *(preflight.DISTANCES_APART, preflight.QUERY_SIZE, preflight.TIED_CONFIDENCES),
    preflight.POSITIVE_CONTROL,
)
OF_HOLDOUT = (preflight.HOLDOUT_LIKE_QUERY, preflight.HOLDOUT_APART, preflight.HOLDOUT_MODELS)
OF_SHADOW = (preflight.SHADOW_MODELS,)
"""Checks that one test makes; others are shared."""

USED = Usage("holdout", "not forgotten", 0.0005, 0.4, 0.92, 0.7, 1.0, 0.1, (), 0.98)
UNUSED = Usage("holdout", "forgotten", 0.6, 0.025, 0.0, 0.0, 0.05, 0.031, (), 0.0421)
UNSURE = Usage("shadow", "inconclusive", 0.3, None, float("nan"), 0.0, 1.0, None, ("too few records", "and no power"))


def check(name: str, passed: bool = True, decisive: bool = True, message: str = "as it is") -> Check:
    """A check of this name."""
    return Check(name, passed, 0.1, 0.5, decisive, message)


def ema(p_value: float, share: float = 0.75) -> EMA:
    """What EMA says with one replicate, in as far as anyone asks."""
    return EMA(p_value, share, np.arange(4) < 4 * share, Thresholds(np.zeros(2), np.zeros(2)))


def rho_between(low: float, high: float, median: float | None = None) -> Rho:
    """rho with this interval, over two replicates."""
    middle = (low + high) / 2
    shown = middle if median is None else median
    values = np.full(2, middle)
    return Rho(values, shown, low, high, values, np.ones(2), error_of(high - middle))


def error_of(reach: float) -> float:
    """The standard error of two replicates whose 95% interval reaches so far from their mean."""
    return reach / float(stats.t.ppf(0.975, 1))


def judged(
    name: str = "outputs.csv",
    rho: Rho | None = None,
    *,
    usage: tuple[Usage, ...] = (),
    emas: tuple[EMA, ...] = (),
    checks: tuple[Check, ...] = (),
    controls: tuple[Rho, ...] = (),
    truth: Truth | None = None,
    change: Change | None = None,
    confidences: np.ndarray | None = None,
    with_rho: bool = True,
) -> TargetResult:
    """What is concluded of these numbers: by tests of use, in their order, then by EMA, then by rho, if it is made."""

    def made(names: tuple[str, ...]) -> tuple[Check, ...]:
        return tuple(each for each in checks if each.name in names)

    common = tuple(each for each in checks if each.name not in OF_RHO + OF_HOLDOUT + OF_SHADOW)
    judgements: list[Judgement] = [
        HoldoutTest().decide(each, made(OF_HOLDOUT))
        if each.method == "holdout"
        else ShadowTest().decide(each, made(OF_SHADOW))
        for each in usage
    ]
    if change is not None and judgements and judgements[0].test == "holdout":
        judgements[0] = with_change(judgements[0], change)
    judgements += [EMATest().decide(emas)] if emas else []
    rho = rho_between(0.4, 0.6) if rho is None else rho
    judgements += [RhoTest().decide(rho, controls, made(OF_RHO), common)] if with_rho else []
    said = np.ones((1, RECORDS), np.float32) if confidences is None else confidences
    return conclude(name, truth, said, tuple(judgements), common)


def audit_of(*targets: TargetResult, floor: tuple[float, ...] = (0.01, 0.02, 0.06)) -> KSAudit:
    """An audit of these targets, against two replicates that say nothing; without rho against none."""
    rho = targets[0].rho
    ones = np.ones((0 if rho is None else len(rho.values), RECORDS), np.float32)
    seeds = np.array(() if rho is None else floor)
    return KSAudit(targets, seeds, ones, ones, ones[:1], np.zeros(RECORDS, np.int32), 0.95, 4)


def rho_of(target: TargetResult) -> Rho:
    """rho of a target that has it."""
    assert target.rho is not None
    return target.rho


def ks_audit(name: str = "outputs.csv") -> KSAudit:
    """A target that used the query set and one that did not, by rho, against two replicates."""
    rng = np.random.default_rng(0)
    query, calibration = (rng.beta(a, 1, (2, RECORDS)).astype(np.float32) for a in (30, 2))

    def target(called: str, a: float, truth: Truth | None) -> TargetResult:
        confidences = rng.beta(a, 1, (1, RECORDS)).astype(np.float32)
        above = np.array([widest_gap(row, confidences[0]).distance for row in query])
        below = np.array([widest_gap(*rows).distance for rows in zip(query, calibration, strict=True)])
        median = float(np.median(above / below))
        rho = Rho(above / below, median, median - 0.05, median + 0.05, above, below, error_of(0.05))
        checks = (
            check("noise floor", message="query models differ by little"),
            check("class coverage", truth is not None, decisive=False, message=f"the rarest class is {called}"),
        )
        control = rho_between(0.3, 0.5)
        return judged(called, rho, checks=checks, controls=(control,), truth=truth, confidences=confidences)

    targets = (target(name, 25, None), target("other", 1.0, Truth(0.0, 10, "forgotten")))
    return KSAudit(targets, np.array([0.05]), query, calibration, query[:1], np.zeros(RECORDS, np.int32), 0.95, 4)


def without_rho() -> KSAudit:
    """Two targets by the holdout test and the shadow test, in an audit without rho."""
    second = USED._replace(method="shadow")
    checks = (check(preflight.CALIBRATION_LIKE_QUERY), check(preflight.CLASS_COVERAGE, decisive=False))
    known: dict[str, Any] = {"checks": checks, "with_rho": False}
    return audit_of(
        judged(
            "printed-digits + 50% of digits", usage=(UNUSED, second), truth=Truth(0.5, 10, "not forgotten"), **known
        ),
        judged("outputs.csv", usage=(UNSURE._replace(method="holdout"), second), **known),
    )


def ks_run(name: str = "outputs.csv", audit: KSAudit | None = None) -> Run[KSRecord]:
    """A run of `ks` on data and outputs of this name."""
    audit = ks_audit(name) if audit is None else audit
    one: dict[str, Any] = {"name": name, "records": RECORDS, "shape": [8], "classes": 3, "content_hash": "blake2b:00ff"}
    said = provenance("ks", name, {"query": one, "calibration": one, "target_data": []})
    said.targets = [{"name": name, "kind": "logits", "content_hash": "blake2b:11"}]
    models = {"query": audit.query_confidences, "calibration": audit.calibration_confidences}
    confidences = models if len(audit.query_confidences) else {}
    confidences |= {f"target_{place}": target.confidences[0] for place, target in enumerate(audit.targets)}
    return Run("a run", "ks", ks_record(audit, said), confidences)

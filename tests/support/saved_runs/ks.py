"""Small `ks` audits and their runs: the numbers of every test are given, and the tests decide on them as ever."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from scipy import stats

from jaxaudit import Check, Confidence, HoldoutTest, Judgement, KSAudit, RhoTest, ShadowTest, TargetResult
from jaxaudit.audits import TRUSTED, KSResult, Rates, Truth, floor_of, judgement_of_use, target_result
from jaxaudit.metrics import Rho, Usage
from jaxaudit.metrics import checks as preflight
from jaxaudit.plots import charts
from jaxaudit.report import Run, recorded
from support.saved_runs.provenance import provenance

RECORDS = 400
OF_RHO = (preflight.DISTANCES_APART, preflight.QUERY_SIZE, preflight.TIED_CONFIDENCES, preflight.POSITIVE_CONTROL)
OF_HOLDOUT = (preflight.HOLDOUT_LIKE_QUERY, preflight.HOLDOUT_APART, preflight.HOLDOUT_MODELS)
OF_SHADOW = (preflight.SHADOW_MODELS,)
"""Checks that one test makes; others are shared."""
OF_P = frozenset((preflight.HOLDOUT_LIKE_QUERY, preflight.TARGET_OUTPUTS))
OF_MODELS = frozenset((preflight.CALIBRATION_LIKE_QUERY, *OF_SHADOW, preflight.TARGET_OUTPUTS))
"""Checks that a p-value of the holdout test depends on, and all that the shadow test tells."""
EXACT = Confidence("strong", "Query set and holdout were sampled alike.")

USED = Usage("holdout", "not forgotten", 0.0005, 0.4, 0.92, 0.7, 1.0, 0.1, (), 0.98, None, "used")
UNUSED = Usage("holdout", "forgotten", 0.6, 0.025, 0.0, 0.0, 0.05, 0.031, (), 0.0421, None, "used")
UNSURE = Usage(
    "shadow",
    "inconclusive",
    0.3,
    None,
    float("nan"),
    0.0,
    1.0,
    None,
    ("too few records", "and no power"),
    1.0,
    None,
    "used",
)


def check(name: str, passed: bool = True, decisive: bool = True, message: str = "as it is") -> Check:
    """A check of this name."""
    return Check(name, passed, 0.1, 0.5, decisive, message)


def rho_between(low: float, high: float, median: float | None = None) -> Rho:
    """rho with this interval, over two replicates."""
    middle = (low + high) / 2
    shown = middle if median is None else median
    values = (middle, middle)
    return Rho(values, shown, low, high, values, (1.0, 1.0), error_of(high - middle))


def error_of(reach: float) -> float:
    """The standard error of two replicates whose 95% interval reaches so far from their mean."""
    return reach / float(stats.t.ppf(0.975, 1))


def decided(test: HoldoutTest | ShadowTest, usage: Usage, checks: tuple[Check, ...] = ()) -> Judgement:
    """What a test says of these numbers of a target that was trained like its models."""
    of_holdout, of_shadows = (OF_P.union(OF_HOLDOUT), OF_P, EXACT), (OF_MODELS, OF_MODELS, TRUSTED)
    needs, of_p, p_trust = of_holdout if isinstance(test, HoldoutTest) else of_shadows
    return judgement_of_use(test, usage, checks, (p_trust, of_p), (TRUSTED, needs))


def judged(
    name: str = "outputs.csv",
    rho: Rho | None = None,
    *,
    usage: tuple[Usage, ...] = (),
    checks: tuple[Check, ...] = (),
    controls: tuple[Rho, ...] = (),
    truth: Truth | None = None,
    with_rho: bool = True,
) -> TargetResult:
    """What is concluded of these numbers: by tests of use, in their order, then by rho, if it is made."""

    def made(names: tuple[str, ...]) -> tuple[Check, ...]:
        return tuple(each for each in checks if each.name in names)

    common = tuple(each for each in checks if each.name not in OF_RHO + OF_HOLDOUT + OF_SHADOW)
    judgements: list[Judgement] = [
        decided(HoldoutTest(), each, made(OF_HOLDOUT))
        if each.method == "holdout"
        else decided(ShadowTest(), each, made(OF_SHADOW))
        for each in usage
    ]
    rho = rho_between(0.4, 0.6) if rho is None else rho
    judgements += [RhoTest().decide(rho, controls, made(OF_RHO), common)] if with_rho else []
    return target_result(name, truth, tuple(judgements), common)


def audit_of(
    *targets: TargetResult, floor: tuple[float, ...] = (0.01, 0.02, 0.06), rates: tuple[Rates, ...] | None = None
) -> KSAudit:
    """An audit of these targets, against two replicates that say nothing; without rho against none."""
    rho = targets[0].ratio and targets[0].ratio.rho
    ones = np.ones((0 if rho is None else len(rho.values), RECORDS), np.float32)
    of_seeds = None if rho is None else floor_of(np.array(floor))
    result = KSResult(level=0.95, targets=targets, noise_floor=of_seeds, rates=rates)
    said = np.ones((len(targets), RECORDS), np.float32)
    return KSAudit(result, said, ones, ones, ones[:1], np.zeros(RECORDS, np.int32), models_per_batch=4)


def ks_audit(name: str = "outputs.csv") -> KSAudit:
    """A target that used the query set and one that did not, by rho, against two replicates."""
    rng = np.random.default_rng(0)
    query, calibration = (rng.beta(a, 1, (2, RECORDS)).astype(np.float32) for a in (30, 2))

    said = np.concatenate([rng.beta(a, 1, (1, RECORDS)).astype(np.float32) for a in (25, 1.0)])

    def distance(first: np.ndarray, second: np.ndarray) -> float:
        gap = charts.widest_gap_at(first, second)
        return gap.high - gap.low

    def target(called: str, confidences: np.ndarray, truth: Truth | None) -> TargetResult:
        above = np.array([distance(row, confidences) for row in query])
        below = np.array([distance(*rows) for rows in zip(query, calibration, strict=True)])
        median = float(np.median(above / below))
        values, distances, bottom = (tuple(row.tolist()) for row in (above / below, above, below))
        rho = Rho(values, median, median - 0.05, median + 0.05, distances, bottom, error_of(0.05))
        checks = (
            check("noise floor", message="query models differ by little"),
            check("class coverage", truth is not None, decisive=False, message=f"the rarest class is {called}"),
        )
        control = rho_between(0.3, 0.5)
        return judged(called, rho, checks=checks, controls=(control,), truth=truth)

    found = audit_of(target(name, said[0], None), target("other", said[1], Truth(0.0, 10, "forgotten")), floor=(0.05,))
    return replace(
        found,
        target_confidences=said,
        query_confidences=query,
        calibration_confidences=calibration,
        control_confidences=query[:1],
    )


def without_rho() -> KSAudit:
    """Two targets by the holdout test and the shadow test, in an audit without rho."""
    second = msgspec.structs.replace(USED, method="shadow")
    checks = (check(preflight.CALIBRATION_LIKE_QUERY), check(preflight.CLASS_COVERAGE, decisive=False))
    known: dict[str, Any] = {"checks": checks, "with_rho": False}
    return audit_of(
        judged("other digits + 50% of digits", usage=(UNUSED, second), truth=Truth(0.5, 10, "not forgotten"), **known),
        judged("outputs.csv", usage=(msgspec.structs.replace(UNSURE, method="holdout"), second), **known),
    )


def ks_run(name: str = "outputs.csv", audit: KSAudit | None = None) -> Run[KSResult]:
    """A run of `ks` on data and outputs of this name."""
    audit = ks_audit(name) if audit is None else audit
    one: dict[str, Any] = {"name": name, "records": RECORDS, "shape": [8], "classes": 3, "content_hash": "blake2b:00ff"}
    said = provenance("ks", name, {"query": one, "calibration": one})
    said = msgspec.structs.replace(said, targets=[{"name": name, "kind": "logits", "content_hash": "blake2b:11"}])
    models = {"query": audit.query_confidences, "calibration": audit.calibration_confidences}
    confidences = models if len(audit.query_confidences) else {}
    confidences |= {f"target_{place}": own for place, own in enumerate(audit.target_confidences)}
    return Run("a run", "ks", recorded("ks", audit.result, audit.sources, said), confidences)

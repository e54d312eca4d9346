"""Judges targets by outputs that are already in memory: the part of the `ks` audit that reads no files."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Array, Float, Key

from jaxaudit.audits.finding import sentence
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs, of_rho
from jaxaudit.audits.ks.finding import conclude, numbers
from jaxaudit.audits.ks.result import KSAudit, KSResult, NoiseFloor, Resembles
from jaxaudit.audits.ks.tests import Judgement, KSTest
from jaxaudit.audits.ks.tests.memory import of_holdout, reduced_words
from jaxaudit.json_types import number
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import noise_floor
from jaxaudit.metrics.resemblance import LEAST, resemblance
from jaxaudit.metrics.usage import decided, holm
from jaxaudit.shadow_models import OF_QUERY, Kind

WITHOUT_QUERY = {Kind.CALIBRATION: "calibration models", Kind.NEVER: "shadow models without query records"}
"""Kinds of models without query records; the first present shows if the calibration set is like the query set."""
SHARED = (preflight.SHADOW_ACCURACY, preflight.CALIBRATION_LIKE_QUERY)
"""Checks that several tests depend on and that need models."""


def judge_outputs(
    key: Key[Array, ""],
    evidence: Evidence,
    outputs: Sequence[TargetOutputs],
    tests: Sequence[KSTest],
    *,
    level: float = 0.95,
) -> KSAudit:
    """The result of the tests for each target, from outputs of models that were trained before.

    The models may come from a bank, and models for rho may be missing: then `RhoTest` and `EMATest` cannot be made, the
    targets have no rho, and whether the calibration set is like the query set is measured on the shadow models that
    were trained without the query set. A check that a verdict depends on but that no model allows is a warning.

    Args:
        key: random key of the audit; every test uses the stream of its name.
        evidence: outputs and training sets of the models.
        outputs: outputs of each target.
        tests: the tests to make, at least one, the deciding one first.
        level: confidence level of the intervals that are shown; no verdict depends on it.

    Returns:
        One result per target, in the same order. `models_per_batch` and `shadows` are not set.

    Raises:
        InputError: a test lacks models.
    """
    evidence = replace(evidence, targets=len(outputs))
    common = _common_checks(evidence)
    judged = adjusted(
        [
            tuple(
                test.judge(key, said, evidence, (*common, *said.checks), level)._replace(
                    source=getattr(test, "source", "")
                )
                for test in tests
            )
            for said in outputs
        ],
    )
    limitations = evidence.limitations
    if evidence.reduced:
        limitations = (sentence(reduced_words(evidence)), *limitations)
    targets = tuple(
        conclude(
            said.name,
            said.truth,
            judgements,
            (*common, *_not_measured(judgements, common), *said.checks),
            limitations,
            resembling(evidence, said),
        )
        for said, judgements in zip(outputs, judged, strict=True)
    )
    query, calibration, controls = of_rho(evidence.models, evidence.models.confidences[:, : evidence.queries])
    floor = None if all(target.rho is None for target in targets) else floor_of(noise_floor(query))
    return KSAudit(
        result=KSResult(level=level, targets=targets, noise_floor=floor),
        target_confidences=np.concatenate([said.compared.confidences for said in outputs]),
        query_confidences=query,
        calibration_confidences=calibration,
        control_confidences=controls,
        labels=evidence.query.labels,
        sources=tuple(judgement.source for judgements in judged for judgement in judgements),
    )


def floor_of(distances: Float[np.ndarray, " pairs"]) -> NoiseFloor:
    """The distances between query models of different seeds, and their median and maximum, if there are any."""
    if not len(distances):
        return NoiseFloor(None, None, ())
    return NoiseFloor(number(np.median(distances)), number(np.max(distances)), numbers(distances))


def adjusted(judgements: Sequence[tuple[Judgement, ...]]) -> list[tuple[Judgement, ...]]:
    """The same judgements with p-values adjusted by Holm's method over all targets, for each test of use.

    The probability that any target that never used the query set is called `not forgotten` is then at most 5%. With a
    single target nothing changes.
    """
    if len(judgements) < 2:
        return list(judgements)
    found = []
    for of_test in zip(*judgements, strict=True):
        usages = [each.usage for each in of_test if each.usage is not None]
        p_values = holm([usage.p_never for usage in usages]) if len(usages) == len(of_test) else ()
        after = []
        for judgement, usage, p_value in zip(of_test, usages, p_values, strict=False):
            told = usage._replace(p_never_adjusted=p_value)
            # Your own test may have another decision rule.
            again = judgement._replace(usage=told) if judgement.again is None else judgement.again(decided(told))
            after.append(again._replace(source=f"{judgement.source}; Holm 1979"))
        found.append(after or of_test)
    return list(zip(*found, strict=True))


def resembling(evidence: Evidence, said: TargetOutputs) -> Resembles | None:
    """The design of shadow models that a target most resembles, judged on the holdout or on known non-members."""
    mixed, names = evidence.count(Kind.MIXED) > 0, evidence.models.design_names
    kinds = (Kind.MIXED,) if mixed else OF_QUERY
    unseen = of_holdout(evidence) if mixed else said.unseen
    if unseen is None or not unseen.any() or len(names) < 2 or not evidence.count(*kinds):
        return None
    designs = evidence.design_of(*kinds)
    if np.bincount(designs).min() < LEAST:
        return None
    found = resemblance(
        said.log_odds[unseen],
        said.at_resolution(evidence.log_odds(*kinds)[:, unseen]),
        evidence.members(*kinds)[:, unseen],
        designs,
    )
    return Resembles(names[found.design], found.recognised)


def _common_checks(evidence: Evidence) -> tuple[Check, ...]:
    """The checks that are the same for every target and test, as far as the models allow them."""
    if evidence.pool.classless:
        return ()
    query, own = evidence.query, evidence.own_accuracy(Kind.QUERY, Kind.CALIBRATION)
    known = next((kind for kind in WITHOUT_QUERY if evidence.count(kind)), None)
    checks = [preflight.shadow_accuracy(own, evidence.min_accuracy)] if len(own) else []
    if known is not None:
        accuracy = evidence.models.take(evidence.models.of(known)).query_accuracy
        checks.append(preflight.calibration_reach(accuracy, query.labels, whose=WITHOUT_QUERY[known]))
    others = evidence.pool.examples.labels[evidence.pool.calibration]
    if len(others):
        checks.append(preflight.class_coverage(query.labels, others, query.class_names))
    return tuple(checks)


def _not_measured(judgements: Sequence[Judgement], common: Sequence[Check]) -> tuple[Check, ...]:
    """The shared checks that a verdict depends on and that could not be made."""
    needed = {name for judgement in judgements for name in judgement.rests_on}
    made = {check.name for check in common}
    return tuple(preflight.not_measured(name) for name in SHARED if name in needed - made)

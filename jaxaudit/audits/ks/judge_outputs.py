"""Judges targets by outputs that are already in memory: the part of the `ks` audit that reads no files."""

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import msgspec
import numpy as np
from jaxtyping import Float

from jaxaudit.audits.finding import Checked, Confidence, Finding, State, in_order, sentence, undecided
from jaxaudit.audits.ks.evidence import Evidence, TargetOutputs, of_rho
from jaxaudit.audits.ks.result import (
    KSAudit,
    KSResult,
    Measured,
    NoiseFloor,
    RhoDetails,
    TargetResult,
    TestResult,
    Truth,
)
from jaxaudit.audits.ks.tests_of_use import Judgement, KSTest
from jaxaudit.audits.ks.tests_of_use.test import Judgements, Trust, reduced_words
from jaxaudit.json_types import number
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.arrays import OneKey
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import noise_floor
from jaxaudit.metrics.usage import LEVEL, Usage, decided, holm, is_share_known, without_fraction
from jaxaudit.shadow_models import OF_RHO, Kind

WITHOUT_QUERY = {Kind.CALIBRATION: "calibration models", Kind.NEVER: "shadow models without query records"}
"""Kinds of models without query records; the first present shows if the calibration set is like the query set."""
SHARED = (preflight.SHADOW_ACCURACY, preflight.CALIBRATION_LIKE_QUERY)
"""Checks that several tests depend on and that need models."""
NOT_MEASURED = "not measured, since this audit has no models to measure it on; add RhoTest() to the tests"
HOLM = ("Holm 1979",)
OF_SETS = (preflight.HOLDOUT_LIKE_QUERY, preflight.MEMBERS_LIKE_QUERY)
"""Checks of the sets alone. If one of them fails, it is given as the reason before any other failed check."""


def judge_outputs(
    key: OneKey,
    evidence: Evidence,
    outputs: Sequence[TargetOutputs],
    tests: Sequence[KSTest],
) -> KSAudit:
    """The result of the tests for each target, from outputs in memory."""
    evidence = replace(evidence, targets=len(outputs))
    common = _common_checks(evidence)
    judged = adjusted(
        [
            tuple(test.judge(key, target_outputs, evidence, (*common, *target_outputs.checks)) for test in tests)
            for target_outputs in outputs
        ]
    )
    limitations = evidence.limitations
    if evidence.reduced:
        limitations = (sentence(reduced_words(evidence)), *limitations)
    targets = tuple(
        target_result(
            target_outputs.name,
            target_outputs.truth,
            judgements,
            (*common, *_not_measured(judgements, common), *target_outputs.checks),
            limitations,
        )
        for target_outputs, judgements in zip(outputs, judged, strict=True)
    )
    query, calibration, controls = of_rho(evidence.models, evidence.models.confidences[:, : evidence.queries])
    floor = floor_of(noise_floor(query)) if any(target.ratio for target in targets) else None
    return KSAudit(
        result=KSResult(level=LEVEL, targets=targets, noise_floor=floor),
        target_confidences=np.concatenate([target_outputs.confidences for target_outputs in outputs]),
        query_confidences=query,
        calibration_confidences=calibration,
        control_confidences=controls,
        labels=evidence.pool.examples.labels[evidence.pool.query],
        sources=tuple(
            source
            for judgements in judged
            for test, judgement in zip(tests, judgements, strict=True)
            for source in (
                getattr(test, "source", ""),
                *(HOLM if isinstance(judgement.details, Usage) and judgement.details.p_never_adjusted else ()),
            )
        ),
    )


def floor_of(distances: Float[np.ndarray, " pairs"]) -> NoiseFloor:
    """The distances between query models of different seeds, and their median and maximum, if there are any."""
    if not len(distances):
        return NoiseFloor(None, None, ())
    return NoiseFloor(number(np.median(distances)), number(np.max(distances)), tuple(map(number, distances)))


def adjusted(judgements: Sequence[Judgements]) -> list[Judgements]:
    """The same judgements with p-values adjusted by Holm's method over all targets, for each test of use: the
    probability that any target that never used the query set is called `not forgotten` is at most 5%.
    """
    results: list[Judgements] = []
    for of_test in zip(*judgements, strict=True):
        p_values = [judgement.details.p_never for judgement in of_test if isinstance(judgement.details, Usage)]
        after = iter(holm(p_values) if len(p_values) > 1 else ())
        judged = []
        for judgement in of_test:
            usage = judgement.details
            if isinstance(usage, Usage) and (p_value := next(after, None)) is not None:
                usage = msgspec.structs.replace(usage, p_never_adjusted=p_value)
                # Your own test may have another decision rule.
                judgement = judgement.of(usage if judgement.again is None else decided(usage))
            judged.append(judgement)
        results.append(tuple(judged))
    return list(zip(*results, strict=True))


def _common_checks(evidence: Evidence) -> tuple[Check, ...]:
    """The checks that are the same for every target and test, as far as the models allow them."""
    if evidence.pool.classless:
        return ()
    labels, pool, own_accuracy = evidence.pool.examples.labels, evidence.pool, evidence.own_accuracy(*OF_RHO[:2])
    checks = [preflight.shadow_accuracy(own_accuracy)] if len(own_accuracy) else []
    for kind in [kind for kind in WITHOUT_QUERY if evidence.count(kind)][:1]:
        accuracy = evidence.models.take(evidence.models.of(kind)).query_accuracy
        checks.append(preflight.calibration_reach(accuracy, labels[pool.query], models_name=WITHOUT_QUERY[kind]))
    if len(labels[pool.calibration]):
        sets = labels[pool.query], labels[pool.calibration]
        checks.append(preflight.class_coverage(*sets, pool.examples.class_names))
    return tuple(checks)


def _not_measured(judgements: Sequence[Judgement], common: Sequence[Check]) -> tuple[Check, ...]:
    """The shared checks that a verdict depends on and that could not be made."""
    needed = frozenset[str]().union(*(judgement.rests_on for judgement in judgements))
    made_checks = {check.name for check in common}
    return tuple(Check(name, False, None, None, False, NOT_MEASURED) for name in SHARED if name in needed - made_checks)


def target_result(
    name: str,
    truth: Truth | None,
    judgements: Judgements,
    common: tuple[Check, ...],
    limitations: tuple[str, ...] = (),
) -> TargetResult:
    """The result for one target. If a decisive check fails, no verdict, share or limit that depends on it is given: a
    share beside a failed check would be read. Other failed checks weaken the confidence.
    """
    rho_first = sorted(judgements, key=lambda judgement: not isinstance(judgement.details, RhoDetails))
    every = (*common, *(check for judgement in rho_first for check in judgement.checks))
    first, *other_tests = (_test_result(judgement, judgements, every) for judgement in judgements)
    finding = _beside(first.finding, other_tests)
    finding = msgspec.structs.replace(finding, caveats=(*limitations, *finding.caveats))
    tests = (msgspec.structs.replace(first, finding=finding), *other_tests)
    return TargetResult(name=name, truth=truth, finding=finding, tests=tests, checks=every)


def _test_result(judgement: Judgement, judgements: Judgements, every: tuple[Check, ...]) -> TestResult:
    """The result of a test, as far as the checks allow what it found."""
    details = judgement.details
    confidences: dict[Measured, Confidence] = {}
    if isinstance(details, Usage):
        of_fraction = judgement.fraction[1] or judgement.rests_on
        failed = [check for check in every if check.decisive and not check.passed and check.name in of_fraction]
        if failed:
            details = without_fraction(details, tuple(f"{check.name}: {check.message}" for check in failed))
            judgement = judgement.of(details)
        confidences = {
            "p_never": trusted_by_checks(judgement.p, every),
            "fraction": trusted_by_checks((judgement.fraction[0], of_fraction), every),
        }
        # The reasons have what is doubted, unsettled or invalid.
        details = msgspec.structs.replace(
            details,
            method=judgement.test,
            fraction=details.fraction if is_share_known(details) else nan,
            doubts=(),
            unsettled=(),
            invalid=(),
        )
    finding = _with_checks(judgement, judgements, every)
    numbers = {name: None if value is None else number(value) for name, value in judgement.numbers.items()}
    return TestResult(judgement.test, judgement.title, finding, details, confidences, numbers)


def _with_checks(judgement: Judgement, judgements: Judgements, every: tuple[Check, ...]) -> Finding:
    """The finding with every check; a check that its verdict does not depend on names the tests that do."""
    shown = []
    for check in every:
        rests = check.name in judgement.rests_on
        titles = [
            other.title
            for other in judgements
            if other is not judgement and (check in other.checks or check.name in other.rests_on)
        ]
        decides = check.decisive and rests and check.name not in judgement.weakened_by
        state: State = "passed" if check.passed else "failed" if decides else "warning"
        affects = "" if check.passed or rests else ", ".join(titles)
        shown.append(Checked(check.name, state, check.message, affects))
    failed = [check for check in every if not check.passed and check.name in judgement.rests_on]
    deciding = (check for check in failed if check.decisive and check.name not in judgement.weakened_by)
    decisive = min(deciding, key=lambda check: check.name not in OF_SETS, default=None)
    finding = judgement.finding
    if decisive:
        reason = f"{decisive.name}: {decisive.message}"
        finding = undecided(
            f"The check {decisive.name} failed, and the verdict would rest on it.",
            (reason,),
            sentence(reason),
            finding.caveats,
            (f"Correct what the check {decisive.name} found, and repeat the audit.",),
        )
    if failed and finding.confidence.word != "none":
        why = f"Not every check that the verdict rests on passed: {', '.join(check.name for check in failed)}."
        finding = msgspec.structs.replace(finding, confidence=Confidence("weak", why))
    return msgspec.structs.replace(finding, checks=in_order(shown))


def trusted_by_checks(trust: Trust, every: tuple[Check, ...]) -> Confidence:
    """Confidence in a number, reduced if a check that it depends on failed."""
    confidence, names = trust
    failed = [check for check in every if not check.passed and check.name in names]
    if confidence.word == "none" or not failed:
        return confidence
    decisive = any(check.decisive for check in failed)
    why = f"Not every check that it rests on passed: {', '.join(check.name for check in failed)}."
    return Confidence("none" if decisive else "weak", why)


def _beside(finding: Finding, other_tests: Sequence[TestResult]) -> Finding:
    """The deciding finding, with any test that gives the opposite verdict."""
    opposite = {"forgotten": "not forgotten", "not forgotten": "forgotten"}.get(finding.verdict)
    titles = ", ".join(
        test.title for test in other_tests if isinstance(test.details, Usage) and test.finding.verdict == opposite
    )
    if titles:
        disagree = f"Tests disagree: {opposite} by the {titles}."
        why = f"Another test of use gives the opposite verdict: {titles}."
        finding = msgspec.structs.replace(
            finding, confidence=Confidence("weak", why), caveats=(disagree, *finding.caveats)
        )
    return finding

"""The `ks` audit, end to end: draw the models that tests want, train them, compare what they say, judge."""

from collections.abc import Sequence
from itertools import count

import msgspec
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.finding import Confidence, Finding, checked, in_order
from jaxaudit.audits.ks.evidence import Evidence, Said
from jaxaudit.audits.ks.models import Roles, train_roles
from jaxaudit.audits.ks.result import KSAudit, TargetResult
from jaxaudit.audits.ks.target import FileTarget, Target
from jaxaudit.audits.ks.tests import EMATest, HoldoutTest, Judgement, KSTest, RhoTest, ShadowTest
from jaxaudit.audits.pool import make_pool
from jaxaudit.data.examples import Examples
from jaxaudit.data.overlap import refuse_overlap
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import noise_floor, paper_rule
from jaxaudit.randomness import stream


def audit_ks(
    key: Key[Array, ""],
    query: Examples,
    calibration: Examples,
    learner: Learner,
    targets: Sequence[Target],
    *,
    tests: Sequence[KSTest] | None = None,
    holdout: Examples | None = None,
    level: float = 0.95,
    min_accuracy: float = preflight.MIN_ACCURACY,
    execution: Execution = DEFAULT_EXECUTION,
) -> KSAudit:
    """Has each target forgotten the query set? Tests with known error rates, and Liu & Tsaftaris (2020).

    Trains the models that the tests want and one for every simulated target, each with its own seed, all in one
    `fit_many`. The first test decides; the others stand beside it. rho and the paper's rule are always given.

    Args:
        key: random key; everything follows from it, by role: a further test, target or replicate changes no number of
            what was there. Targets share the draws of a test.
        query: the data in question, preprocessed as the learner wants them.
        calibration: data of the same domain with no record of `query` among them, same classes in the same order.
        learner: the shadow models' design and recipe: the target's own, as far as it is known.
        targets: what is judged: `FileTarget` and `SimulatedTarget`.
        tests: the tests to make, the deciding one first; by default the holdout test where there is a holdout, else the
            shadow test. `RhoTest()` is added at the end where it is not among them.
        holdout: records of the query set's provider that the target was not trained on, sampled as the query set was,
            same classes in the same order.
        level: confidence level of the intervals.
        min_accuracy: minimum training accuracy of a shadow model that counts as well trained.
        execution: models per batch, progress, and where finished models are kept.

    Returns:
        An answer a target, in their order.

    Raises:
        InputError: where the sets overlap, there is no target, outputs do not fit the sets, or an option is out of
            range.
    """
    tests = with_rho(tests if tests is not None else default_tests(holdout))
    _refuse(targets, tests, query, holdout, level)
    refuse_overlap(query, calibration)
    pool = make_pool(query, calibration, tuple(target for target in targets if target.parts), holdout)
    drawing = stream(key, "draw")
    rho = next(test for test in tests if isinstance(test, RhoTest))
    names = _roles_of(targets)
    roles: Roles = rho.draw(drawing, pool)
    for target, role in zip(targets, names, strict=True):
        roles |= target.draw(drawing, pool, role)
    of_use: Roles = {}
    for test in tests:
        of_use |= {} if test is rho else test.draw(drawing, pool)
    watching = any(isinstance(test, EMATest) for test in tests)
    trained, models_per_batch = train_roles(
        stream(key, "train"), roles | of_use, pool, learner, with_signals=watching, execution=execution
    )
    evidence = Evidence(trained, roles | of_use, pool, query, calibration, min_accuracy)
    common = _common_checks(evidence)
    results = []
    for target, role in zip(targets, names, strict=True):
        said = target.says(evidence, holdout, role, with_signals=watching)
        shared = (*common, *said.checks)
        judgements = tuple(test.judge(key, said, evidence, shared, level) for test in tests)
        results.append(_result(said, judgements, shared))
    return KSAudit(
        targets=tuple(results),
        noise_floor=noise_floor(trained["query"].confidences),
        query_confidences=trained["query"].confidences,
        calibration_confidences=trained["calibration"].confidences,
        control_confidences=trained["control"].confidences,
        labels=query.labels,
        level=level,
        models_per_batch=models_per_batch,
        shadow_log_odds={role: trained[role].log_odds for role in of_use},
    )


def default_tests(holdout: Examples | None) -> tuple[KSTest, ...]:
    """The test that decides where none is named: the holdout test where there is a holdout, else the shadow test."""
    return (ShadowTest(),) if holdout is None else (HoldoutTest(),)


def with_rho(tests: Sequence[KSTest]) -> tuple[KSTest, ...]:
    """The same tests, and rho at the end where it is not among them."""
    return tuple(tests) if any(isinstance(test, RhoTest) for test in tests) else (*tests, RhoTest())


def _refuse(
    targets: Sequence[Target],
    tests: Sequence[KSTest],
    query: Examples,
    holdout: Examples | None,
    level: float,
) -> None:
    if not targets:
        raise InputError("there is no target to judge: give a file of its outputs or simulate one.")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, got {level:g}.")
    names = [test.name for test in tests]
    if len(set(names)) < len(names):
        raise InputError(f"a test is named twice ({', '.join(names)}): name each once, the deciding one first.")
    for test in tests:
        test.refuse(query, holdout)
    for target in targets:
        if isinstance(target, FileTarget):
            target.refuse(query, holdout)


def _roles_of(targets: Sequence[Target]) -> list[str]:
    """What each target's model is called; those of files play no role."""
    numbers = count()
    return [f"target {next(numbers)}" if target.parts else "" for target in targets]


def _common_checks(evidence: Evidence) -> tuple[Check, ...]:
    """The checks that are the same for every target and test."""
    trained, query = evidence.trained, evidence.query
    own = np.concatenate([trained["query"].own_accuracy, trained["calibration"].own_accuracy])
    return (
        preflight.shadow_accuracy(own, evidence.min_accuracy),
        preflight.calibration_reach(trained["calibration"].query_accuracy, query.labels),
        preflight.class_coverage(query.labels, evidence.calibration.labels, query.class_names),
    )


def _result(said: Said, judgements: tuple[Judgement, ...], common: tuple[Check, ...]) -> TargetResult:
    """The answer for one target: the first test's finding, with what was checked for all."""
    by_rho = next(each for each in judgements if each.rho is not None)
    others = tuple(check for each in judgements if each is not by_rho for check in each.checks)
    every = (*common, *by_rho.checks, *others)
    decided = tuple(each._replace(finding=_with_checks(each, judgements, every)) for each in judgements)
    rho = by_rho.rho
    return TargetResult(
        name=said.name,
        truth=said.truth,
        finding=decided[0].finding,
        judgements=decided,
        checks=every,
        paper_rule=paper_rule(rho.median if rho is not None else float("nan")),
        confidences=said.compared.confidences,
    )


def _with_checks(judgement: Judgement, all_: tuple[Judgement, ...], every: tuple[Check, ...]) -> Finding:
    """The finding with every check; one that its verdict does not rest on names the tests that do.

    A verdict deserves little confidence where a check that it rests on failed without taking it away.
    """
    finding = judgement.finding
    shown = []
    for check in every:
        others = [each.title for each in all_ if check.name in each.rests_on]
        affects = "" if check.name in judgement.rests_on else ", ".join(others)
        shown.append(checked(check, affects))
    warnings = [check.name for check in every if not check.passed and check.name in judgement.rests_on]
    if warnings and finding.confidence.word != "none":
        why = f"Not every check that the verdict rests on passed: {', '.join(warnings)}."
        finding = msgspec.structs.replace(finding, confidence=Confidence("weak", why))
    return msgspec.structs.replace(finding, checks=in_order(shown))

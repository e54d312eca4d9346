"""The `ks` audit, end to end: draw training sets, train shadow models, compare outputs, judge targets."""

from collections.abc import Sequence
from itertools import count

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.models import Roles, train_roles
from jaxaudit.audits.ks.result import KSAudit, conclude
from jaxaudit.audits.ks.target import Target
from jaxaudit.audits.ks.tests import EMATest, HoldoutTest, KSTest, RhoTest, ShadowTest
from jaxaudit.audits.ks.tests.ema import refuse_without_records
from jaxaudit.audits.pool import make_pool
from jaxaudit.data.examples import Examples
from jaxaudit.data.overlap import refuse_overlap
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import noise_floor
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

    Trains the models of all tests and one for every simulated target, each with its own seed, in a single `fit_many`.
    The first test gives the verdict; the others are shown, too. rho and the paper's rule are always given.

    Args:
        key: random key; everything follows from it, by role: a further test, target or replicate changes no number of
            what was there. Targets share the draws of a test.
        query: the data in question, preprocessed as the learner wants them.
        calibration: data of the same domain with no record of `query` among them, same classes in the same order.
        learner: the shadow models' design and recipe: the target's own, as far as it is known.
        targets: what is judged: `FileTarget`, `SimulatedTarget`, or anybody's `Target`.
        tests: the tests to make, the deciding one first: those of `jaxaudit.audits.ks.tests`, or anybody's `KSTest`.
            By default the holdout test where there is a holdout, else the shadow test. `RhoTest()` is added at the end
            where it is not among them.
        holdout: records of the query set's provider that the target was not trained on, sampled as the query set was,
            same classes in the same order.
        level: confidence level of the intervals.
        min_accuracy: minimum training accuracy of a shadow model that counts as well trained.
        execution: models per batch, progress, and where finished models are kept.

    Returns:
        One result per target, in their order.

    Raises:
        InputError: where the sets overlap, there is no target, outputs do not fit the sets, a test is named twice or
            cannot be made, or an option is out of range.
    """
    tests = with_rho(tests if tests is not None else default_tests(holdout))
    _refuse(targets, tests, query, holdout, level)
    refuse_overlap(query, calibration)
    pool = make_pool(query, calibration, tuple(target for target in targets if target.parts), holdout)
    drawing = stream(key, "draw")
    rho = next(test for test in tests if isinstance(test, RhoTest))
    names = _roles_of(targets)
    of_targets = (target.draw(drawing, pool, role) for target, role in zip(targets, names, strict=True))
    of_tests = _together([test.draw(drawing, pool) for test in tests if test is not rho])
    roles = _together([rho.draw(drawing, pool), *of_targets, of_tests])
    watching = any(isinstance(test, EMATest) for test in tests)
    if watching:
        refuse_without_records(roles, pool)
    trained, models_per_batch = train_roles(
        stream(key, "train"), roles, pool, learner, with_signals=watching, execution=execution
    )
    evidence = Evidence(trained, roles, pool, query, calibration, min_accuracy)
    common = _common_checks(evidence)
    results = []
    for target, role in zip(targets, names, strict=True):
        said = target.says(evidence, holdout, role, with_signals=watching)
        shared = (*common, *said.checks)
        judgements = tuple(test.judge(key, said, evidence, shared, level) for test in tests)
        results.append(conclude(said.name, said.truth, said.compared.confidences, judgements, shared))
    return KSAudit(
        targets=tuple(results),
        noise_floor=noise_floor(trained["query"].confidences),
        query_confidences=trained["query"].confidences,
        calibration_confidences=trained["calibration"].confidences,
        control_confidences=trained["control"].confidences,
        labels=query.labels,
        level=level,
        models_per_batch=models_per_batch,
        shadow_log_odds={role: trained[role].log_odds for role in of_tests},
    )


def default_tests(holdout: Examples | None) -> tuple[KSTest, ...]:
    """The default test: the holdout test if there is a holdout, else the shadow test."""
    return (ShadowTest(),) if holdout is None else (HoldoutTest(),)


def with_rho(tests: Sequence[KSTest]) -> tuple[KSTest, ...]:
    """The same tests, with rho appended if it is missing."""
    return tuple(tests) if any(isinstance(test, RhoTest) for test in tests) else (*tests, RhoTest())


def _refuse(
    targets: Sequence[Target],
    tests: Sequence[KSTest],
    query: Examples,
    holdout: Examples | None,
    level: float,
) -> None:
    if not targets:
        raise InputError("there is no target: give a file of its outputs or simulate one.")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval must be between 0 and 1; got {level:g}.")
    names = [test.name for test in tests]
    if len(set(names)) < len(names):
        raise InputError(f"a test is given twice ({', '.join(names)}): give each once, first the one for the verdict.")
    for test in tests:
        test.refuse(query, holdout)
    for target in targets:
        target.refuse(query, holdout)


def _together(drawn: Sequence[Roles]) -> Roles:
    """The training sets of all roles, which are named apart."""
    roles: Roles = {}
    for each in drawn:
        twice = roles.keys() & each.keys()
        if twice:
            raise InputError(f"two tests draw models of one name ({', '.join(sorted(twice))}): rename those of one.")
        roles |= each
    return roles


def _roles_of(targets: Sequence[Target]) -> list[str]:
    """The role of each target's model; targets from files have none."""
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

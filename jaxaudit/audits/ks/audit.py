"""The `ks` audit, end to end: draw training sets, train shadow models, compare outputs, judge targets."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.judge import judge_targets
from jaxaudit.audits.ks.learned import without_unlearned
from jaxaudit.audits.ks.models import Design, Rows, train_shadows
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget, Target
from jaxaudit.audits.ks.tests import EMATest, HoldoutTest, KSTest, MembersTest, ReferenceTest, RhoTest, ShadowTest
from jaxaudit.audits.ks.tests.ema import refuse_without_records
from jaxaudit.audits.ks.tests.shadow import least_models
from jaxaudit.audits.pool import make_pool
from jaxaudit.data.examples import Examples
from jaxaudit.data.groups import as_groups
from jaxaudit.data.overlap import refuse_overlap
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.reference import refuse_few
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import OF_RHO, Kind, no_models

GUESS = "guess"
"""What the design of `learner` is called."""


def audit_ks(
    key: Key[Array, ""],
    query: Examples,
    calibration: Examples | None,
    learner: Learner | None,
    targets: Sequence[Target],
    *,
    tests: Sequence[KSTest] | None = None,
    holdout: Examples | None = None,
    members: Examples | None = None,
    reference: Examples | None = None,
    groups: tuple[np.ndarray, ...] | None = None,
    designs: Sequence[Design] = (),
    own_recipe: bool = False,
    reduced: Sequence[str] = (),
    level: float = 0.95,
    min_accuracy: float = preflight.MIN_ACCURACY,
    execution: Execution = DEFAULT_EXECUTION,
) -> KSAudit:
    """Has each target forgotten the query set? Tests with known error rates, and Liu & Tsaftaris (2020).

    Trains the models of all tests and one for every simulated target, each with its own seed, in a single `fit_many`.
    The first test gives the verdict; the others are shown, too. rho and the paper's rule are given where `RhoTest` is
    among the tests, as it is by default; without it, its models are not trained.

    Args:
        key: random key; everything follows from it, by role: a further test, target or replicate changes no number of
            what was there. Targets share the draws of a test.
        query: the data in question, preprocessed as the learner wants them.
        calibration: data of the same domain with no record of `query` among them, same classes in the same order. None
            where there are known members: then no model is trained, and the members test alone is made.
        learner: the shadow models' design and recipe: the target's own, as far as it is known. Models of rho and
            simulated targets have it, too. None without a calibration set.
        targets: what is judged: `FileTarget`, `SimulatedTarget`, or anybody's `Target`.
        tests: the tests to make, the deciding one first: those of `jaxaudit.audits.ks.tests`, or anybody's `KSTest`.
            By default the members test where there are known members, the holdout test where there is a holdout, then
            the reference test where there is a reference or every target from a file has outputs on the calibration
            set; with none of these, the shadow test; and rho at the end.
        holdout: records of the query set's provider that the target was not trained on, sampled as the query set was,
            same classes in the same order.
        members: records that the targets are known to have used, sampled as the query set was, none of them in another
            set, same classes in the same order. What a target remembers of them tells how much of the query set it
            used, whatever its network and recipe.
        reference: records that the targets from files did not use, like their other data, none of them in another set,
            same classes in the same order. By default the calibration set, where a target has outputs on it.
        groups: one value (integer or text) per query record, per holdout record and per member, where the provider
            dealt whole groups, such as patients, into these. Tests then deal and permute whole groups.
        designs: further designs. The models of every test are dealt to `learner` and these in turn, so that their
            spread includes what a design does to a model's outputs, which nobody knows exactly of a target.
        own_recipe: whether `learner` is the targets' own network and recipe. Without that word and without members,
            nobody knows how much a target from a file remembers: no fraction is given, and none is called `forgotten`.
        reduced: how the learner differs from what was asked for, in words: findings say it, and rest on no such word.
        level: confidence level of the intervals.
        min_accuracy: minimum training accuracy of a shadow model that counts as well trained.
        execution: models per batch, progress, and where finished models are kept.

    Returns:
        One result per target, in their order.

    Raises:
        InputError: where the sets overlap, a group lies in both query set and holdout, there is no target or no test,
            outputs do not fit the sets, a test is named twice or cannot be made, or an option is out of range.
    """
    tests = default_tests(holdout, targets, reference, members, trains=learner is not None) if tests is None else tests
    if calibration is None or learner is None:
        return _without_models(key, query, targets, tests, holdout, members, groups, level)
    if reference is None and any(isinstance(test, ReferenceTest) for test in tests):
        reference = calibration
    _refuse(targets, tests, query, reference, holdout, members, level)
    refuse_overlap(query, calibration)
    dealt = None if groups is None else as_groups(*groups)
    trainable = tuple(target for target in targets if target.parts)
    pool = make_pool(query, calibration, trainable, holdout, dealt, reference, members)
    drawing = stream(key, "draw")
    names = _kinds_of(targets)
    of_rho = (test.draw(drawing, pool) for test in tests if isinstance(test, RhoTest))
    of_targets = (target.draw(drawing, pool, kind) for target, kind in zip(targets, names, strict=True))
    drawn = [(test.title, test.draw(drawing, pool)) for test in tests if not isinstance(test, RhoTest)]
    of_tests = _together([rows for _, rows in drawn])
    # Without rho its kinds have no model, and are nobody else's.
    none = np.zeros((0, len(pool.examples)), bool)
    rows = _together([next(of_rho, dict.fromkeys(OF_RHO, none)), *of_targets, of_tests])
    if not any(map(len, rows.values())):
        raise InputError("no model is to be trained: add a test that compares with models, such as RhoTest().")
    if reference is not None:
        # What a simulated target was trained on is no reference for it.
        used = (int(rows[kind][0, pool.reference].sum()) for kind in names if kind)
        refuse_few(len(reference) - max(used, default=0))
    watching = any(isinstance(test, EMATest) for test in tests)
    if watching:
        refuse_without_records(rows.get(Kind.CALIBRATION, none), pool)
    learners = (learner, *(design.learner for design in designs))
    models, models_per_batch = train_shadows(
        *(stream(key, "train"), rows, pool, learners),
        {kind: np.arange(len(own)) % len(learners) for kind, own in of_tests.items()},
        design_names=(GUESS, *(design.name for design in designs)),
        with_signals=watching,
        execution=execution,
    )
    evidence = Evidence(
        models, query, min_accuracy, own_recipe=own_recipe, reduced=tuple(reduced), targets=len(targets)
    )
    evidence = without_unlearned(evidence, [(title, tuple(own)) for title, own in drawn])
    heard = [
        target.says(evidence, holdout, kind, with_signals=watching) for target, kind in zip(targets, names, strict=True)
    ]
    judged = judge_targets(key, evidence, heard, tests, level=level)
    of_use = evidence.models.take(evidence.models.of(*of_tests))
    alike = evidence.once("dealt", lambda: None)
    return replace(judged, models_per_batch=models_per_batch, shadows=of_use, sampled_alike=alike)


def default_tests(
    holdout: Examples | None,
    targets: Sequence[Target] = (),
    reference: Examples | None = None,
    members: Examples | None = None,
    *,
    trains: bool = True,
) -> tuple[KSTest, ...]:
    """The default tests: by known members, by a holdout, then by outputs on a reference; else by shadow models alone.

    rho comes last. Where no model is trained, the members test is the only one. Outputs of every target from a file are
    on the calibration set where no other reference is given. The shadow test has as many models as its p-value needs
    to reach 5% adjusted for all targets.
    """
    known = () if members is None else (MembersTest(),)
    if not trains:
        return known
    files = [target for target in targets if isinstance(target, FileTarget)]
    referred = reference is not None or (files and all(target.on_reference is not None for target in files))
    alone = max(ShadowTest().never, least_models(len(targets)))
    of_shadows = {"never": alone, "targets": max(1, len(targets))}
    by_reference = (ReferenceTest(**of_shadows),) if referred else ()
    given = (*known, *((HoldoutTest(),) if holdout is not None else ()), *by_reference)
    return (*(given or (ShadowTest(**of_shadows),)), RhoTest())


def _without_models(
    key: Key[Array, ""],
    query: Examples,
    targets: Sequence[Target],
    tests: Sequence[KSTest],
    holdout: Examples | None,
    members: Examples | None,
    groups: tuple[np.ndarray, ...] | None,
    level: float,
) -> KSAudit:
    """The audit by known members alone: it trains nothing."""
    other = next((test for test in tests if not isinstance(test, MembersTest)), None)
    if members is None or other is not None or any(target.parts for target in targets):
        raise InputError(
            "without a calibration set and a learner no model is trained: only the members test can then be made, of "
            "targets from files (`members`, FileTarget(on_members=)). Give a calibration set and a learner for others."
        )
    _refuse(targets, tests, query, None, holdout, members, level)
    dealt = None if groups is None else as_groups(*groups)
    pool = make_pool(query, None, (), holdout, dealt, None, members)
    for test in tests:
        test.draw(stream(key, "draw"), pool)
    evidence = Evidence(no_models(pool), query, preflight.MIN_ACCURACY)
    heard = [target.says(evidence, holdout, "", with_signals=False) for target in targets]
    return judge_targets(key, evidence, heard, tests, level=level)


def _refuse(
    targets: Sequence[Target],
    tests: Sequence[KSTest],
    query: Examples,
    reference: Examples | None,
    holdout: Examples | None,
    members: Examples | None,
    level: float,
) -> None:
    if not targets:
        raise InputError("there is no target: give a file of its outputs or simulate one.")
    if not tests:
        raise InputError("there is no test: give at least one, such as ShadowTest(); without `tests`, some are made.")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval must be between 0 and 1; got {level:g}.")
    names = [test.name for test in tests]
    if len(set(names)) < len(names):
        raise InputError(f"a test is given twice ({', '.join(names)}): give each once, first the one for the verdict.")
    for test in tests:
        test.refuse(query, holdout)
    _refuse_few_models(tests, len(targets))
    for target in targets:
        target.refuse(query, holdout)
        if isinstance(target, FileTarget):
            target.refuse_reference(reference)
            target.refuse_members(members)
    paired = any(isinstance(target, FileTarget) and target.before is not None for target in targets)
    if paired and not any(isinstance(test, HoldoutTest) for test in tests):
        raise InputError("outputs before the deletion are compared by the holdout test only: add HoldoutTest().")


def _refuse_few_models(tests: Sequence[KSTest], targets: int) -> None:
    """Refuses tests of which none could ever detect use, as their p-values are adjusted for so many targets."""
    least = least_models(targets)
    ranked = [test.never for test in tests if isinstance(test, ShadowTest)]
    if len(ranked) == len(tests) and max(ranked) < least:
        raise InputError(
            f"no target could be called not forgotten: {max(ranked)} shadow models without the query set give p-values "
            f"of at least {1 / (1 + max(ranked)):.2g}, and {targets / (1 + max(ranked)):.2g} adjusted for {targets} "
            f"targets. Train at least {least} of them (--shadow-models)."
        )


def _together(drawn: Sequence[Rows]) -> Rows:
    """The training sets of all kinds, which are named apart."""
    rows: Rows = {}
    for each in drawn:
        # Tests may share models: those of one name and the same training sets.
        twice = {name for name in rows.keys() & each.keys() if not np.array_equal(rows[name], each[name])}
        if twice:
            raise InputError(
                f"two tests draw models of one name ({', '.join(sorted(twice))}): rename those of one. The names "
                f"{', '.join(OF_RHO)} are rho's."
            )
        rows |= each
    return rows


def _kinds_of(targets: Sequence[Target]) -> list[str]:
    """The kind of each target's model, which is its own; targets from files have none."""
    numbers = count()
    return [f"target {next(numbers)}" if target.parts else "" for target in targets]

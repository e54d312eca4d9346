"""Trains the shadow models of the tests of use: draws their membership masks, and trains them together."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.available import offered, refuse
from jaxaudit.audits.ks.models import Design, Rows, train_rows
from jaxaudit.audits.ks.target import FileTarget, Target, kinds_of_targets
from jaxaudit.audits.ks.tests_of_use import TESTS, DeletionTest, KSTest, RhoTest, ShadowTest, usual_tests
from jaxaudit.audits.ks.tests_of_use.shadow import least_models
from jaxaudit.audits.pool import make_pool
from jaxaudit.data.examples import Examples
from jaxaudit.data.groups import as_groups
from jaxaudit.data.overlap import refuse_overlap
from jaxaudit.data.roles import Role, Sets
from jaxaudit.data.sequences import are_texts
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics.reference import refuse_few
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import OF_RHO, ShadowModels, no_models

GUESS = "guess"
"""The name of the design of `learner`."""


def train_shadows(
    key: Key[Array, ""],
    query: Examples,
    calibration: Examples | None = None,
    learner: Learner | None = None,
    targets: Sequence[Target] = (),
    *,
    tests: Sequence[KSTest] | None = None,
    holdout: Examples | None = None,
    members: Examples | None = None,
    reference: Examples | None = None,
    groups: tuple[np.ndarray, ...] | None = None,
    designs: Sequence[Design] = (),
    execution: Execution = DEFAULT_EXECUTION,
) -> ShadowModels:
    """Trains shadow models of known membership, with which `judge` compares targets.

    All models that the tests need, and every simulated target, are trained in a single `fit_many`. Shadow models are
    those of Shokri et al. (2017).

    Args:
        key: random key. Each kind of model has its own random stream, so a further test, target or replicate changes no
            existing number.
        query: the data in question, preprocessed as the learner requires. Texts (`sequences`) are judged by the holdout
            and the members test alone. All sets have the same classes in the same order, and share no record.
        calibration: data of the same domain. None with known members only: then no model is trained, and only the
            members test can be made.
        learner: the design and recipe of the shadow models: the target's own, as far as it is known. Models of rho and
            simulated targets also have it. None without a calibration set.
        targets: the models to judge. A `SimulatedTarget` is trained here; a `FileTarget` that does not fit these sets
            is rejected before anything is trained.
        tests: the tests to be made, from `jaxaudit.audits.ks.tests_of_use` or your own; by default `default_tests`.
        holdout: records of the query set's provider that the target was not trained on, sampled as the query set was.
        members: known members: records that the targets did use, sampled as the query set was. How much a target
            remembers of them shows how much of the query set it used, whatever its network and recipe.
        reference: known non-members: records that the targets from files did not use, like their other data. By default
            the calibration set, if a target has outputs on it.
        groups: one value (integer or text) per query record, per holdout record and per member, if the provider
            assigned whole groups, such as patients, to these sets. Tests then randomise and permute whole groups.
        designs: further designs. The models of every test take turns among `learner` and these, so that their spread
            includes the effect of the design, since the design of a target is not known exactly.
        execution: models per batch, progress, and where finished models are kept.

    Raises:
        InputError: sets overlap, a group lies in both query set and holdout, outputs do not fit the sets, a test is
            named twice or cannot be made, or an option is out of range.

    >>> import jax
    >>> import jaxaudit as ja
    >>> digits = ja.load("digits")
    >>> flat = ja.Examples(digits.inputs.reshape(-1, 64) / np.float32(255), digits.labels, digits.class_names, "digits")
    >>> held = ja.deal(jax.random.key(2), 200)
    >>> query, holdout = flat.take(np.flatnonzero(~held)), flat.take(np.flatnonzero(held))
    >>> shadows = train_shadows(
    ...     jax.random.key(1), query, flat.take(np.arange(200, 500)), ja.nearest_neighbours(10, neighbours=1),
    ...     tests=[ja.HoldoutTest(mixed=20)], holdout=holdout)
    >>> len(shadows), set(shadows.kinds), shadows.log_odds.shape
    (20, {<Kind.MIXED: 'mixed'>}, (20, 500))
    """
    sets = Sets(query=query, holdout=holdout, members=members, calibration=calibration, reference=reference)
    tests = default_tests(sets, targets, trains=learner is not None) if tests is None else tests
    dealt_groups = None if groups is None else as_groups(*groups)
    of_classes = [test.name for test in tests if test.of_classes]
    if of_classes and are_texts(query):
        raise InputError(
            f"{' and '.join(of_classes)}: compare probabilities of classes, and texts have none; give a holdout "
            "(`holdout`), which texts are judged by."
        )
    refers = any(Role.REFERENCE in test.roles for test in tests)
    referred = calibration if reference is None and refers else reference
    refuse(targets, tests, Sets(query=query, holdout=holdout, members=members, reference=referred))
    least, ranked = least_models(len(targets)), [test.references for test in tests if test.ranks]
    if len(ranked) == len(tests) and max(ranked) < least:
        # p-values are adjusted for all targets.
        raise InputError(
            f"no target could be called not forgotten: {max(ranked)} shadow models without the query set give p-values "
            f"of at least {1 / (1 + max(ranked)):.2g}, and {len(targets) / (1 + max(ranked)):.2g} adjusted for "
            f"{len(targets)} targets. Train at least {least} of them (`never`)."
        )
    trained = [*(test for test in tests if test.trains), *(target for target in targets if target.parts)]
    if (calibration is None or learner is None) and trained:
        raise InputError(
            "without a calibration set and a learner no model is trained. Then the members test can be made, of "
            "targets from files (`members`, FileTarget(on_members=)), and the deletion test (FileTarget(before=)). "
            "Give a calibration set and a learner for others."
        )
    if calibration is not None:
        refuse_overlap(query, calibration)
    trainable = tuple(target for target in targets if target.parts)
    pool = make_pool(sets, trainable, dealt_groups)
    for test in tests:
        test.refuse_pool(pool)
    drawing = stream(key, "draw")
    if calibration is None or learner is None:
        return no_models(pool.comparable())
    kinds = kinds_of_targets(targets)
    of_guess = _together([test.draw(drawing, pool) for test in tests if test.of_guess])
    of_targets = (target.draw(drawing, pool, kind) for target, kind in zip(targets, kinds, strict=True))
    of_tests = _together([test.draw(drawing, pool) for test in tests if not test.of_guess])
    # Without rho, no model has its kinds, and no other test may use their names.
    none = np.zeros((0, len(pool.examples)), bool)
    rows = _together([{**dict.fromkeys(OF_RHO, none), **of_guess}, *of_targets, of_tests])
    if not any(map(len, rows.values())):
        raise InputError("no model is to be trained: add a test that compares with models, such as RhoTest().")
    if referred is not None:
        # Records that a simulated target was trained on are no known non-members of it.
        records = pool.calibration if reference is None else pool.reference
        used = (int(rows[kind][0, records].sum()) for kind in kinds if kind)
        refuse_few(len(referred) - max(used, default=0))
    for test in tests:
        test.refuse_rows(rows, pool)
    learners = (learner, *(design.learner for design in designs))
    return train_rows(
        stream(key, "train"),
        rows,
        pool,
        learners,
        {kind: np.arange(len(masks)) % len(learners) for kind, masks in of_tests.items()},
        design_names=(GUESS, *(design.name for design in designs)),
        with_signals=any(test.with_signals for test in tests),
        execution=execution,
    )


def default_tests(sets: Sets[Examples], targets: Sequence[Target] = (), *, trains: bool = True) -> tuple[KSTest, ...]:
    """The default tests: by known members, a holdout and a reference; without any of these by shadow models alone.

    rho comes last, but not of texts. If no model is trained, these are the members test and, of targets with outputs
    before a deletion, the deletion test. There is a reference if one is given, or if all targets from files have
    outputs on the calibration set.
    """
    files = [target for target in targets if isinstance(target, FileTarget)]
    referred = files and all(Role.REFERENCE in target.on for target in files)
    names = usual_tests({*sets, *((Role.REFERENCE,) if referred else ())})
    if not trains and files and all(target.earlier for target in files):
        names = (*names, DeletionTest.name)
    alone = max(ShadowTest().never, least_models(len(targets)))
    of_shadows = {"never": alone, "targets": max(1, len(targets))}
    tests = tuple(offered(test(), of_shadows) for test in TESTS if test.name in names and (trains or not test.trains))
    if not trains or (Role.HOLDOUT in sets and are_texts(sets[Role.HOLDOUT])):
        return tests
    return (*tests, RhoTest())


def _together(drawn: Sequence[Rows]) -> Rows:
    """The membership masks of all kinds, from all tests and targets."""
    rows: Rows = {}
    for rows_of_test in drawn:
        # Tests may share models: those with one name and the same masks.
        twice = {
            name for name in rows.keys() & rows_of_test.keys() if not np.array_equal(rows[name], rows_of_test[name])
        }
        if twice:
            raise InputError(
                f"two tests draw models of one name ({', '.join(sorted(twice))}): rename those of one. The names "
                f"{', '.join(OF_RHO)} are rho's."
            )
        rows |= rows_of_test
    return rows

"""Judges targets with shadow models that exist: the half of the `ks` audit that trains nothing.

A failed check takes away the verdicts that rest on it, and no other. Each judgement names the checks it rests on. No
check is lost with the models it is measured on: whether the calibration set is like the query set is asked of rho's
calibration models or else of the shadow models that know no query record, and what nobody can be asked is a warning.
The holdout test rests on none of rho's, and on its own: there is no evidence that query set and holdout were sampled
differently (`metrics/exchangeability.py`), near-copies are not spread over both, and its models fit their data.
`forgotten` by a test of use comes from the upper limit of the used fraction, whatever `--level` says; EMA has no such
number, so its `forgotten` is not said. All shadow models are further rows of the one membership matrix. A file's
probabilities are rounded, so log-odds are compared after all models' went through probabilities rounded alike.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.ks.available import available_tests, lacks, possible_tests, refuse
from jaxaudit.audits.ks.evidence import Evidence
from jaxaudit.audits.ks.judge_outputs import judge_outputs
from jaxaudit.audits.ks.learned import without_unlearned
from jaxaudit.audits.ks.leave_one_out import leave_one_out
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget, Target, kinds_of_targets
from jaxaudit.audits.ks.tests_of_use import KSTest
from jaxaudit.data.roles import Role, Sets
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.reference import refuse_few
from jaxaudit.shadow_models import ShadowModels, examples_of

BY_CLASSES = (
    "Whether the known members are like query set and holdout was measured on their classes alone, and whether they "
    "share records with these was not looked at: the bank has no records. Give the query records and the holdout, too."
)
BY_NUMBERS = (
    "Whether the known members are like query set and holdout, and share no records with these, was not looked at: "
    "only numbers of these records are known."
)


def judge(
    key: Key[Array, ""],
    shadows: ShadowModels,
    targets: Sequence[Target],
    *,
    tests: Sequence[KSTest] | None = None,
    own_recipe: bool = False,
    reduced: Sequence[str] = (),
    level: float = 0.95,
    min_accuracy: float = preflight.MIN_ACCURACY,
    rates: bool = False,
    progress: Progress | None = None,
) -> KSAudit:
    """Has each target forgotten the query set? Tests with known error rates, and Liu & Tsaftaris (2020).

    The first test gives the verdict; the results of the others are given, too. The shadow models may come from
    `train_shadows` or from a bank (`open_bank`). Equal models give equal numbers, except those of the holdout test: a
    bank has no inputs, so its records cannot teach how difficult each of them is.

    Args:
        key: random key; every test uses the stream of its name, and all targets share its draws.
        shadows: the shadow models; none with known members, as `train_shadows` gives without a learner. A table of
            scores is judged by `judge_scores`.
        targets: models to judge: `FileTarget`; `SimulatedTarget`, if trained with the shadow models; or your own
            `Target`. Files have one row per record of each given set.
        tests: the tests to make, the deciding one first; by default those that the models and outputs allow: the
            members test, the holdout test, the reference test, or without any of these the shadow test; and rho last.
        own_recipe: states that the shadow models have the targets' own network and recipe. Without this statement and
            without known members, it is unknown how much a target from a file memorises: no used fraction is given, and
            no target is called `forgotten`.
        reduced: how the shadow models differ from what was requested, in words; `own_recipe` then counts for nothing.
        level: confidence level of the intervals; no verdict depends on it.
        min_accuracy: minimum training accuracy of a shadow model that counts as well trained.
        rates: also measure the error rates of each test, by judging each shadow model with the others
            (`leave_one_out`), after each of which `progress` is called.
        progress: called as records teach how difficult they are, too.

    Returns:
        One result per target, in the same order: the verdict with its reasons, and for each test of use the p-values
        and the used fraction, from 0 to 1.

    Raises:
        InputError: there is no target; outputs do not fit the sets; a test cannot be made or is named twice; or the
            level is out of range.

    >>> import jax
    >>> import jaxaudit as ja
    >>> digits, key = ja.load("digits"), jax.random.key(1)
    >>> flat = ja.Examples(digits.inputs.reshape(-1, 64) / np.float32(255), digits.labels, digits.class_names, "digits")
    >>> held = ja.deal(jax.random.key(2), 1000)
    >>> query, holdout = flat.take(np.flatnonzero(~held)), flat.take(np.flatnonzero(held))
    >>> calibration, learner = flat.take(np.arange(1000, 1797)), ja.nearest_neighbours(10, neighbours=1, smoothing=0.1)
    >>> used = ja.SimulatedTarget("used", (ja.Part(query, 1.0), ja.Part(calibration, 0.67)))
    >>> tests = [ja.HoldoutTest(mixed=20)]
    >>> shadows = ja.train_shadows(key, query, calibration, learner, [used], tests=tests, holdout=holdout)
    >>> answer = judge(key, shadows, [used], tests=tests)
    >>> answer.targets[0].verdict, answer.targets[0].usage[0].p_never < 0.05
    ('not forgotten', True)
    """
    if not targets:
        raise InputError("there is no target: give a file of its outputs (`targets`), or simulate one.")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval must be between 0 and 1; got {level:g}.")
    if tests is None:
        tests = possible_tests(shadows, targets)
    evidence = Evidence(shadows, min_accuracy, own_recipe, tuple(reduced), targets=len(targets), progress=progress)
    evidence, targets = evidence_for(evidence, targets, tests)
    pool = evidence.pool
    for test in tests:
        test.refuse_pool(pool)
    watching = any(test.with_signals for test in tests)
    outputs = [
        target.says(evidence, kind, with_signals=watching)
        for target, kind in zip(targets, kinds_of_targets(targets), strict=True)
    ]
    for target_outputs in outputs:
        # Records that a simulated target was trained on are no known non-members of it.
        if target_outputs.unseen is not None and any(Role.REFERENCE in test.roles for test in tests):
            refuse_few(int(target_outputs.unseen.sum()))
    audit = judge_outputs(key, evidence, outputs, tests, level=level)
    measured = leave_one_out(key, evidence, tests, level=level, progress=progress) if rates else ()
    kinds = dict.fromkeys(kind for test in tests for kind in test.kinds(pool))
    return replace(
        audit,
        result=msgspec.structs.replace(audit.result, rates=measured or None),
        models_per_batch=shadows.models_per_batch,
        form=shadows.form,
        shadows=evidence.models.take(evidence.models.of(*kinds)),
        sampled_alike=evidence.once("dealt", lambda: None),
    )


def evidence_for(
    evidence: Evidence, targets: Sequence[Target], tests: Sequence[KSTest]
) -> tuple[Evidence, tuple[Target, ...]]:
    """The evidence for these tests, and the targets with their outputs on the compared records.

    The holdout is omitted if no test needs it and no target from a file has outputs on it. The calibration set serves
    as reference if a test needs one, or if all targets are files with outputs on it.
    """
    shadows, pool = evidence.models, evidence.pool
    kept = tuple(target.of_kept(pool) if isinstance(target, FileTarget) else target for target in targets)
    files = [target for target in kept if isinstance(target, FileTarget)]
    needed = frozenset[Role]().union(*(test.roles for test in tests))
    if files and Role.HOLDOUT not in needed and not any(Role.HOLDOUT in file.on for file in files):
        shadows = shadows.take(records=np.r_[pool.query, pool.holdout.stop : len(pool.examples)])
        pool = shadows.pool
    everywhere = len(files) == len(kept) > 0 and all(Role.REFERENCE in file.on for file in files)
    if pool.reference.stop == pool.reference.start and (everywhere or Role.REFERENCE in needed):
        pool = pool._replace(reference=pool.calibration)
        shadows = replace(shadows, pool=pool)
    answers = available_tests(pool, shadows.kinds, tests=tests)
    lacking = {answer.test.name: lacks(answer, files) for answer in answers}
    for test in tests:
        absent = [kind for kind in test.kinds(pool) if test.name not in lacking and kind not in shadows.kinds]
        why = lacking.get(test.name) or (f"there are no models of the kind {', '.join(absent)}" if absent else "")
        if why:
            raise InputError(f"the {test.title} cannot be made: {why}.")
    sets = Sets(
        query=pool.examples.take(pool.query, "query set"),
        holdout=examples_of(pool, pool.holdout),
        members=examples_of(pool, pool.members),
        reference=examples_of(pool, pool.reference),
    )
    refuse(kept, tests, sets)
    evidence = without_unlearned(replace(evidence, models=shadows), tests)
    if Role.MEMBERS in sets and not pool.examples.inputs.size and pool.at_hand is None:
        sentence = BY_NUMBERS if pool.classless else BY_CLASSES
        evidence = replace(evidence, limitations=(*evidence.limitations, sentence))
    return evidence, kept

"""The `ks` audit, end to end: draw the shadow models, train them, compare what they say, judge."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Array, Bool, Key

from jaxaudit.audits.ks.evidence import Lessons, ShadowOutputs, check_tests, emas, of_files, shadow_outputs, usages
from jaxaudit.audits.ks.judge import Compared, compared_with, judge
from jaxaudit.audits.ks.models import Shadows, Trained, draw_roles, train_roles
from jaxaudit.audits.ks.result import KSAudit, Truth
from jaxaudit.audits.ks.settle import settle
from jaxaudit.audits.pool import Pool, SimulatedTarget, make_pool
from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.data.overlap import refuse_overlap
from jaxaudit.ensemble import Progress
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import Signals, signals
from jaxaudit.metrics.exchangeability import alike
from jaxaudit.metrics.ks import noise_floor
from jaxaudit.metrics.scores import cut, profile
from jaxaudit.randomness import stream

NO_SHADOWS = Shadows()


def audit_ks(
    key: Key[Array, ""],
    query: Examples,
    calibration: Examples,
    learner: Learner,
    *,
    holdout: Examples | None = None,
    outputs: Sequence[Outputs] = (),
    holdout_outputs: Sequence[Outputs] = (),
    simulated: Sequence[SimulatedTarget] = (),
    replicates: int = 5,
    controls: int = 1,
    shadows: Shadows = NO_SHADOWS,
    ema: bool = False,
    subsample: float = 0.9,
    level: float = 0.95,
    min_accuracy: float = preflight.MIN_ACCURACY,
    allow_unrelated_target: bool = False,
    width: int | None = None,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
) -> KSAudit:
    """Has each target forgotten the query set? Two tests with known error rates, and Liu & Tsaftaris (2020).

    Trains `replicates` query models and calibration models, `controls` models on both sets together, the models of
    `shadows`, and one model for every simulated target, each with its own seed; all in one `fit_many`. A target,
    simulated or not, is one model: it stands in every replicate against another pair of shadow models.

    The verdict is by the first of these that was asked for: the holdout test (`holdout` and `shadows.mixed`), the
    shadow test (`shadows.never`), EMA (`ema`), and else rho, algorithm 1 of the paper over replicates. rho and the
    paper's rule are given whatever decides.

    Args:
        key: random key; everything follows from it, by role: what is asked for besides (a test, a target, a
            replicate) changes no number of what was there. Targets share the draws of a test.
        query: the data in question, preprocessed as the learner wants them.
        calibration: data of the same domain with no record of `query` among them, same classes in the same order.
        learner: the shadow models' design and recipe: the target's own, as far as it is known.
        holdout: records of the query set's provider that nobody was given, drawn as the query set was, same classes
            in the same order.
        outputs: outputs of target models on `query`, in its order.
        holdout_outputs: where there is a holdout, outputs of the same models on it, in step with `outputs`.
        simulated: targets of known truth, to be trained here.
        replicates: independent repetitions; at least 2 for an interval.
        controls: models trained on both sets, which must come out as `not forgotten` before rho calls anything
            `forgotten`. 0 leaves the check failed.
        shadows: how many models the tests of use are given; none, and the tests are not made.
        ema: whether to make ensembled membership auditing's test, too.
        subsample: the share of the calibration set each replicate's calibration model is trained on, drawn anew, so
            that the interval knows of the choice of records too. 1 is the paper's.
        level: confidence level of the intervals.
        min_accuracy: what "well trained" means, on a shadow model's own training records.
        allow_unrelated_target: accept outputs that classify the query set no better than guessing.
        width: models trained side by side (chosen by measurement when None).
        progress: called as training goes on.
        checkpoints: a directory for what is finished, so that the same call goes on from there should it be stopped:
            see `fit_many`. The same `learner` is the caller's word.

    Raises:
        InputError: where the sets overlap, there is no target, outputs do not fit the sets, or an option is out of
            range.
    """
    if not outputs and not simulated:
        raise InputError("there is no target to judge: give a file of its outputs or simulate one.")
    if replicates < 1 or not 0 < subsample <= 1 or not 0 < level < 1 or controls < 0:
        raise InputError(
            f"replicates must be at least 1 (got {replicates}), controls at least 0 (got {controls}), subsample above "
            f"0 and at most 1 (got {subsample:g}), level between 0 and 1 (got {level:g})."
        )
    check_tests(query, holdout, outputs, holdout_outputs, shadows, ema, subsample)
    refuse_overlap(query, calibration)
    pool = make_pool(query, calibration, tuple(simulated), holdout)
    roles = draw_roles(stream(key, "draw"), pool, tuple(simulated), replicates, controls, subsample, shadows)
    trained, width = train_roles(
        stream(key, "train"),
        roles,
        pool,
        learner,
        with_signals=ema,
        width=width,
        progress=progress,
        checkpoints=checkpoints,
    )
    models = trained["query"].confidences, trained["calibration"].confidences, trained["control"].confidences
    standing = _standing_checks(query, calibration, trained, min_accuracy)
    members = np.concatenate(roles["calibration"])[:, pool.calibration]
    lessons = Lessons(trained["calibration"].signals, calibration.labels, members) if ema else None
    evidence = shadow_outputs(trained, roles, pool, min_accuracy)
    of_tests = evidence.fits
    if holdout is not None:
        of_tests = (_dealt(stream(key, "exchangeability"), evidence, pool), *of_tests)
    results = []
    for index, file in enumerate(outputs):
        compared = compared_with(file, query.labels, trained)
        accuracy = float(np.mean(file.probabilities.argmax(axis=1) == query.labels))
        related = preflight.target_accuracy(accuracy, query.labels, file.name)
        checks = standing if allow_unrelated_target else (*standing, related)
        result = judge(stream(key, "rho"), file.name, None, compared, query.labels, checks, level)
        held = (None, None) if holdout is None else (holdout_outputs[index], holdout.labels)
        of_use = usages(key, *of_files(evidence, file, query.labels, *held), level)
        said = signals(file.probabilities, query.labels)
        results.append(settle(result, of_use, emas(said, query, lessons) if lessons else (), of_tests))
    for index, target in enumerate(simulated):
        own = trained[f"target {index}"]
        truth = _truth(roles[f"target {index}"][0][0], pool)
        compared = Compared(*models, own.confidences, own.confidences)
        result = judge(stream(key, "rho"), target.name, truth, compared, query.labels, standing, level)
        of_use = usages(key, own.log_odds[0], evidence, level)
        said = Signals(*(each[0, : len(query)] for each in own.signals))
        results.append(settle(result, of_use, emas(said, query, lessons) if lessons else (), of_tests))
    odds = {role: trained[role].log_odds for role in Shadows._fields if roles[role]}
    return KSAudit(tuple(results), noise_floor(models[0]), *models, query.labels, width, odds)


def _standing_checks(
    query: Examples, calibration: Examples, trained: dict[str, Trained], min_accuracy: float
) -> tuple[Check, ...]:
    """The checks that are the same for every target."""
    own = np.concatenate([trained["query"].own_accuracy, trained["calibration"].own_accuracy])
    return (
        preflight.shadow_accuracy(own, min_accuracy),
        preflight.calibration_reach(trained["calibration"].query_accuracy, query.labels),
        preflight.class_coverage(query.labels, calibration.labels, query.class_names),
    )


def _dealt(key: Key[Array, ""], evidence: ShadowOutputs, pool: Pool) -> Check:
    """Whether query set and holdout look dealt from one pile: rho does not rest on it."""
    both = np.r_[pool.query, pool.holdout]
    unseen = profile(cut(evidence.mixed), evidence.mixed_members).outside
    examples = pool.examples
    found = alike(
        key,
        examples.inputs[both],
        examples.labels[both],
        unseen,
        examples.record_hashes[both].view("S16"),
        evidence.queries,
    )
    return preflight.holdout_like_query(found)


def _truth(row: Bool[np.ndarray, " examples"], pool: Pool) -> Truth:
    used = float(row[pool.query].mean())
    return Truth(used, int(row.sum()), "not forgotten" if used > 0 else "forgotten")

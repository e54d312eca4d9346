"""The `ks` audit, end to end: draw the shadow models, train them, compare confidences, judge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.audits.ks_judge import Compared, judge
from jaxaudit.audits.ks_result import KSAudit, Truth
from jaxaudit.audits.pool import (
    Pool,
    SimulatedTarget,
    calibration_row,
    control_row,
    make_pool,
    query_row,
    target_row,
)
from jaxaudit.data.examples import Examples
from jaxaudit.data.outputs import Outputs, confidence_of, match_precision
from jaxaudit.data.overlap import refuse_overlap
from jaxaudit.ensemble import Progress, fit_many, kept_width, log_probs_many, measure_width
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.metrics import checks as preflight
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import noise_floor


class Trained(NamedTuple):
    """The models of one role on the query set.

    Attributes:
        confidences: probability of the ground-truth class of every query record.
        own_accuracy: accuracy on the model's own training records.
        query_accuracy: accuracy on the query set.
    """

    confidences: Float[np.ndarray, "models n"]
    own_accuracy: Float[np.ndarray, " models"]
    query_accuracy: Float[np.ndarray, " models"]


def audit_ks(
    key: Key[Array, ""],
    query: Examples,
    calibration: Examples,
    learner: Learner,
    *,
    outputs: Sequence[Outputs] = (),
    simulated: Sequence[SimulatedTarget] = (),
    replicates: int = 5,
    controls: int = 1,
    subsample: float = 0.9,
    level: float = 0.95,
    min_accuracy: float = preflight.MIN_ACCURACY,
    allow_unrelated_target: bool = False,
    width: int | None = None,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
) -> KSAudit:
    """Has each target forgotten the query set? Liu & Tsaftaris (2020), algorithm 1, over replicates.

    Trains `replicates` query models and calibration models, `controls` models on both sets together, and one model
    for every simulated target, each with its own seed; all in one `fit_many`. A target, simulated or not, is one
    model: it stands in every replicate against another pair of shadow models.

    Args:
        key: random key; everything follows from it.
        query: the data in question, preprocessed as the learner wants them.
        calibration: data of the same domain with no record of `query` among them, same classes in the same order.
        learner: the shadow models' design and recipe: the target's own, as far as it is known.
        outputs: outputs of target models on `query`, in its order.
        simulated: targets of known truth, to be trained here.
        replicates: independent repetitions; at least 2 for an interval.
        controls: models trained on both sets, which must come out as `not forgotten` before anything is called
            `forgotten`. 0 leaves the check failed.
        subsample: the share of the calibration set each replicate's calibration model is trained on, drawn anew, so
            that the interval knows of the choice of records too. 1 is the paper's.
        level: confidence level of rho's interval.
        min_accuracy: what "well trained" means, on a shadow model's own training records.
        allow_unrelated_target: accept outputs that classify the query set no better than guessing.
        width: models trained side by side (chosen by measurement when None).
        progress: called as training goes on.
        checkpoints: a directory for what is finished, so that the same call goes on from there should it be stopped:
            see `fit_many`. The same `learner` is the caller's word.

    Raises:
        InputError: where the sets overlap, there is no target, outputs do not fit the query set, or an option is out
            of range.
    """
    if not outputs and not simulated:
        raise InputError("there is no target to judge: give a file of its outputs or simulate one.")
    if replicates < 1 or not 0 < subsample <= 1 or not 0 < level < 1 or controls < 0:
        raise InputError(
            f"replicates must be at least 1 (got {replicates}), controls at least 0 (got {controls}), subsample above "
            f"0 and at most 1 (got {subsample:g}), level between 0 and 1 (got {level:g})."
        )
    _check_outputs(outputs, query)
    refuse_overlap(query, calibration)
    pool = make_pool(query, calibration, tuple(simulated))
    generator = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(key, 0))))
    roles = {
        "query": [query_row(pool) for _ in range(replicates)],
        "calibration": [calibration_row(generator, pool, subsample) for _ in range(replicates)],
        "control": [control_row(pool) for _ in range(controls)],
        **{f"target {index}": [target_row(generator, pool, target)] for index, target in enumerate(simulated)},
    }
    membership = np.concatenate([row for rows in roles.values() for row in rows])
    keys = jax.random.split(jax.random.fold_in(key, 1), len(membership))
    if checkpoints is not None:
        width = kept_width(keys, membership, pool.examples.inputs, pool.examples.labels, checkpoints) or width
    if width is None:
        width = measure_width(keys, membership, pool.examples.inputs, pool.examples.labels, learner).width
    trained = _by_role(roles, _train(keys, membership, pool, learner, width, progress, checkpoints))
    models = trained["query"].confidences, trained["calibration"].confidences, trained["control"].confidences
    standing = _standing_checks(query, calibration, trained, min_accuracy)
    judge_keys = iter(jax.random.split(jax.random.fold_in(key, 2), len(outputs) + len(simulated)))
    results = []
    for file in outputs:
        arrays = (*models, confidence_of(file, query.labels)[None])
        compared = Compared(*(match_precision(array, file) for array in arrays))
        accuracy = float(np.mean(file.probabilities.argmax(axis=1) == query.labels))
        related = preflight.target_accuracy(accuracy, query.labels, file.name)
        checks = standing if allow_unrelated_target else (*standing, related)
        results.append(judge(next(judge_keys), file.name, None, compared, query.labels, checks, level))
    for index, target in enumerate(simulated):
        compared = Compared(*models, trained[f"target {index}"].confidences)
        truth = _truth(roles[f"target {index}"][0][0], pool)
        results.append(judge(next(judge_keys), target.name, truth, compared, query.labels, standing, level))
    return KSAudit(tuple(results), noise_floor(models[0]), *models, query.labels, width)


def _train(
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    pool: Pool,
    learner: Learner,
    width: int,
    progress: Progress | None,
    checkpoints: Path | None,
) -> Trained:
    """Trains all models at once and keeps what they say of the pool."""
    inputs, labels = pool.examples.inputs, pool.examples.labels

    def score(params: Any, rows: Int[np.ndarray, " models"]) -> tuple[np.ndarray, np.ndarray]:
        log_probs = log_probs_many(learner, params, inputs)
        of_label = np.take_along_axis(log_probs, labels[None, :, None], axis=2)[:, :, 0]
        # Through float64, so that a confidence near 1 is rounded once and not twice.
        confidences = np.exp(of_label[:, pool.query].astype(np.float64)).astype(np.float32)
        return confidences, log_probs.argmax(axis=2) == labels

    how: dict[str, Any] = {"width": width, "then": score, "progress": progress, "checkpoints": checkpoints}
    confidences, hits = fit_many(keys, membership, inputs, labels, learner, **how)
    own = (hits & membership).sum(axis=1) / membership.sum(axis=1)
    return Trained(confidences, own, hits[:, pool.query].mean(axis=1))


def _by_role(roles: dict[str, list[Bool[np.ndarray, "1 examples"]]], models: Trained) -> dict[str, Trained]:
    ends = np.cumsum([len(rows) for rows in roles.values()])
    spans = [slice(end - len(rows), end) for rows, end in zip(roles.values(), ends, strict=True)]
    return {role: Trained(*(array[span] for array in models)) for role, span in zip(roles, spans, strict=True)}


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


def _truth(row: Bool[np.ndarray, " examples"], pool: Pool) -> Truth:
    used = float(row[pool.query].mean())
    return Truth(used, int(row.sum()), "not forgotten" if used > 0 else "forgotten")


def _check_outputs(outputs: Sequence[Outputs], query: Examples) -> None:
    for file in outputs:
        if file.probabilities.shape != (len(query), len(query.class_names)):
            raise InputError(
                f"{file.name} holds outputs of shape {file.probabilities.shape}, but the query set has {len(query)} "
                f"records and {len(query.class_names)} classes: give one row a record, in the query set's order."
            )

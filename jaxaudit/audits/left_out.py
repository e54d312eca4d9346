"""Outputs of models trained with and without a record: refitted, or in closed form."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jaxaudit.data.examples import Examples
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, fit_many, log_probs_many, suitable_models_per_batch
from jaxaudit.learners import Learner, LeavesOneOut, LeftOut
from jaxaudit.learners.estimator import EstimatorLearner
from jaxaudit.learners.learner import compiled
from jaxaudit.membership import AllBut, everyone, leave_group_out
from jaxaudit.metrics.arrays import Integers, ModelNumbers, OneKey


def leave_out(
    key: OneKey,
    examples: Examples,
    learner: Learner,
    records: Integers,
    *,
    groups: Int[np.ndarray, " examples"] | None = None,
    execution: Execution = DEFAULT_EXECUTION,
) -> LeftOut:
    """Log-probabilities (nats) of A(T) and of A(T without t) on each record t of `records`, all with one key.

    With `groups`, numbered from 0, A(T without t) lacks t's group, and every learner is refitted. A(T) is trained in
    the program of the other models: another would round differently, and training amplifies rounding.
    """
    if groups is None and isinstance(learner, LeavesOneOut):
        return learner.leave_one_out(key, examples.inputs, examples.labels, records, execution.progress)
    inputs, labels, n = examples.inputs, examples.labels, len(examples)
    units = records if groups is None else np.unique(groups[records])
    size = execution.models_per_batch or usual_left_out_per_batch(key, examples, learner, len(units))
    padded = in_whole_chunks(units, size)
    rows = AllBut(padded, n) if groups is None else leave_group_out(groups, padded)
    unit_records, at = _asked(records, groups, padded)
    copies = max(size - 1, 1)
    of_whole, of_others = execution.at(size).split(1 + copies, len(padded))

    def fit(part: Execution, rows: np.ndarray | AllBut, summarize: Any) -> np.ndarray:
        keys = jnp.repeat(key[None], len(rows))
        return fit_many(keys, rows, inputs, labels, learner, execution=part, summarize=summarize)

    # One row leaves a record out, so this chunk is trained by the same program, in which non-members have weight 0.
    whole = np.concatenate([rows[np.arange(1)], everyone(n).repeat(copies, axis=0)])
    with_record = fit(of_whole, whole, partial(say_everywhere, learner, inputs[records]))[1]
    without_record = fit(of_others, rows, partial(_own, learner, inputs, unit_records))
    return LeftOut(with_record, without_record[at])


def _asked(
    records: Integers,
    groups: Int[np.ndarray, " examples"] | None,
    units: ModelNumbers,
) -> tuple[Int[np.ndarray, "models most"], tuple[np.ndarray, np.ndarray]]:
    """The records that each model answers, repeated to the same number, and each record's model and place there."""
    if groups is None:
        return units[:, None], (np.arange(len(records)), np.zeros(len(records), int))
    records_of_units = [records[groups[records] == unit] for unit in units]
    unit_records = np.stack([np.resize(unit, max(map(len, records_of_units))) for unit in records_of_units])
    model = np.unique(groups[records], return_inverse=True)[1]
    return unit_records, (model, (unit_records[model] == records[:, None]).argmax(axis=1))


def in_whole_chunks(models: Int[np.ndarray, " some"], size: int) -> Int[np.ndarray, " more"]:
    """These models, the last one repeated up to whole chunks: a chunk of fewer would be another program."""
    return np.concatenate([models, np.repeat(models[-1:], -len(models) % size)])


def models_trained(records: int, models_per_batch: int) -> int:
    """The number of models that `leave_out` trains: whole chunks, plus a chunk that holds A(T).

    >>> models_trained(10, 4)
    16
    """
    return -(-records // models_per_batch) * models_per_batch + 1 + max(models_per_batch - 1, 1)


def usual_left_out_per_batch(key: OneKey, examples: Examples, learner: Learner, models: int) -> int:
    """The number of leave-one-out models per batch; see `suitable_models_per_batch`."""
    n = len(examples)
    some = AllBut(np.arange(max(1, min(models, n))), n)
    keys = jnp.repeat(key[None], len(some))
    return suitable_models_per_batch(keys, some, examples.inputs, examples.labels, learner)


def uses_key(learner: Learner, examples: Examples) -> bool:
    """Whether the learner's result can depend on the key, found by tracing its program; an estimator's always can."""
    if isinstance(learner, EstimatorLearner):
        return True
    shapes = [
        jax.eval_shape(jax.random.key, 1),
        jax.ShapeDtypeStruct(examples.inputs.shape, jnp.asarray(examples.inputs[:0]).dtype),
        jax.ShapeDtypeStruct(examples.labels.shape, jnp.int32),
        jax.ShapeDtypeStruct(examples.labels.shape, jnp.float32),
    ]
    jaxpr = jax.make_jaxpr(learner.fit)(*shapes).jaxpr
    key = jaxpr.invars[0]
    # By identity: a literal has no hash.
    return any(variable is key for equation in jaxpr.eqns for variable in equation.invars) or any(
        variable is key for variable in jaxpr.outvars
    )


def say_everywhere(learner: Learner, records: np.ndarray, params: Any, models: np.ndarray) -> np.ndarray:
    """The outputs of all models on these records, to summarise what `fit_many` trained."""
    return log_probs_many(learner, params, records)


def _own(learner: Learner, inputs: np.ndarray, unit_records: np.ndarray, params: Any, models: np.ndarray) -> np.ndarray:
    """The outputs of each model on records that it was trained without."""
    own_inputs = inputs[unit_records[models]]
    if isinstance(learner, EstimatorLearner):
        return np.stack([learner.log_probs(model, rows) for model, rows in zip(params, own_inputs, strict=True)])
    return np.asarray(_log_probs_each(learner, params, own_inputs))


@compiled()
def _log_probs_each(learner: Learner, params: Any, records: Array) -> Array:
    return jax.vmap(learner.log_probs)(params, records)

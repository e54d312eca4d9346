"""Measures the training speed of a model on this machine, for planning."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, Key, Real

from jaxaudit.ensemble.concurrency import concurrent_chunks
from jaxaudit.ensemble.fit import log_probs_many
from jaxaudit.ensemble.forms import with_decided_form
from jaxaudit.ensemble.host_program import host_step_bytes, steps_from_host, train_from_host
from jaxaudit.ensemble.models_per_batch import (
    TimedModels,
    bytes_of_batches,
    choose_models_per_batch,
    probe_models_per_batch,
)
from jaxaudit.ensemble.plan import ChunkGroup, plan_groups
from jaxaudit.ensemble.program import init_chunk, place_pool
from jaxaudit.ensemble.step_memory import operations_of, step_operations
from jaxaudit.ensemble.training_state import StateKeeper
from jaxaudit.learners.learner import FormedLearner, SteppedLearner
from jaxaudit.membership import everyone
from jaxaudit.randomness import keys_at

MODELS = 64
"""The number of models for which the models per batch are chosen, about as many as an audit trains."""
RECORDS = 4096
"""The largest number of records that are used for measuring."""
HOST_STEPS, HOST_SECONDS = 24, 4.0
MOST_OPERATIONS = 1e10
"""Of a step, or of an evaluation, that is timed: about half a second of a CPU's core. Larger ones are timed in smaller
minibatches, or on fewer records, and count for as many operations more."""


class Speed(NamedTuple):
    """The training speed, measured with as many models at the same time as in training.

    Attributes:
        models_per_batch: models trained at the same time.
        step: seconds per model-step.
        record: seconds to evaluate one model on one record.
        step_bytes: bytes that the steps of all batches under way take, activations included, as the compiler counts.
    """

    models_per_batch: int
    step: float
    record: float
    step_bytes: int


def measure_speed(
    key: Key[Array, ""],
    inputs: Real[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    learner: SteppedLearner,
    models_per_batch: int | None = None,
    near: int | None = None,
) -> Speed:
    """Times the training of some models for some steps; the first steps, which include compilation, do not count.

    Args:
        key: random key.
        inputs, labels: records like the training records, and their classes.
        learner: model and training recipe.
        models_per_batch: models trained at the same time; by default chosen by measurement
            (`choose_models_per_batch`), which takes most of the time.
        near: the number that was chosen for this network on records of another shape; it is used, or the largest
            smaller one that fits into memory, and its speed on these records is timed.
    """
    learner = with_decided_form(learner)
    inputs, labels = np.asarray(inputs[:RECORDS]), np.asarray(labels[:RECORDS])
    keys = jax.random.split(key, MODELS)
    membership = everyone(len(labels)).repeat(MODELS, axis=0)
    pool = place_pool(inputs), place_pool(labels)
    groups = plan_groups(np.asarray(jax.random.key_data(keys)), membership, learner, members_only=True)
    step = step_bytes = None
    if steps_from_host(learner):
        smaller, times = _in_smaller_steps(learner, keys[0], *pool)
        of_smaller = plan_groups(np.asarray(jax.random.key_data(keys)), membership, smaller, members_only=True)
        models_per_batch, step = 1, times * _host_step(smaller, keys, membership, pool, of_smaller[0])
        step_bytes = concurrent_chunks() * host_step_bytes(smaller, keys[0], pool, times)
    elif models_per_batch is None:
        choice = choose_models_per_batch(learner, keys, membership, pool, groups, near)
        models_per_batch, step = choice.models_per_batch, choice.seconds.get(choice.models_per_batch)
    timed = TimedModels(learner, keys, membership, pool, groups[0])
    if step is None:
        step = probe_models_per_batch(timed, models_per_batch)
    if step_bytes is None:
        step_bytes = bytes_of_batches(timed, models_per_batch)
    record = _record(learner, keys_at(keys, slice(models_per_batch)), inputs)
    return Speed(models_per_batch, step, record, step_bytes)


def _host_step(
    learner: SteppedLearner, keys: Array, membership: np.ndarray, pool: tuple[Array, Array], group: ChunkGroup
) -> float:
    """Seconds per model-step with one call per step: the median step, with as many models at a time as in training."""

    def train(chunk: ChunkGroup) -> float:
        times, started = list[float](), time.perf_counter()

        def advance(_: int) -> None:
            times.append(time.perf_counter())
            # The first step compiles.
            if len(times) > HOST_STEPS or (len(times) > 2 and times[-1] - times[1] > HOST_SECONDS):
                raise _SpeedKnown

        keeper = StateKeeper(None, chunk.rows, chunk.steps, learner.epochs)
        with suppress(_SpeedKnown):
            train_from_host(learner, chunk, keys_at(keys, chunk.rows), membership[chunk.rows], pool, advance, keeper)
        return float(np.median(np.diff(times[1:]))) if len(times) > 2 else (times[-1] - started) / len(times)

    with ThreadPoolExecutor(concurrent_chunks()) as threads:
        return max(threads.map(train, group.chunks(1)[: concurrent_chunks()])) / concurrent_chunks()


class _SpeedKnown(Exception):
    """Ends a training that only serves to measure its speed."""


def _in_smaller_steps(
    learner: SteppedLearner, key: Array, inputs: Array, labels: Array
) -> tuple[SteppedLearner, float]:
    """The learner with minibatches that are small enough to be timed, and how many times as much a whole one takes."""
    whole = step_operations(learner, key, inputs, labels)
    if whole <= MOST_OPERATIONS or not isinstance(learner, FormedLearner):
        return learner, 1.0
    smaller = learner.in_batches_of(max(1, int(learner.batch_size * MOST_OPERATIONS / whole)))
    return smaller, whole / step_operations(smaller, key, inputs, labels)


def _record(learner: SteppedLearner, keys: Array, inputs: np.ndarray) -> float:
    params: Any = jax.vmap(learner.finish)(init_chunk(learner, keys))
    one = jax.jit(jax.vmap(learner.log_probs, in_axes=(0, None))).lower(params, inputs[:1])
    inputs = inputs[: max(1, int(MOST_OPERATIONS / max(operations_of(one), 1)))]
    log_probs_many(learner, params, inputs)  # compiles
    started = time.perf_counter()
    log_probs_many(learner, params, inputs)
    return (time.perf_counter() - started) / len(inputs) / len(keys)

"""What training costs, in operations that the compiler counts: a function of network, recipe and shapes.

Models trained in chunks of another size differ by rounding, so the models per batch of an audit follow from
shapes, too. Only `measure_rate`, for estimates, reads a clock.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, Real

from jaxaudit.ensemble.concurrency import accelerated, concurrent_chunks
from jaxaudit.ensemble.forms import with_decided_form
from jaxaudit.ensemble.host_program import steps_from_host, train_from_host
from jaxaudit.ensemble.models_per_batch import FULL_BYTES, TimedModels, probe_models_per_batch
from jaxaudit.ensemble.plan import ChunkGroup, plan_groups
from jaxaudit.ensemble.program import place_pool
from jaxaudit.ensemble.step_memory import bytes_written, step_operations
from jaxaudit.ensemble.training_state import StateKeeper
from jaxaudit.learners.learner import FormedLearner, SteppedLearner
from jaxaudit.membership import everyone
from jaxaudit.randomness import keys_at

OVERHEAD = 5e5
"""What a model-step costs beside its counted operations, in operations. On two cores of a CPU (Xeon, AVX-512) a step of
a network of 154 parameters takes 4 to 9 microseconds, of which its 50,000 operations are less than one."""
OPERATIONS_A_SECOND = 1.2e11
"""Of the same two cores when they are idle: an audit of 2.4e13 operations took five minutes of processor time. Networks
from `mlp` with 128 units to `medical-cnn` differ by a factor of two."""
GRADIENTS = 3
"""A gradient takes about three times the operations of the outputs."""
ARRAYS = 4
"""About a quarter of the bytes of the arrays that a step computes exist at a time (measured: a sixth to a quarter)."""
MOST_MODELS, CPU_BYTES, CPU_MODELS = 64, 16 << 20, 4
"""Models per batch: at most 64 on an accelerator. On a CPU at most 4, and so few that their step computes arrays of at
most 16 MiB: on the cores above, no network is faster with more, and those with 40 MiB a model are slower with two."""
RECORDS = 4096
"""The largest number of records that are used for measuring."""
HOST_STEPS, HOST_SECONDS = 24, 4.0
MOST_OPERATIONS = 1e10
"""Of a step that is timed: about half a second of a CPU's core. Larger ones are timed in smaller minibatches, and count
for as many operations more."""


class StepCost(NamedTuple):
    """What a network costs, as counted from its shapes.

    Attributes:
        step: operations of a model-step, with its overhead.
        record: operations to evaluate one model on one record.
        step_bytes: bytes of all arrays that a model-step computes; at most a few parts of them exist at a time.
    """

    step: float
    record: float
    step_bytes: int


def count_step(learner: SteppedLearner, inputs: np.ndarray, labels: np.ndarray) -> StepCost:
    """The cost of a learner on records of these shapes, without compiling; the same on every device."""
    # Forms of convolutions are measured, and have other operations.
    plain: SteppedLearner = learner.in_form(None) if isinstance(learner, FormedLearner) else learner
    shapes = plain, jax.random.key(0), inputs, labels
    operations = step_operations(*shapes)
    return StepCost(operations + OVERHEAD, operations / GRADIENTS / learner.batch_size, bytes_written(*shapes))


def usual_models_per_batch(learner: SteppedLearner, cost: StepCost) -> int:
    """The models per batch for a learner of this cost: a power of two, the same on all CPUs and all accelerators."""
    if steps_from_host(learner):
        return 1
    full, most = (FULL_BYTES, MOST_MODELS) if accelerated() else (CPU_BYTES, CPU_MODELS)
    return 1 << min(most, max(1, full // cost.step_bytes)).bit_length() - 1


def bytes_under_way(cost: StepCost, models_per_batch: int) -> int:
    """The bytes that the steps of all chunks under way take on this machine, as an estimate."""
    return models_per_batch * concurrent_chunks() * cost.step_bytes // ARRAYS


def measure_rate(
    inputs: Real[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    learner: SteppedLearner,
    models_per_batch: int,
) -> float:
    """The counted operations a second of this machine, from some steps of some models; compilation does not count.

    Args:
        inputs, labels: records like the training records, and their classes.
        learner: model and training recipe.
        models_per_batch: models trained at the same time.
    """
    learner = with_decided_form(learner)
    inputs, labels = np.asarray(inputs[:RECORDS]), np.asarray(labels[:RECORDS])
    count = max(models_per_batch, 1) * concurrent_chunks()
    cost = count_step(learner, inputs, labels)
    if not steps_from_host(learner):
        return cost.step / probe_models_per_batch(_timed(learner, inputs, labels, count), models_per_batch)
    if cost.step > MOST_OPERATIONS and isinstance(learner, FormedLearner):
        learner = learner.in_batches_of(max(1, int(learner.batch_size * MOST_OPERATIONS / cost.step)))
        cost = count_step(learner, inputs, labels)
    return cost.step / _host_step(_timed(learner, inputs, labels, count))


def _timed(learner: SteppedLearner, inputs: np.ndarray, labels: np.ndarray, models: int) -> TimedModels:
    keys, membership = jax.random.split(jax.random.key(1), models), everyone(len(labels)).repeat(models, axis=0)
    groups = plan_groups(np.asarray(jax.random.key_data(keys)), membership, learner, members_only=True)
    return TimedModels(learner, keys, membership, (place_pool(inputs), place_pool(labels)), groups[0])


def _host_step(timed: TimedModels) -> float:
    """Seconds per model-step with one call per step: the median step, with as many models at a time as in training."""
    learner, keys, membership, pool, group = timed

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

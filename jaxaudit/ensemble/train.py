"""`fit_many` trains all models of all audits, in chunks, in this process or by an executor's workers.

A chunk is a function of keys, rows and the pool, so anything with `submit(fn, *args) -> future` can train it: this
process plans, fixes the models per batch and keeps the results. What a worker raises in training comes back as a value
and is raised; an exception of the future is the end of a worker, and its chunk is submitted again. XLA on a CPU cuts
large products by the number of its threads, so workers have this process's number of threads (`NPROC`). A worker that
would round differently is refused (`concurrency.py`).
"""

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxaudit.ensemble.batches import place_pool, with_decided_form
from jaxaudit.ensemble.chunk import Advance, Chunk, Results, Summarize, call_directory, steps_from_host, train_chunk
from jaxaudit.ensemble.concurrency import (
    ChunkGroup,
    Stop,
    chunk_places,
    concurrent_chunks,
    plan_groups,
    run_at_once,
    this_machine,
)
from jaxaudit.ensemble.execution import DEFAULT_EXECUTION, Execution, Executor, Progress
from jaxaudit.ensemble.models_per_batch import fitting_models_per_batch
from jaxaudit.ensemble.worker import Answer, Failed, Trained, packed, shared, train_there, unpack_value
from jaxaudit.errors import InputError, check_ranges, first_line
from jaxaudit.learners.estimator import EstimatorLearner
from jaxaudit.learners.learner import AnyInputs, Learner, SteppedLearner, compiled
from jaxaudit.membership import AllBut, Masks
from jaxaudit.metrics.arrays import AnyIntegers
from jaxaudit.randomness import ModelKeys, keys_at

ATTEMPTS = 4
"""How often a chunk is submitted before workers that end are an error."""
AHEAD_BYTES, LEAST_AHEAD, MOST_AHEAD = 1 << 28, 64, 4096
"""The number of chunks submitted at a time: membership masks of this many bytes, within bounds on the number."""
HEARTBEAT = 1.0
"""Longest wait for a finished chunk, in seconds, before progress and interrupts are handled."""


class PlannedChunk(NamedTuple):
    """The plan of a chunk; `work` is in units of progress."""

    rows: np.ndarray
    group: ChunkGroup | None
    work: int


ChunkOf = Callable[[PlannedChunk], Chunk]
"""What determines the models of a chunk, taken from those of all chunks when it is trained."""
HostPool = tuple[np.ndarray, np.ndarray]
"""Inputs and labels, on the host."""


def distribute(
    executor: Executor,
    chunk_of: ChunkOf,
    pool: HostPool,
    learner: Learner,
    parts: Sequence[PlannedChunk],
    size: int,
    advance: Advance,
    results: Results,
) -> None:
    """Trains each part's chunk in a worker and keeps its results; progress is reported about every second. A chunk
    whose worker ended is submitted again, with a RuntimeWarning, up to `ATTEMPTS` times. What the learner or
    `summarize` raised is raised here.
    """
    if not parts:
        return
    arrays = dict[str, np.ndarray]()
    code = packed(learner, arrays)
    rest = packed((results.summarize, *pool), arrays, learner)
    waiting, running = deque((part, 1) for part in parts), dict[Future[Answer], tuple[PlannedChunk, int]]()
    finished = SimpleQueue[Future[Answer]]()
    most = min(max(AHEAD_BYTES // max(chunk_of(parts[0]).membership.nbytes, 1), LEAST_AHEAD), MOST_AHEAD)
    with shared(executor, arrays, results.folder()) as source:
        train = partial(train_there, code, rest, source, this_machine())
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    part, attempt = waiting.popleft()
                    future = _submitted(executor, train, chunk_of(part))
                    running[future] = part, attempt
                    future.add_done_callback(finished.put)
                done = _all_of(finished)
                advance(0)
                # Collect finished chunks first, so that an error below does not lose them.
                for future in sorted(done, key=lambda future: not isinstance(_answer(future), Trained)):
                    (part, attempt), answer = running.pop(future), _answer(future)
                    if isinstance(answer, Trained):
                        results.keep(size, part.rows, answer.rows, unpack_value(answer.tree, source))
                        advance(part.work)
                    else:
                        _refuse_again(attempt, answer)
                        waiting.appendleft((part, attempt + 1))
        finally:
            for future in running:
                future.cancel()


def _submitted(executor: Executor, train: Callable[[Chunk], Answer], chunk: Chunk) -> Future[Answer]:
    try:
        return executor.submit(train, chunk)
    except RuntimeError as error:  # a BrokenExecutor is one
        raise InputError(
            f"the executor takes no more work ({first_line(error)}): was one of its workers ended for want of memory? "
            "What is finished is kept where checkpoints are. ensemble.LocalWorkers starts another worker by itself."
        ) from error


def _all_of(finished: SimpleQueue[Future[Answer]]) -> list[Future[Answer]]:
    """All futures that are finished; waits for the first of them, at most `HEARTBEAT` seconds."""
    futures = list[Future[Answer]]()
    with suppress(Empty):
        futures.append(finished.get(timeout=HEARTBEAT))
        while True:
            futures.append(finished.get_nowait())
    return futures


def _answer(future: Future[Answer]) -> Answer | Exception:
    """A worker's answer, or the exception if it ended. (A KeyboardInterrupt from a worker is raised.)"""
    try:
        return future.result()
    except (CancelledError, Exception) as error:
        return error


def _refuse_again(attempt: int, answer: Failed | Exception) -> None:
    """Raises the error of a chunk that was not trained, unless it is worth another attempt."""
    if isinstance(answer, Failed):
        raise answer.error
    complaint = f"a worker ended with a chunk under way ({first_line(answer)})"
    if attempt == ATTEMPTS:
        raise InputError(
            f"{complaint}, {ATTEMPTS} times with the same one: is memory short, or a package missing there? Use fewer "
            "workers, or fewer models per batch; what is finished is kept where checkpoints are."
        ) from answer
    warnings.warn(f"{complaint}: trained again, attempt {attempt + 1} of {ATTEMPTS}", RuntimeWarning, stacklevel=4)


WHOLE_FITS_PER_BATCH = 16


def whole_fits_per_batch(learner: Learner, stated: int | None = None) -> int:
    """The models per batch of a learner without steps; those on the host are trained one by one."""
    return 1 if isinstance(learner, EstimatorLearner) else stated or WHOLE_FITS_PER_BATCH


def _train(
    chunk_of: ChunkOf,
    host_pool: HostPool,
    learner: Learner,
    parts: list[PlannedChunk],
    size: int,
    execution: Execution,
    results: Results,
) -> None:
    advance = _counting(execution.progress, sum(part.work for part in parts))
    advance(0)
    missing: list[PlannedChunk] = []
    for part in parts:
        if results.restore(size, part.rows):
            advance(part.work)
        else:
            missing.append(part)
    if execution.executor is not None:
        distribute(execution.executor, chunk_of, host_pool, learner, missing, size, advance, results)
        return
    pool = place_pool(host_pool)

    def train_one(part: PlannedChunk, stop: Stop) -> Any:
        def step(model_steps: int) -> None:
            stop.check()
            advance(model_steps)

        return train_chunk(learner, chunk_of(part), pool, step)

    def collect(part: PlannedChunk, params: Any) -> None:
        results.add(size, part.rows, params)
        if part.group is None:
            advance(part.work)

    stepped = isinstance(learner, SteppedLearner)
    run_at_once(missing, train_one, collect, concurrent_chunks() if stepped else 1)


def _counting(progress: Progress | None, total: int) -> Advance:
    """What adds up and reports the work that is done in chunks which train at the same time."""
    done, lock = 0, Lock()

    def advance(work: int) -> None:
        nonlocal done
        with lock:
            done += work
            if progress is not None:
                progress(done, total)

    return advance


def fit_many(
    keys: ModelKeys,
    membership: Masks,
    inputs: AnyInputs,
    labels: AnyIntegers,
    learner: Learner,
    *,
    execution: Execution = DEFAULT_EXECUTION,
    summarize: Summarize | None = None,
    members_only: bool = False,
) -> Any:
    """Trains one model for every row (membership mask) of `membership` and returns the results of `summarize`.

    Model `m` is trained on the records where row `m` is true, with the random key `keys[m]`. Its result is a function
    of its key, its row and the pool alone. With the same `execution.models_per_batch` on a CPU it is the same bit for
    bit, whatever the other rows are. It equals training with `learner.fit` up to the rounding of products of other
    shapes. For minibatches see `jaxaudit.learners.learner`.

    Models are trained in chunks of `models_per_batch`, vmapped and jitted, and split over all local devices. A CPU that
    is one device trains as many chunks at the same time as it has cores (at most 8), other devices one. Memory on the
    devices does not depend on the number of models:

        pool + chunks * (models a batch * (2 * training state + batch_size * (record + activations)) + 80 MB indices)

    where the training state is parameters, optimiser and module state (three times the parameters for Adam) and the
    second copy is for gradients. Of texts, the activations are those of a few records, on a CPU of one model
    (`LanguageModelLearner`). `summarize` may need more. Its results for all models are kept on the host.

    With `execution.checkpoints` a stopped call is resumed with its unfinished chunks, and returns the same result, bit
    for bit. Damaged files and chunks of other keys, another membership or another pool are never used, so several calls
    may share a directory. The caller must ensure that `learner` and `summarize` are unchanged.

    Args:
        membership: the membership masks. `AllBut` needs no memory per record.
        learner: a `SteppedLearner`, or any `Learner`, whose `fit` is then vmapped.
        execution: see `Execution`. Progress is in model-steps, or models for a learner without steps. With
            `checkpoints`, `summarize` must return an array or a plain tuple of arrays of plain numbers.
        summarize: a function of the parameters of a finished chunk (leading axis: the chunk's models) and their rows of
            `membership`; it returns arrays with the same leading axis. By default it returns the parameters. Rows that
            pad a chunk occur twice.
        members_only: draw every model's minibatches from its own members: no other record of the pool affects a model.

    Returns:
        `summarize`'s arrays for all models in the order of `membership`, as NumPy arrays with a leading `models` axis
            (random keys, which NumPy cannot hold, as JAX arrays).

    Raises:
        InputError: shapes disagree, there are no models, `models_per_batch` is below 1, the result of `summarize`
            cannot be kept in `checkpoints`, a worker would round differently, or workers end repeatedly.
    """
    membership = _checked(keys, membership, len(inputs), len(labels))
    stated, checkpoints = execution.models_per_batch, execution.checkpoints
    check_ranges("[1, inf)", models_per_batch=stated)
    results = Results(summarize, checkpoints and call_directory(checkpoints, keys, membership, inputs, labels))
    size, pool = results.models_per_batch or stated, (np.asarray(inputs), np.asarray(labels))
    devices, learner = len(jax.local_devices()), with_decided_form(learner)
    groups = []
    if isinstance(learner, SteppedLearner):
        groups = plan_groups(np.asarray(jax.random.key_data(keys)), membership, learner, members_only)
    # Who walks the pool meets every record of it, with weight 0 or not.
    everyone = any(group.pool for group in groups)
    used = slice(None) if everyone or isinstance(membership, AllBut) else membership.any(axis=0)
    with_nan = pool[0].dtype.kind == "f" and np.isnan(pool[0].min(initial=0)) and np.isnan(pool[0][used]).any()
    if with_nan and not getattr(learner, "gaps", ()):
        raise InputError(
            "`inputs` have NaN: clean or drop such records, or give an `EstimatorLearner` whose `gaps` names the "
            "columns with empty cells."
        )
    if isinstance(learner, SteppedLearner):
        if steps_from_host(learner):
            size = 1
        elif size is None:
            size = fitting_models_per_batch(learner, keys, membership, place_pool(pool), groups)
        chunks = [chunk for group in groups for chunk in group.chunks(size, devices)]
        parts = [PlannedChunk(chunk.rows, chunk, learner.epochs * chunk.steps * len(chunk.rows)) for chunk in chunks]
    else:
        size = whole_fits_per_batch(learner, size)
        places = chunk_places(len(membership), size, 1 if isinstance(learner, EstimatorLearner) else devices)
        parts = [PlannedChunk(rows, None, len(np.unique(rows))) for rows in places]

    def chunk_of(part: PlannedChunk) -> Chunk:
        rows = part.rows
        return Chunk(rows, keys_at(keys, rows), membership.take(rows, axis=0), part.group)

    _train(chunk_of, pool, learner, parts, size, execution, results)
    return results.in_order()


def suitable_models_per_batch(
    keys: ModelKeys,
    membership: Masks,
    inputs: AnyInputs,
    labels: AnyIntegers,
    learner: Learner,
) -> int:
    """The models per batch that `fit_many` would choose: a function of shapes, unless memory is short.

    If several calls must give the same numbers, pass the result to all.
    """
    membership = _checked(keys, membership, len(inputs), len(labels))
    if not isinstance(learner, SteppedLearner):
        return whole_fits_per_batch(learner)
    stepped: SteppedLearner = with_decided_form(learner)
    pool = place_pool((np.asarray(inputs), np.asarray(labels)))
    groups = plan_groups(np.asarray(jax.random.key_data(keys)), membership, stepped)
    return fitting_models_per_batch(stepped, keys, membership, pool, groups)


def _checked(keys: Array, membership: Masks, inputs: int, labels: int) -> Masks:
    membership = membership if isinstance(membership, AllBut) else np.asarray(membership)
    expected = (*keys.shape, inputs), inputs
    if (membership.shape, labels) != expected or len(membership.shape) != 2 or not len(membership):
        raise InputError(
            f"`membership` has shape {membership.shape}, but there are keys of shape {keys.shape}, {inputs} inputs and "
            f"{labels} labels: give a row and a key per model (jax.random.split(key, models)), at least one, and a "
            "column per record of the whole pool, not of a split."
        )
    return membership


BATCH = 1024
"""The number of pairs of a model and a record that are evaluated at a time."""


def log_probs_many(learner: Learner, params: Any, inputs: AnyInputs) -> Float[np.ndarray, "models n classes"]:
    """Log-probabilities (nats) of every model for every record, on the host.

    `params` has a leading `models` axis, as `fit_many` passes it to `summarize`. About 1,024 pairs of a model and a
    record are evaluated at a time, which bounds memory.
    """
    if isinstance(learner, EstimatorLearner):
        return np.stack([learner.log_probs(model, inputs) for model in params])
    find_ends = getattr(learner, "record_ends", None)
    ends = None if find_ends is None else find_ends(np.asarray(inputs))
    size = max(1, BATCH // len(jax.tree.leaves(params)[0]))
    if ends is None:
        return _in_batches(learner, params, inputs, min(len(inputs), size))
    parts, order = [], []
    for end in np.unique(ends):
        rows = np.flatnonzero(ends == end)
        # Few sizes, since each is compiled.
        some = min(size, 1 << (len(rows) - 1).bit_length())
        parts.append(_in_batches(learner, params, np.asarray(inputs)[rows, :end], some))
        order.append(rows)
    return np.concatenate(parts, axis=1)[:, np.argsort(np.concatenate(order))]


def _in_batches(learner: Learner, params: Any, inputs: AnyInputs, size: int) -> Float[np.ndarray, "models n classes"]:
    parts = []
    for start in range(0, len(inputs), size):
        batch = jnp.asarray(inputs[start : start + size])
        count = len(batch)
        if count < size:
            # The last batch is padded to the size of the others, so that only one program is compiled.
            batch = jnp.concatenate([batch, jnp.repeat(batch[-1:], size - count, axis=0)])
        parts.append(np.asarray(_log_probs(learner, params, batch))[:, :count])
    return np.concatenate(parts, axis=1)


@compiled()
def _log_probs(learner: Learner, params: Any, inputs: Array) -> Array:
    return jax.vmap(learner.log_probs, in_axes=(0, None))(params, inputs)

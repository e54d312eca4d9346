"""`fit_many`: the one function that trains every model of every audit."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.ensemble.checkpoint import call_directory
from jaxaudit.ensemble.devices import place_pool
from jaxaudit.ensemble.execution import DEFAULT_EXECUTION, Execution
from jaxaudit.ensemble.host_program import steps_from_host
from jaxaudit.ensemble.models_per_batch import BatchChoice, choose_models_per_batch
from jaxaudit.ensemble.plan import plan
from jaxaudit.ensemble.results import Results, Summarize
from jaxaudit.ensemble.train import WHOLE_FITS_PER_BATCH, train_stepped, train_whole
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Learner, SteppedLearner


def fit_many(
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    inputs: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    learner: Learner,
    *,
    execution: Execution = DEFAULT_EXECUTION,
    summarize: Summarize | None = None,
    members_only: bool = False,
) -> Any:
    """Trains a model for every row of `membership` and returns what `summarize` makes of them.

    Model `m` is trained on the records where row `m` is true, with key `keys[m]`. Its result is a function of its
    key, its row and the pool alone: with the same `execution.models_per_batch` on a CPU it has the same bits whatever
    rows stand beside it, and up to the rounding of differently shaped products it is the same as training it by itself
    with `learner.fit`. Rows with the same key take the same minibatches where they leave out at most a tenth of the
    pool, so that they differ by those records alone; see `jaxaudit.learners.batch_order`.

    Models are trained in chunks of `models_per_batch`, the last filled up with copies, vmapped and jitted, split over
    all local devices. A CPU, which is one device, trains as many chunks at the same time as it has cores (at most 8):
    `concurrent_chunks`, 1 elsewhere. Memory on the devices is bounded by them, not by the number of models:

        pool + concurrent_chunks * (
            models_per_batch * (2 * training state + batch_size * (record + activations)) + 80 MB of index tables
        )

    where the training state is parameters, optimiser and module state (three times the parameters for Adam) and the
    second copy holds gradients; `summarize` adds what it needs itself. What it returns is kept on the host for all
    models.

    With `execution.checkpoints`, what `summarize` returns for a finished chunk is also written there, and a later
    call with the same arguments reads it back, bit for bit, instead of training the chunk. The training states of
    chunks under way are kept there as well, for learners that train by steps, every minute or so. So it goes on where
    it was and returns what a call that was never stopped returns. A file is written whole or not at all; one that is
    damaged is ignored. Chunks of other keys, another membership or another pool are never taken, so several calls may
    share a directory; the same `learner` and `summarize` are the caller's word.

    Args:
        keys: one random key a model.
        membership: which records each model is trained on.
        inputs: the pool's records, `labels` their classes.
        learner: a `SteppedLearner`, or any `Learner`, whose `fit` is then vmapped.
        execution: how many models are trained side by side (by default as many as measurement finds fastest), who is
            told of progress, and where finished chunks are kept. Progress is in model-steps, or whole models for a
            learner without steps; chunks read back are done at once. With `checkpoints`, `summarize` must return an
            array or a tuple (a NamedTuple, too) of arrays of plain numbers; where they hold chunks of these models
            already, chunks of that size are trained, whatever `models_per_batch` says.
        summarize: called with the parameters of each finished chunk (leading axis: the chunk's models) and the rows of
            `membership` they belong to, and returning arrays with the same leading axis; by default the parameters
            themselves. Rows that only fill a chunk up occur twice.
        members_only: take every model's minibatches from its own members, whatever its row: then no record of the pool
            that a row does not hold changes anything in its model, not even the order of its minibatches.

    Returns:
        `summarize`'s arrays for all models in the order of `membership`, as NumPy arrays with a leading `models` axis
        (random keys, which NumPy cannot hold, as JAX arrays).

    Raises:
        InputError: where shapes disagree, there are no models, `models_per_batch` is below 1, or `summarize` returns
            what cannot be kept in `checkpoints`.
    """
    membership = np.asarray(membership)
    _check(keys, membership, len(inputs), len(labels))
    asked, checkpoints = execution.models_per_batch, execution.checkpoints
    if asked is not None and asked < 1:
        raise InputError(f"models_per_batch must be at least 1, got {asked}; leave it out to have it measured.")
    results = Results(summarize, checkpoints and call_directory(checkpoints, keys, membership, inputs, labels))
    pool = place_pool(np.asarray(inputs)), place_pool(np.asarray(labels))
    size, progress = results.models_per_batch or asked, execution.progress or _silent
    if isinstance(learner, SteppedLearner):
        groups = plan(np.asarray(jax.random.key_data(keys)), membership, learner, members_only)
        train_stepped(keys, membership, pool, learner, groups, size, progress, results)
    else:
        train_whole(keys, membership, pool, learner, size, progress, results)
    return results.in_order()


def measure_models_per_batch(
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    inputs: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    learner: Learner,
) -> BatchChoice:
    """How many of these models `fit_many` would train side by side, with its measurements.

    Choose once and pass the number on where several calls, or a later repetition, must give the same numbers; see
    `choose_models_per_batch`.
    """
    membership = np.asarray(membership)
    _check(keys, membership, len(inputs), len(labels))
    if not isinstance(learner, SteppedLearner):
        return BatchChoice(WHOLE_FITS_PER_BATCH, {})
    if steps_from_host(learner):
        return BatchChoice(1, {})
    pool = place_pool(np.asarray(inputs)), place_pool(np.asarray(labels))
    return choose_models_per_batch(
        learner, keys, membership, pool, plan(np.asarray(jax.random.key_data(keys)), membership, learner)
    )


def _check(keys: Array, membership: np.ndarray, inputs: int, labels: int) -> None:
    if membership.ndim != 2 or membership.shape[1] != inputs or inputs != labels:
        raise InputError(
            f"membership has shape {membership.shape} but there are {inputs} inputs and {labels} labels: every row is "
            "one training set over all records; was a split passed instead of the whole pool?"
        )
    if len(membership) == 0 or keys.shape != (len(membership),):
        raise InputError(
            f"{len(membership)} models are asked for with keys of shape {keys.shape}: give one key a model "
            "(jax.random.split(key, models)), and at least one model."
        )


def _silent(done: int, total: int) -> None:
    pass

"""`fit_many`: the one function that trains every model of every audit."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.ensemble.checkpoint import call_directory
from jaxaudit.ensemble.devices import place_pool
from jaxaudit.ensemble.host_program import steps_from_host
from jaxaudit.ensemble.plan import plan
from jaxaudit.ensemble.results import Results, Then
from jaxaudit.ensemble.train import WHOLE_FIT_WIDTH, Progress, train_stepped, train_whole
from jaxaudit.ensemble.width import WidthChoice, choose_width
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Learner, SteppedLearner


def fit_many(
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    inputs: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    learner: Learner,
    *,
    width: int | None = None,
    members_only: bool = False,
    then: Then | None = None,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
) -> Any:
    """Trains a model for every row of `membership` and returns what `then` makes of them.

    Model `m` is trained on the records where row `m` is true, with key `keys[m]`. Its result is a function of its
    key, its row and the pool alone: at one `width` on a CPU it has the same bits whatever rows stand beside it, and up
    to the rounding of differently shaped products it is the same as training it by itself with `learner.fit`. Rows
    with the same key walk the same minibatches where they leave out at most a
    tenth of the pool, so that they differ by those records alone; see `jaxaudit.learners.walk`.

    Models are trained in chunks of `width`, the last filled up with copies, vmapped and jitted, split over all local
    devices. A CPU, which is one device, trains as many chunks at the same time as it has cores (at most 8): `streams`,
    1 elsewhere. Memory on the devices is bounded by them, not by the number of models:

        pool + streams * (width * (2 * training state + batch_size * (record + activations)) + 80 MB of index tables)

    where the training state is parameters, optimiser and module state (three times the parameters for Adam) and the
    second copy holds gradients; `then` adds what it needs itself. What it returns is kept on the host for all models.

    With `checkpoints`, what `then` returns for a finished chunk is also written there, and a later call with the same
    arguments reads it back, bit for bit, instead of training the chunk. The training states of chunks under way are
    kept there as well, for learners that train by steps, every minute or so. So it goes on where it was and returns
    what a call that was never stopped returns. A file is written whole or not at all; one that is damaged is
    ignored. Chunks of other keys, another membership or another pool are never taken, so several calls may share a
    directory; the same `learner` and `then` are the caller's word.

    Args:
        keys: one random key a model.
        membership: which records each model is trained on.
        inputs: the pool's records, `labels` their classes.
        learner: a `SteppedLearner`, or any `Learner`, whose `fit` is then vmapped.
        width: models a chunk; by default chosen by measurement (`choose_width`).
        members_only: let every model walk its own members, whatever its row: then no record of the pool that a row
            does not hold changes anything in its model, not even the order of its minibatches.
        then: called with the parameters of each finished chunk (leading axis: the chunk's models) and the rows of
            `membership` they belong to, and returning arrays with the same leading axis; by default the parameters
            themselves. Rows that only fill a chunk up occur twice.
        progress: called as work is done, one call at a time but not always from the calling thread; chunks read
            back are done at once.
        checkpoints: a directory to keep finished chunks in, made where there is none; then `then` must return an
            array or a tuple (a NamedTuple, too) of arrays of plain numbers. Where it holds chunks of these models
            already, their width is used, whatever `width` says.

    Returns:
        `then`'s arrays for all models in the order of `membership`, as NumPy arrays with a leading `models` axis
        (random keys, which NumPy cannot hold, as JAX arrays).

    Raises:
        InputError: where shapes disagree, there are no models, `width` is below 1, or `then` returns what cannot be
            kept in `checkpoints`.
    """
    membership = np.asarray(membership)
    _check(keys, membership, len(inputs), len(labels))
    if width is not None and width < 1:
        raise InputError(f"width must be at least 1 model a chunk, got {width}; leave it out to have it measured.")
    results = Results(then, checkpoints and call_directory(checkpoints, keys, membership, inputs, labels))
    pool = place_pool(np.asarray(inputs)), place_pool(np.asarray(labels))
    how = results.width or width, progress or _silent, results
    if isinstance(learner, SteppedLearner):
        groups = plan(np.asarray(jax.random.key_data(keys)), membership, learner, members_only)
        train_stepped(keys, membership, pool, learner, groups, *how)
    else:
        train_whole(keys, membership, pool, learner, *how)
    return results.in_order()


def measure_width(
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    inputs: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    learner: Learner,
) -> WidthChoice:
    """The width `fit_many` would choose for these models, with its measurements: see `choose_width`.

    Choose once and pass the width on where several calls, or a later repetition, must give the same numbers.
    """
    membership = np.asarray(membership)
    _check(keys, membership, len(inputs), len(labels))
    if not isinstance(learner, SteppedLearner):
        return WidthChoice(WHOLE_FIT_WIDTH, {})
    if steps_from_host(learner):
        return WidthChoice(1, {})
    pool = place_pool(np.asarray(inputs)), place_pool(np.asarray(labels))
    return choose_width(
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

"""`fit_many`, the function that trains all models of all audits; and the outputs of many trained models."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Real

from jaxaudit.ensemble.checkpoint import call_directory
from jaxaudit.ensemble.execution import DEFAULT_EXECUTION, Execution
from jaxaudit.ensemble.forms import with_decided_form
from jaxaudit.ensemble.host_program import steps_from_host
from jaxaudit.ensemble.models_per_batch import BatchChoice, choose_models_per_batch
from jaxaudit.ensemble.plan import plan_groups
from jaxaudit.ensemble.program import place_pool
from jaxaudit.ensemble.results import Results, Summarize
from jaxaudit.ensemble.train import WHOLE_FITS_PER_BATCH, RequestedModels, train_stepped, train_whole
from jaxaudit.ensemble.validation import held_back_rows
from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Learner, SteppedLearner
from jaxaudit.learners.stepped import compiled
from jaxaudit.membership import AllBut, Membership


def fit_many(
    keys: Key[Array, " models"],
    membership: Membership | AllBut,
    inputs: Real[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
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
    shapes. Rows with the same key that leave out at most a tenth of the pool have the same minibatches, so that they
    differ only by the left-out records; see `jaxaudit.learners.batch_order`. A learner that validates (`stop_early`)
    holds back some of each model's records, drawn with its key, and draws minibatches from the rest.

    Models are trained in chunks of `models_per_batch`, vmapped and jitted, and split over all local devices; the last
    chunk is padded with copies. A CPU that is one device trains as many chunks at the same time as it has cores (at
    most 8: `concurrent_chunks`), other devices one. Memory on the devices depends on the chunks, not on the number of
    models:

        pool + concurrent_chunks * (
            models_per_batch * (2 * training state + batch_size * (record + activations)) + 80 MB of index tables
        )

    where the training state is parameters, optimiser and module state (three times the parameters for Adam) and the
    second copy is for gradients. Of texts, the activations are those of a few records, on a CPU of one model
    (`LanguageModelLearner`). `summarize` may need more. Its results for all models are kept on the host.

    With `execution.checkpoints`, what `summarize` returns for a finished chunk is also written there, and a later
    call with the same arguments reads it back, bit for bit, instead of training the chunk. For learners that train by
    steps, training states of unfinished chunks are also kept there, about once a minute. A stopped call is resumed and
    returns the same result as a call that was not stopped. A file is written as a whole or not at all; a damaged file
    is ignored. Chunks of other keys, another membership or another pool are never used, so several calls may share a
    directory. The caller must ensure that `learner` and `summarize` are unchanged.

    With `execution.executor`, workers train the chunks (see `Execution`), with the same results as this process.

    Args:
        keys: one random key per model.
        membership: the membership masks. `AllBut` needs no memory per record.
        inputs, labels: the pool's records and their classes.
        learner: a `SteppedLearner`, or any `Learner`, whose `fit` is then vmapped.
        execution: models per batch (by default the fastest, by measurement), progress, and where finished chunks are
            kept. Progress is in model-steps, or models for a learner without steps; chunks that are read back count
            as done at once. With `checkpoints`, `summarize` must return an array or a tuple (or NamedTuple) of arrays
            of plain numbers; if chunks of these models exist already, their size replaces `models_per_batch`.
        summarize: a function of the parameters of a finished chunk (leading axis: the chunk's models) and their rows of
            `membership`; it returns arrays with the same leading axis. By default it returns the parameters. Rows that
            pad a chunk occur twice.
        members_only: draw every model's minibatches from its own members. Then no other record of the pool affects a
            model, not even through the order of minibatches.

    Returns:
        `summarize`'s arrays for all models in the order of `membership`, as NumPy arrays with a leading `models` axis
        (random keys, which NumPy cannot hold, as JAX arrays).

    Raises:
        InputError: shapes disagree, there are no models, `models_per_batch` is below 1, the result of `summarize`
            cannot be kept in `checkpoints`, a worker would round differently, or workers end repeatedly.
    """
    membership = _checked(keys, membership, len(inputs), len(labels))
    stated, checkpoints = execution.models_per_batch, execution.checkpoints
    if stated is not None and stated < 1:
        raise InputError(f"models_per_batch must be at least 1; got {stated}. Leave it out to have it measured.")
    results = Results(summarize, checkpoints and call_directory(checkpoints, keys, membership, inputs, labels))
    size, pool = results.models_per_batch or stated, (np.asarray(inputs), np.asarray(labels))
    learner = with_decided_form(learner)
    if isinstance(learner, SteppedLearner):
        held = held_back_rows(learner, keys, membership)
        if held is not None:
            membership, members_only = membership[:] & ~held, True
        groups = plan_groups(np.asarray(jax.random.key_data(keys)), membership, learner, members_only)
        train_stepped(RequestedModels(keys, membership, held, pool), learner, groups, size, execution, results)
    else:
        train_whole(RequestedModels(keys, membership, None, pool), learner, size, execution, results)
    return results.in_order()


def measure_models_per_batch(
    keys: Key[Array, " models"],
    membership: Membership | AllBut,
    inputs: Real[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    learner: Learner,
) -> BatchChoice:
    """The models per batch that `fit_many` would choose with these arguments, which are its own, and its measurements.

    If several calls must give the same numbers, measure once and pass the result to all; see `choose_models_per_batch`.
    """
    membership = _checked(keys, membership, len(inputs), len(labels))
    if not isinstance(learner, SteppedLearner):
        return BatchChoice(WHOLE_FITS_PER_BATCH, {})
    stepped: SteppedLearner = with_decided_form(learner)
    if steps_from_host(stepped):
        return BatchChoice(1, {})
    pool = place_pool(np.asarray(inputs)), place_pool(np.asarray(labels))
    return choose_models_per_batch(
        stepped, keys, membership, pool, plan_groups(np.asarray(jax.random.key_data(keys)), membership, stepped)
    )


def _checked(keys: Array, membership: Membership | AllBut, inputs: int, labels: int) -> Membership | AllBut:
    membership = membership if isinstance(membership, AllBut) else np.asarray(membership)
    if len(membership.shape) != 2 or membership.shape[1] != inputs or inputs != labels:
        raise InputError(
            f"membership has shape {membership.shape} but there are {inputs} inputs and {labels} labels: every row is "
            "one training set over all records; was a split passed instead of the whole pool?"
        )
    if len(membership) == 0 or keys.shape != (len(membership),):
        raise InputError(
            f"there are {len(membership)} models and keys of shape {keys.shape}: give one key per model "
            "(jax.random.split(key, models)), and at least one model."
        )
    return membership


BATCH = 1024
"""The number of pairs of a model and a record that are evaluated at a time."""


def log_probs_many(
    learner: Learner, params: Any, inputs: Real[Array | np.ndarray, "n ..."]
) -> Float[np.ndarray, "models n classes"]:
    """Log-probabilities (nats) of every model for every record, on the host.

    Args:
        learner: the learner that trained the models.
        params: the models' parameters, with a leading `models` axis, as `fit_many` passes them to `summarize`.
        inputs: the records. About 1,024 pairs of a model and a record are evaluated at a time, which bounds memory.
            Records of a learner with `record_ends` are evaluated with those that end where they do.
    """
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


def _in_batches(
    learner: Learner, params: Any, inputs: Real[Array | np.ndarray, "n ..."], size: int
) -> Float[np.ndarray, "models n classes"]:
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

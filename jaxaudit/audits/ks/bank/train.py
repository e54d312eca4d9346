"""Trains the models of a bank, many at once; the outputs of each batch of models are written when it is done."""

import errno
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float32, Int, Key, Real

from jaxaudit.audits.open_bank import kinds_of, pool_of
from jaxaudit.data.bank.bank import Bank, finished_in
from jaxaudit.data.bank.description import Description
from jaxaudit.data.bank.outputs import outputs_path
from jaxaudit.data.bank.writing import write_outputs
from jaxaudit.ensemble import Execution, fit_many, log_probs_many
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.randomness import join_keys, keys_at, several, stream

NO_ROOM = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota there is used up",
    errno.EFBIG: "its file is larger than this process or that file system allows (ulimit -f shows the former)",
}
"""Why outputs cannot be written, by error number of the system."""
LIMITS = {errno.EDQUOT, errno.EFBIG}
MOST_BYTES = 1 << 28
"""The most bytes of outputs on the host at a time, unless those of one model need more."""


def train_bank(
    key: Key[Array, ""],
    bank: Bank,
    inputs: Real[np.ndarray, "n ..."],
    learners: Sequence[Learner],
    models: Sequence[int],
    *,
    execution: Execution,
) -> None:
    """Trains models of a bank and writes their outputs, as log-probabilities, into it.

    Guarantee: a model's outputs depend only on the key, its number, its membership mask, its learner and
    `models_per_batch` (on a CPU to the last bit), so training may be stopped and resumed, and the bank enlarged. They
    equal those of `train_shadows` with this key and these sets. Existing outputs are not changed.

    Args:
        key: random key with which the bank was planned.
        bank: a bank of `logits`, with one view of each record; of a learner whose records have no class (its
            `log_probs` have one column) one of `log_likelihood`, larger for records that were used.
        inputs: of all records, dropped ones included, in the order of the bank's columns.
        learners: one for each of the bank's designs.
        models: numbers of the models to train.

    Raises:
        InputError: the bank has other outputs, or another number of records or designs; or outputs cannot be written,
            such as on a full disk.
    """
    description = bank.description
    readable = description.outputs == "logits" or (
        description.outputs == "log_likelihood" and description.direction == "higher"
    )
    if not readable or description.queries != 1:
        raise InputError(
            "models are trained here for banks of logits, or of log-likelihoods that are higher for records that were "
            "used, with one view of each record."
        )
    if len(inputs) != description.records or len(learners) != max(1, len(description.designs)):
        raise InputError(
            f"the bank has {description.records} records and {max(1, len(description.designs))} designs; got "
            f"{len(inputs)} records and {len(learners)} learners."
        )
    chosen = np.asarray(models, int)
    pool, columns = pool_of(bank)
    columns = columns[pool.training_order]
    keys = training_keys(key, bank)
    labels = np.asarray(bank.labels[columns])
    rows_of = [chosen[bank.designs[chosen] == index] for index in range(len(learners))]

    # A worker may have another working directory.
    keep = partial(_keep, bank.directory.absolute(), description, inputs)
    parts = execution.split(*(len(rows) for rows in rows_of)) if len(chosen) else ()
    for learner, rows, part in zip(learners, rows_of, parts, strict=False):
        if len(rows):
            fit_many(
                keys_at(keys, rows),
                bank.membership[rows][:, columns],
                inputs[columns],
                labels,
                learner,
                execution=part,
                summarize=partial(keep, learner, rows),
                members_only=True,
            )


def _keep(
    directory: Path,
    description: Description,
    inputs: np.ndarray,
    learner: Learner,
    own_rows: Int[np.ndarray, " own"],
    params: Any,
    rows: Int[np.ndarray, " rows"],
) -> np.ndarray:
    """Writes the missing outputs of a chunk's models; returns their rows."""
    models = len(rows)
    # As many models at a time as memory allows.
    size = models if 4 * models * len(inputs) * description.classes <= MOST_BYTES else 1
    for start in range(0, models, size):
        part = slice(start, start + size)
        some = jax.tree.map(lambda leaf, part=part: leaf[part], params)
        for model, log_probs in zip(own_rows[rows][part].tolist(), log_probs_many(learner, some, inputs), strict=True):
            if not outputs_path(directory, model).exists():
                _write(directory, model, log_probs[:, None].astype(np.float32), description)
    return np.asarray(rows)


def _write(
    directory: Path, model: int, outputs: Float32[np.ndarray, "n views values"], description: Description
) -> None:
    """Writes the outputs of a model."""
    try:
        write_outputs(directory, model, outputs, description)
    except OSError as error:
        missing = description.models - len(finished_in(directory, description.models))
        why = NO_ROOM.get(error.errno or 0, f"it cannot be written ({error.strerror or error})")
        # Under a quota or file size limit, the free space of the disk is irrelevant.
        free = f", and {_size(shutil.disk_usage(directory).free)} are free there" if error.errno not in LIMITS else ""
        raise InputError(
            f"{directory}, model {model} of {description.models}: {why}. The outputs of the {missing} models that are "
            "missing "
            f"need {_size(missing * outputs.nbytes)}, {_size(outputs.nbytes)} each{free}. Once there is room, the same "
            "command goes on: no trained model is lost."
        ) from error


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


def training_keys(key: Key[Array, ""], bank: Bank) -> Key[Array, " models"]:
    """The random key of each model's training: that of the model with the same kind and number in `train_shadows`."""
    kinds = kinds_of(bank)
    counts = Counter(kinds)
    training = stream(key, "train")
    by_kind = join_keys(several(stream(training, kind), count) for kind, count in counts.items())
    indices = {kind: index for index, kind in enumerate(counts)}
    order = np.argsort([indices[kind] for kind in kinds], kind="stable")
    return keys_at(by_kind, np.argsort(order))

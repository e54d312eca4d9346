"""Retraining: models that never saw the records to forget."""

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Int, Key, Real

from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, fit_many
from jaxaudit.ensemble.results import Summarize
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner
from jaxaudit.unlearning.method import cites


@cites("Becker & Liebig 2022")
def retrain(
    keys: Key[Array, " models"],
    forget: Bool[np.ndarray, "models n"],
    inputs: Real[Array | np.ndarray, "n ..."],
    labels: Int[Array | np.ndarray, " n"],
    learner: Learner,
    *,
    execution: Execution = DEFAULT_EXECUTION,
    summarize: Summarize | None = None,
) -> Any:
    """Models trained from scratch on everything but the records to forget (Becker & Liebig 2022, section 2.1).

    A retrained model has the key of its original model, and so the same initial weights. If at most a tenth of the
    records are forgotten, it also has the original's minibatches, without the forgotten records: losses are averaged
    over the rest, and the number of steps is the same. (The authors draw new, full minibatches of the remaining
    records.) Otherwise it has its own minibatches.

    A row that forgets nothing gives the original again, bit for bit if both are rows of one call.

    Args:
        keys: one per model: the key of its original.
        forget: for each model, which records are in its forget set.
        inputs, labels: the whole training set and its classes.
        learner: the learner of the originals: same network, optimiser, epochs, batch size.
        execution, summarize: as for `fit_many`.

    Returns:
        The arrays of `summarize`, by default the parameters, with a leading `models` axis.

    Raises:
        InputError: a row forgets everything, and what `fit_many` raises.
    """
    if forget.all(axis=1).any():
        raise InputError(
            f"row {int(forget.all(axis=1).argmax())} forgets all {forget.shape[1]} records: none remains to train "
            "on. Does it mark the records to keep instead?"
        )
    return fit_many(keys, ~forget, inputs, labels, learner, execution=execution, summarize=summarize)

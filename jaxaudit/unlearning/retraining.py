"""Retraining: what a model would be that never saw the records to forget."""

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, fit_many
from jaxaudit.ensemble.results import Summarize
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner


def retrain(
    keys: Key[Array, " models"],
    forget: Bool[np.ndarray, "models n"],
    inputs: Float[Array | np.ndarray, "n ..."],
    labels: Int[Array | np.ndarray, " n"],
    learner: Learner,
    *,
    execution: Execution = DEFAULT_EXECUTION,
    summarize: Summarize | None = None,
) -> Any:
    """Models trained from scratch on everything but the records to forget (Becker & Liebig 2022, section 2.1).

    A model starts from the very weights that its original started from, which follow from its key. Where at most a
    tenth of the records are forgotten it also takes the original's minibatches, less the forgotten records: what is
    left of a minibatch is averaged, and there are as many steps. (The authors draw new, full minibatches of the
    remaining records.) Otherwise it takes minibatches of its own.

    A row that forgets nothing gives the original again, bit for bit where both are rows of one call.

    Args:
        keys: one a model: the key its original was trained with.
        forget: the records each model must never have seen.
        inputs: the whole training set, `labels` their classes.
        learner: what the originals were trained with: same network, optimiser, epochs, batch size.
        execution: as for `fit_many`, and so is `summarize`.

    Returns:
        What `summarize` makes of the parameters, by default the parameters, with a leading `models` axis.

    Raises:
        InputError: where a row forgets everything, and what `fit_many` raises.
    """
    if forget.all(axis=1).any():
        raise InputError(
            f"row {int(forget.all(axis=1).argmax())} forgets all {forget.shape[1]} records: nothing is left to train "
            "on. Does it name what to keep instead?"
        )
    return fit_many(keys, ~forget, inputs, labels, learner, execution=execution, summarize=summarize)

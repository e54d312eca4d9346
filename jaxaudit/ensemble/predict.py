"""What many trained models say about many records."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxaudit.learners.learner import Learner

BATCH = 1024


def log_probs_many(
    learner: Learner, params: Any, inputs: Float[Array | np.ndarray, "n ..."]
) -> Float[np.ndarray, "models n classes"]:
    """Log-probabilities (nats) of every model for every record, on the host.

    Args:
        learner: the learner the models were trained with.
        params: their parameters, with a leading `models` axis, as `fit_many` passes them to `then`.
        inputs: records; evaluated in batches of 1,024, so device memory does not grow with their number.
    """
    parts = []
    for start in range(0, len(inputs), BATCH):
        batch = jnp.asarray(inputs[start : start + BATCH])
        # The last batch is filled up, so that there is one compilation and not two.
        filled = jnp.concatenate([batch, jnp.repeat(batch[-1:], min(BATCH, len(inputs)) - len(batch), axis=0)])
        parts.append(np.asarray(_log_probs(learner, params, filled))[:, : len(batch)])
    return np.concatenate(parts, axis=1)


@partial(jax.jit, static_argnames="learner")
def _log_probs(learner: Learner, params: Any, inputs: Array) -> Array:
    return jax.vmap(learner.log_probs, in_axes=(0, None))(params, inputs)

"""Outputs of many trained models on many records."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from jaxaudit.learners.learner import Learner
from jaxaudit.learners.stepped import compiled

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
    """
    models = len(jax.tree.leaves(params)[0])
    size = min(len(inputs), max(1, BATCH // models))
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

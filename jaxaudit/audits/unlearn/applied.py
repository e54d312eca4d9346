"""Applies an unlearning method to the trained models of the `unlearn` audit."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.audits.unlearn.evaluate import inputs_of
from jaxaudit.audits.unlearn.refusals import check_like
from jaxaudit.data.examples import Examples
from jaxaudit.ensemble import Execution
from jaxaudit.learners import NetworkLearner, NetworkParams
from jaxaudit.unlearning import Unlearn


def end(part: Execution) -> None:
    """Reports that a part is done, even if nothing had to be trained for it."""
    if part.progress is not None:
        part.progress(1, 1)


def on_host(leaf: Any) -> Any:
    """The array in the host's memory; random keys, which NumPy has no type for, stay as they are."""
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)


def traced(name: str, method: Unlearn, learner: NetworkLearner, train: Examples) -> Any:
    """`(key, model, forget) -> model`, jitted: the method, traced once so that it fails before anything is trained."""
    records = jnp.asarray(inputs_of(train)), jnp.asarray(train.labels)

    def one(key: Any, model: NetworkParams, row: Any) -> NetworkParams:
        def log_probs(params: Any, inputs: Any) -> Any:
            return learner.log_probs(NetworkParams(params, model.state), inputs)

        new = method(key, log_probs, model.params, *records, row)
        check_like(name, model.params, new)
        return NetworkParams(new, model.state)

    ready, key = jax.jit(one), jax.eval_shape(jax.random.key, 1)
    model = jax.eval_shape(lambda key: learner.finish(learner.init(key)), key)
    jax.eval_shape(ready, key, model, jax.ShapeDtypeStruct((len(train),), bool))
    return ready


def unlearned(
    alone: Any,
    keys: Key[Array, "sets seeds"],
    originals: NetworkParams,
    forget: np.ndarray,
    together: bool,
    parts: Sequence[Execution],
) -> NetworkParams:
    """A method's models, made one at a time or all of a set together; `parts` receive the progress of each set."""
    at_once = jax.jit(jax.vmap(alone.__wrapped__, in_axes=(0, 0, None)))

    def of_set(keys: Any, row: Any, part: Execution) -> Any:
        if together:
            found = jax.tree.map(on_host, at_once(keys, originals, row))
            end(part)
            return found
        models = []
        for m, key in enumerate(keys):
            # Copied to the host, so that progress is reported only after the model is computed.
            model = alone(key, jax.tree.map(lambda leaf, m=m: leaf[m], originals), row)
            models.append(jax.tree.map(on_host, model))
            if part.progress is not None:
                part.progress(m + 1, len(keys))
        return jax.tree.map(lambda *leaves: _stacked(leaves), *models)

    rows = [of_set(*each) for each in zip(keys, map(jnp.asarray, forget), parts, strict=True)]
    return jax.tree.map(lambda *leaves: _stacked(leaves), *rows)


def _stacked(leaves: tuple[Any, ...]) -> Any:
    is_key = jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key)
    return jnp.stack(leaves) if is_key else np.stack([np.asarray(leaf) for leaf in leaves])

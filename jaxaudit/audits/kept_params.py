"""Trained parameters as a tuple of plain arrays, which is what `fit_many` keeps on disk, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxaudit.learners import SteppedLearner


def flat_params(params: Any, models: Int[np.ndarray, " models"]) -> tuple[np.ndarray, ...]:
    """All leaves of a chunk's parameters in order, random keys as their words: a `then` of `fit_many`."""
    return tuple(np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for leaf in jax.tree.leaves(params))


def params_of(learner: SteppedLearner, leaves: tuple[np.ndarray, ...]) -> Any:
    """The parameters again, of models that `learner` trained."""

    def made(key: Any) -> Any:
        return learner.finish(learner.init(key))

    like, structure = jax.tree.flatten(jax.eval_shape(made, jax.eval_shape(jax.random.key, 1)))
    return structure.unflatten(
        jax.random.wrap_key_data(jnp.asarray(leaf), impl=jax.random.key_impl(shape)) if _is_key(shape) else leaf
        for leaf, shape in zip(leaves, like, strict=True)
    )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)

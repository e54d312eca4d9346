"""Converts trained parameters of a chunk of models to a tuple of plain arrays, which `fit_many` stores, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxaudit.ensemble.checkpoint import as_plain, is_key
from jaxaudit.learners import SteppedLearner


def flat_params(params: Any, models: Int[np.ndarray, " models"]) -> tuple[np.ndarray, ...]:
    """All leaves of a chunk's parameters in order, random keys as key data: a `summarize` of `fit_many`.

    Types unknown to NumPy (bfloat16) are stored as unsigned integers of the same bytes.
    """
    return tuple(map(as_plain, jax.tree.leaves(params)))


def params_of(learner: SteppedLearner, leaves: tuple[np.ndarray, ...]) -> Any:
    """The parameters of models trained by `learner`, restored from these arrays."""
    kinds: list[Any] = []

    def made(key: Any) -> Any:
        params = learner.finish(learner.init(key))
        # The implementation of a random key is known from the key, not from its shape.
        kinds.extend(jax.random.key_impl(leaf) if is_key(leaf) else None for leaf in jax.tree.leaves(params))
        return params

    like, structure = jax.tree.flatten(jax.eval_shape(made, jax.eval_shape(jax.random.key, 1)))

    def restored(leaf: np.ndarray, shape: Any, kind: Any) -> Any:
        if kind is not None:
            return jax.random.wrap_key_data(jnp.asarray(leaf), impl=kind)
        return leaf.view(shape.dtype)

    return structure.unflatten(restored(*each) for each in zip(leaves, like, kinds, strict=True))

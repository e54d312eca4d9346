"""Converts trained parameters of a chunk of models to a tuple of plain arrays, which `fit_many` stores, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxaudit.learners import SteppedLearner


def flat_params(params: Any, models: Int[np.ndarray, " models"]) -> tuple[np.ndarray, ...]:
    """All leaves of a chunk's parameters in order, random keys as key data: a `summarize` of `fit_many`.

    Types unknown to NumPy (bfloat16) are stored as unsigned integers of the same bytes.
    """
    return tuple(_plain(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for leaf in jax.tree.leaves(params))


def params_of(learner: SteppedLearner, leaves: tuple[np.ndarray, ...]) -> Any:
    """The parameters of models trained by `learner`, restored from these arrays."""
    kinds: list[Any] = []

    def made(key: Any) -> Any:
        params = learner.finish(learner.init(key))
        # The implementation of a random key is known from the key, not from its shape.
        kinds.extend(jax.random.key_impl(leaf) if _is_key(leaf) else None for leaf in jax.tree.leaves(params))
        return params

    like, structure = jax.tree.flatten(jax.eval_shape(made, jax.eval_shape(jax.random.key, 1)))

    def restored(leaf: np.ndarray, shape: Any, kind: Any) -> Any:
        if kind is not None:
            return jax.random.wrap_key_data(jnp.asarray(leaf), impl=kind)
        return leaf.view(shape.dtype) if _is_foreign(shape.dtype) else leaf

    return structure.unflatten(restored(*each) for each in zip(leaves, like, kinds, strict=True))


def _plain(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array.view(f"u{array.dtype.itemsize}") if _is_foreign(array.dtype) else array


def _is_foreign(dtype: Any) -> bool:
    return np.dtype(dtype).kind == "V"


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)

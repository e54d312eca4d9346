"""Modules as compiled pure functions, and their states as plain arrays, for the tests of the networks."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxaudit.models import PureModule, pure_module

KEY = jax.random.key(3)


def images(*shape: int) -> Any:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


@lru_cache
def compiled(factory: Any, input_shape: tuple[int, ...], classes: int = 3) -> PureModule:
    """A module's pure functions, compiled once for all tests."""
    net = pure_module(factory, input_shape, classes)
    return PureModule(jax.jit(net.init), jax.jit(net.apply, static_argnums=3), net.batch_coupled)


def plain(tree: Any) -> Any:
    """A state as nested dicts of NumPy arrays, keys as their words."""
    return jax.tree.map(words, nnx.to_pure_dict(tree))


def words(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)

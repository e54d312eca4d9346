"""Random keys by name: every purpose has its own random key, so that asking for more changes nothing that was there.

A test, a target, a replicate or a method that is added leaves every other number but adjusted p-values as it was, bit
for bit: nobody can shop for a verdict. So chunks are of one size, the last filled up with copies; whether a step may be
empty is decided by a row's own number; and in `ks` every model takes minibatches of its own members. (`attack` draws
its target records together: more of them is another draw.)
"""

import zlib
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

RUN_ONCE = {"xla_backend_optimization_level": 1}
"""Compiler options for drawing initial weights. XLA takes half a second or more per array of random numbers, and half
of that with these options, with the same bits; the speed of such a program does not matter."""


OneKey = Key[Array, ""]
"""A random key."""
ModelKeys = Key[Array, " models"]
"""A random key for each model."""


def stream(key: OneKey, *purpose: str | int) -> OneKey:
    """The random key for a purpose, which is named by words and numbers: `stream(key, "train", "never")`.

    A word folds in its CRC-32, a number itself, so keys are the same in every version and process. Several keys for one
    purpose are `several(stream(...), count)`.

    >>> key = jax.random.key(7)
    >>> bool(stream(key, "train", 1) == stream(stream(key, "train"), 1)), bool(stream(key, "a") == stream(key, "b"))
    (True, False)
    """
    for part in purpose:
        key = jax.random.fold_in(key, zlib.crc32(part.encode()) if isinstance(part, str) else part)
    return key


def several(key: OneKey, count: int) -> Key[Array, " count"]:
    """`jax.random.split(key, count)`, with one compilation for all counts up to the next power of two.

    >>> bool((several(jax.random.key(7), 3) == jax.random.split(jax.random.key(7), 3)).all())
    True
    """
    return keys_at(jax.random.split(key, 1 << max(count - 1, 0).bit_length()), slice(count))


def keys_at(keys: ModelKeys, indices: Int[np.ndarray, " places"] | slice) -> Key[Array, " places"]:
    """`keys[indices]`, selected on the host: JAX would compile several programs for each number of indices.

    >>> keys = jax.random.split(jax.random.key(7), 3)
    >>> bool((keys_at(keys, np.array([2, 0])) == keys[np.array([2, 0])]).all())
    True
    """
    return _wrapped(np.asarray(jax.random.key_data(keys))[indices], keys)


def join_keys(parts: Iterable[Key[Array, " _"]]) -> Key[Array, " all"]:
    """The keys of all parts, one after another; on the host, to avoid compilations.

    >>> keys = jax.random.split(jax.random.key(7), 3)
    >>> bool((join_keys([keys[:1], keys[1:]]) == keys).all())
    True
    """
    key_parts = list(parts)
    return _wrapped(np.concatenate([jax.random.key_data(keys) for keys in key_parts]), key_parts[0])


def _wrapped(words: np.ndarray, pattern: ModelKeys) -> Key[Array, " keys"]:
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(pattern))


def generator_of(key: OneKey) -> np.random.Generator:
    """A NumPy generator that is seeded with the key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint64))

"""Random streams by name: every purpose has its own key, so that adding work does not change other numbers.

A key by position (the third of five) changes if something is inserted before it. A key by name does not: adding a test,
a target, a replicate or a method leaves all other draws, seeds and p-values unchanged.
"""

import zlib

import jax
import numpy as np
from jaxtyping import Array, Key


def stream(key: Key[Array, ""], *purpose: str | int) -> Key[Array, ""]:
    """The key of a purpose, named by words and numbers: `stream(key, "train", "never")`.

    A word folds in its CRC-32, a number itself, so the same purpose has the same key in every version and process.
    Several keys for one purpose are `jax.random.split(stream(...), count)`; more keys begin with the same ones.

    >>> key = jax.random.key(7)
    >>> bool(stream(key, "train", 1) == stream(stream(key, "train"), 1)), bool(stream(key, "a") == stream(key, "b"))
    (True, False)
    """
    for part in purpose:
        key = jax.random.fold_in(key, zlib.crc32(part.encode()) if isinstance(part, str) else part)
    return key


def generator_of(key: Key[Array, ""]) -> np.random.Generator:
    """NumPy's generator, seeded by the key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint64))

"""Random streams by name: a purpose has a key of its own, so that asking for more changes nothing that was there.

A key by position (the third of five) becomes another one when something is put before it. A key by name does not: a
test, a target, a replicate or a method that is added leaves all other draws, seeds and p-values as they were.
"""

import zlib

import jax
import numpy as np
from jaxtyping import Array, Key


def stream(key: Key[Array, ""], *purpose: str | int) -> Key[Array, ""]:
    """The key of a purpose, named by words and numbers: `stream(key, "train", "never")`.

    A word folds in its CRC-32, a number itself, so the same purpose has the same key in every version and process.
    Several of one purpose are `jax.random.split(stream(...), count)`, of which a longer draw begins with the same keys.

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

"""The finished chunks of one `fit_many`, kept on the host and, where asked, on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxaudit.ensemble.checkpoint import chunk_path, read_chunk, width_of, write_chunk

Then = Callable[[Any, Int[np.ndarray, " models"]], Any]
"""`then(params, rows)`: what to keep of a chunk's models, which are those of these rows of the membership."""


class Results:
    """What `then` made of the chunks so far, on the host, less the copies that filled chunks up.

    With a directory, every chunk's is kept there as well.
    """

    def __init__(self, then: Then | None, directory: Path | None) -> None:
        self.then, self.directory = then, directory
        self.width = directory and width_of(directory)
        self.chunks: list[tuple[np.ndarray, Any]] = []

    def restore(self, width: int, rows: np.ndarray) -> bool:
        """Takes the chunk with these rows from the directory, if it is there."""
        rows = np.unique(rows)
        tree = self.directory and read_chunk(chunk_path(self.directory, width, rows), rows)
        if tree is None:
            return False
        self.chunks.append((rows, tree))
        return True

    def add(self, width: int, rows: np.ndarray, params: Any) -> None:
        """Takes a chunk that was trained just now."""
        tree = params if self.then is None else self.then(params, rows)
        rows, first = np.unique(rows, return_index=True)
        tree = jax.tree.map(lambda leaf: leaf[first] if _is_key(leaf) else np.asarray(leaf)[first], tree)
        if self.directory is not None:
            write_chunk(chunk_path(self.directory, width, rows), rows, tree)
        self.chunks.append((rows, tree))

    def in_order(self) -> Any:
        """All chunks as one, in the order of the membership's rows."""
        order = np.argsort(np.concatenate([rows for rows, _ in self.chunks]), kind="stable")
        return jax.tree.map(lambda *leaves: _concatenate(leaves)[order], *[tree for _, tree in self.chunks])


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _concatenate(leaves: tuple[Any, ...]) -> Any:
    return jnp.concatenate(leaves) if _is_key(leaves[0]) else np.concatenate(leaves)

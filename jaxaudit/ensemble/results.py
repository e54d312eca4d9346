"""The finished chunks of one `fit_many`, kept on the host and, where asked, on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxaudit.ensemble.checkpoint import chunk_path, is_key, read_chunk, remove_kept, width_of, write_chunk
from jaxaudit.ensemble.training_state import STATE, StateKeeper

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
        path, rows = self._path(width, rows), np.unique(rows)
        tree = path and read_chunk(path, rows)
        if path is None or tree is None:
            return False
        remove_kept(path.with_suffix(STATE))
        self.chunks.append((rows, tree))
        return True

    def under_way(self, width: int, rows: np.ndarray, steps: int, epochs: int) -> StateKeeper:
        """Keeps the training state of the chunk with these rows, of so many steps an epoch, in the directory."""
        path = self._path(width, rows)
        return StateKeeper(path and path.with_suffix(STATE), rows, steps, epochs)

    def add(self, width: int, rows: np.ndarray, params: Any) -> None:
        """Takes a chunk that was trained just now."""
        tree = params if self.then is None else self.then(params, rows)
        path = self._path(width, rows)
        rows, first = np.unique(rows, return_index=True)
        tree = jax.tree.map(lambda leaf: leaf[first] if is_key(leaf) else np.asarray(leaf)[first], tree)
        if path is not None and write_chunk(path, rows, tree):
            remove_kept(path.with_suffix(STATE))
        self.chunks.append((rows, tree))

    def in_order(self) -> Any:
        """All chunks as one, in the order of the membership's rows."""
        order = np.argsort(np.concatenate([rows for rows, _ in self.chunks]), kind="stable")
        return jax.tree.map(lambda *leaves: _concatenate(leaves)[order], *[tree for _, tree in self.chunks])

    def _path(self, width: int, rows: np.ndarray) -> Path | None:
        return self.directory and chunk_path(self.directory, width, np.unique(rows))


def _concatenate(leaves: tuple[Any, ...]) -> Any:
    return jnp.concatenate(leaves) if is_key(leaves[0]) else np.concatenate(leaves)

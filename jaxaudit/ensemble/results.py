"""The finished chunks of one `fit_many`, kept on the host and, with checkpoints, on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxaudit.ensemble.checkpoint import chunk_path, is_key, models_per_batch_of, read_chunk, remove_kept, write_chunk
from jaxaudit.ensemble.training_state import STATE, StateKeeper

Summarize = Callable[[Any, Int[np.ndarray, " models"]], Any]
"""`summarize(params, rows)`: what to keep of a chunk's models, which have these rows of the membership."""


class Results:
    """What `summarize` made of the chunks so far, on the host, less the copies that filled chunks up.

    With a directory, every chunk's is kept there as well.
    """

    def __init__(self, summarize: Summarize | None, directory: Path | None) -> None:
        self.summarize, self.directory = summarize, directory
        self.models_per_batch = directory and models_per_batch_of(directory)
        self.chunks: list[tuple[np.ndarray, Any]] = []

    def restore(self, models_per_batch: int, rows: np.ndarray) -> bool:
        """Takes the chunk with these rows from the directory, if it is there."""
        path, rows = self._path(models_per_batch, rows), np.unique(rows)
        tree = path and read_chunk(path, rows)
        if path is None or tree is None:
            return False
        remove_kept(path.with_suffix(STATE))
        self.chunks.append((rows, tree))
        return True

    def under_way(self, models_per_batch: int, rows: np.ndarray, steps: int, epochs: int) -> StateKeeper:
        """Keeps the training state of the chunk with these rows, of so many steps an epoch, in the directory."""
        path = self._path(models_per_batch, rows)
        return StateKeeper(path and path.with_suffix(STATE), rows, steps, epochs)

    def add(self, models_per_batch: int, rows: np.ndarray, params: Any) -> None:
        """Takes a chunk that was trained just now."""
        tree = params if self.summarize is None else self.summarize(params, rows)
        path = self._path(models_per_batch, rows)
        rows, first = np.unique(rows, return_index=True)
        tree = jax.tree.map(lambda leaf: leaf[first] if is_key(leaf) else np.asarray(leaf)[first], tree)
        if path is not None and write_chunk(path, rows, tree):
            remove_kept(path.with_suffix(STATE))
        self.chunks.append((rows, tree))

    def in_order(self) -> Any:
        """All chunks as one, in the order of the membership's rows."""
        order = np.argsort(np.concatenate([rows for rows, _ in self.chunks]), kind="stable")
        return jax.tree.map(lambda *leaves: _concatenate(leaves)[order], *[tree for _, tree in self.chunks])

    def _path(self, models_per_batch: int, rows: np.ndarray) -> Path | None:
        return self.directory and chunk_path(self.directory, models_per_batch, np.unique(rows))


def _concatenate(leaves: tuple[Any, ...]) -> Any:
    return jnp.concatenate(leaves) if is_key(leaves[0]) else np.concatenate(leaves)

"""The results of the finished chunks of one call of `fit_many`, on the host and, with checkpoints, on disk."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxaudit.ensemble import checkpoint
from jaxaudit.ensemble.training_state import STATE, StateKeeper

Summarize = Callable[[Any, Int[np.ndarray, " models"]], Any]
"""`summarize(params, rows)`: computes the results to keep of a chunk's models, given their row numbers."""


def summarized(
    summarize: Summarize | None, params: Any, rows: Int[np.ndarray, " models"]
) -> tuple[Int[np.ndarray, " rows"], Any]:
    """The row numbers of a chunk and its results, on the host, without the copies that pad the chunk."""
    tree = params if summarize is None else summarize(params, rows)
    rows, first = np.unique(rows, return_index=True)
    return rows, jax.tree.map(lambda leaf: leaf[first] if checkpoint.is_key(leaf) else np.asarray(leaf)[first], tree)


class Results:
    """The results of all chunks that are finished, on the host, without the copies that pad chunks.

    With a directory, they are written there, too.
    """

    def __init__(self, summarize: Summarize | None, directory: Path | None) -> None:
        self.summarize, self.directory = summarize, directory
        if directory is not None:
            checkpoint.drop_drafts(directory)
        self.models_per_batch = directory and checkpoint.models_per_batch_of(directory)
        self.chunks: list[tuple[np.ndarray, Any]] = []

    def restore(self, models_per_batch: int, rows: np.ndarray) -> bool:
        """Reads the chunk with these rows from the directory; returns whether it was there."""
        path, rows = self._path(models_per_batch, rows), np.unique(rows)
        tree = path and checkpoint.read_chunk(path, rows)
        if path is None or tree is None:
            return False
        checkpoint.remove_kept(path.with_suffix(STATE))
        self.chunks.append((rows, tree))
        return True

    def under_way(self, models_per_batch: int, rows: np.ndarray, steps: int, epochs: int) -> StateKeeper:
        """The keeper of the training state of the chunk with these rows, with `steps` steps per epoch."""
        path = self._path(models_per_batch, rows)
        return StateKeeper(path and path.with_suffix(STATE), rows, steps, epochs)

    def add(self, models_per_batch: int, rows: np.ndarray, params: Any) -> None:
        """Adds a chunk that was trained in this process."""
        self.keep(models_per_batch, rows, *summarized(self.summarize, params, rows))

    def keep(self, models_per_batch: int, filled: np.ndarray, rows: np.ndarray, tree: Any) -> None:
        """Adds the result of `summarized` for a chunk; `filled` are its rows with the copies that pad it."""
        path = self._path(models_per_batch, filled)
        if path is not None and checkpoint.write_chunk(path, rows, tree):
            checkpoint.remove_kept(path.with_suffix(STATE))
        self.chunks.append((rows, tree))

    def folder(self) -> Path | None:
        """The directory, created if missing; None without a directory or if it cannot be created."""
        if self.directory is not None:
            with suppress(OSError):
                self.directory.mkdir(parents=True, exist_ok=True)
                return self.directory
        return None

    def in_order(self) -> Any:
        """The results of all models, in the order of the membership's rows."""
        order = np.argsort(np.concatenate([rows for rows, _ in self.chunks]), kind="stable")
        return jax.tree.map(lambda *leaves: _concatenate(leaves)[order], *[tree for _, tree in self.chunks])

    def _path(self, models_per_batch: int, rows: np.ndarray) -> Path | None:
        return self.directory and checkpoint.chunk_path(self.directory, models_per_batch, np.unique(rows))


def _concatenate(leaves: tuple[Any, ...]) -> Any:
    return jnp.concatenate(leaves) if checkpoint.is_key(leaves[0]) else np.concatenate(leaves)

"""Saves the training state of an unfinished chunk, so that a killed process loses minutes and not the whole chunk.

    checkpoints/<digest of a call>/<models a batch>-<digest of a chunk's rows>.state

A chunk has one such file, with its newest state, which is removed when the chunk is finished. Orbax is not used: its
checkpoint is a folder of a dozen files that cannot be replaced atomically, and it does not detect flipped bits.
"""

import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from jaxaudit.ensemble.checkpoint import as_plain, is_key, name_by_index, read_arrays, write_arrays
from jaxaudit.errors import InputError

STATE = ".state"
KEEP_SECONDS = 60.0
"""Seconds of training between two writes, unless the environment variable `JAXAUDIT_KEEP_SECONDS` is set."""
MOST_SECONDS = 240.0
"""The largest number of seconds between two writes, however slow writing is."""
WRITING_SHARE = 0.02
"""Writing may take this share of the time, as long as `MOST_SECONDS` allows."""
WORTH_SECONDS = 5.0
"""After an interrupt, the state is saved only if so many seconds passed since the last write or the chunk's start."""
CHEAP_BYTES = 1 << 28
"""After an interrupt, only states up to this size are saved, so that it does not take long."""


class UnderWay(NamedTuple):
    """A chunk in training. Both fields change in one assignment, because an interrupt may come between two.

    Attributes:
        states: the training states of the chunk's models, a pytree.
        taken: the number of steps taken.
    """

    states: Any
    taken: int


class KeptState(NamedTuple):
    """The saved training state of an unfinished chunk.

    Attributes:
        models: the number of its models.
        epoch: the epoch, from 1, in which training resumes.
        epochs: the number of epochs in total.
    """

    models: int
    epoch: int
    epochs: int


class StateKeeper:
    """Saves and restores the newest training state of one chunk.

    Args:
        path: the file; None saves nothing.
        rows: the chunk's row numbers in the membership, copies included.
        steps: steps per epoch.
        epochs: epochs in total.
    """

    def __init__(self, path: Path | None, rows: Int[np.ndarray, " models"], steps: int, epochs: int) -> None:
        self.path, self.rows, self.steps, self.epochs = path, rows, steps, epochs
        self.wait, self.since = keep_seconds(), time.monotonic()

    def begin(self, states: Any) -> UnderWay:
        """The state in which training starts: the saved state, bit for bit, or else the initial `states`.

        A saved state is used only if it has the rows of this chunk, and the number, types and shapes of the arrays in
        `states`. It is put on the same devices.
        """
        kept = (self.path and read_arrays(self.path)) or {}
        state_leaves, structure = jax.tree.flatten(states)
        ours = {**self._facts(state_leaves, 0), **name_by_index([np.zeros(0)] * len(state_leaves))}
        if kept.keys() != ours.keys() or not all(np.array_equal(kept[name], ours[name]) for name in ("rows", "types")):
            return UnderWay(states, 0)
        leaves = [_like(kept[str(index)], leaf) for index, leaf in enumerate(state_leaves)]
        return UnderWay(structure.unflatten(leaves), int(kept["position"][0]))

    def passing(self, now: UnderWay) -> None:
        """Saves the state if the time between two writes has passed."""
        if self.path is not None and time.monotonic() - self.since >= self.wait:
            self._keep(self.path, now)

    def stopping(self, now: UnderWay) -> None:
        """Saves the state after an interrupt, if enough time has passed and the state is small."""
        size = sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(now.states))
        worth = time.monotonic() - self.since >= min(WORTH_SECONDS, self.wait)
        if self.path is not None and worth and size <= CHEAP_BYTES:
            self._keep(self.path, now)

    def _keep(self, path: Path, now: UnderWay) -> None:
        leaves = jax.tree.leaves(now.states)
        # After an interrupt, a step may have taken over the arrays' memory. Weak types cannot be stored.
        if any(leaf.is_deleted() or getattr(leaf, "weak_type", False) for leaf in leaves):
            return
        jax.block_until_ready(leaves)
        began = time.monotonic()
        write_arrays(path, {**self._facts(leaves, now.taken), **name_by_index([as_plain(leaf) for leaf in leaves])})
        self.since = time.monotonic()
        self.wait = min(max(keep_seconds(), (self.since - began) / WRITING_SHARE), MOST_SECONDS)

    def _facts(self, leaves: list[Any], taken: int) -> dict[str, np.ndarray]:
        position, types = [taken, self.steps, self.epochs], [f"{leaf.dtype}{leaf.shape}" for leaf in leaves]
        return {"rows": self.rows, "position": np.array(position), "types": np.array(types, str)}


def kept_states(checkpoints: Path) -> list[KeptState]:
    """The saved states of all unfinished chunks in `checkpoints`, over all calls; damaged files are left out."""
    states_kept = []
    for path in sorted(checkpoints.glob(f"*/*-*{STATE}")):
        kept = read_arrays(path)
        if kept is not None and kept.keys() >= {"rows", "position"}:
            taken, steps, epochs = kept["position"].tolist()
            states_kept.append(KeptState(len(np.unique(kept["rows"])), min(taken // max(steps, 1) + 1, epochs), epochs))
    return states_kept


def keep_seconds() -> float:
    """The environment variable `JAXAUDIT_KEEP_SECONDS`, or `KEEP_SECONDS` if it is not set.

    Raises:
        InputError: the variable is not a number of seconds.
    """
    text = os.environ.get("JAXAUDIT_KEEP_SECONDS") or str(KEEP_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise InputError(
            "JAXAUDIT_KEEP_SECONDS must be the seconds of training between two writes of its state, such as 60; it is "
            f"{text[:20]!r}."
        )
    return seconds


def _like(host: np.ndarray, leaf: Any) -> Any:
    if is_key(leaf):
        array = jax.random.wrap_key_data(jnp.asarray(host), impl=jax.random.key_impl(leaf))
    else:
        array = host.view(leaf.dtype)
    return jax.device_put(array, leaf.sharding)

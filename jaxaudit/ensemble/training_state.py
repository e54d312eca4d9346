"""The training state of an unfinished chunk, kept on disk so that a kill costs minutes and not the chunk.

    checkpoints/<digest of a call>/<models a batch>-<digest of a chunk's rows>.state

A chunk has one such file, its newest, which goes once the chunk is finished. Not an Orbax checkpoint, which is a folder
of a dozen files that cannot be replaced at once, and gives back other numbers where a bit of it was flipped.
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

from jaxaudit.ensemble.checkpoint import PLAIN, is_key, numbered, read_arrays, write_arrays
from jaxaudit.errors import InputError

STATE = ".state"
KEEP_SECONDS = 60.0
"""Seconds of training between two writes, unless the environment's `JAXAUDIT_KEEP_SECONDS` says otherwise."""
MOST_SECONDS = 240.0
"""No more of them, however slow writing is."""
WRITING_SHARE = 0.02
"""What writing may take of the time, up to there."""
WORTH_SECONDS = 5.0
"""An interrupt that comes sooner after the last write, or the chunk's begin, keeps nothing more."""
CHEAP_BYTES = 1 << 28
"""An interrupt keeps no larger state than this, so that it does not take long."""


class UnderWay(NamedTuple):
    """A chunk in training. One value, because an interrupt may come between any two assignments.

    Attributes:
        states: the training states of its models, a pytree.
        taken: the steps that made them.
    """

    states: Any
    taken: int


class KeptState(NamedTuple):
    """What is kept of a chunk that is not finished.

    Attributes:
        models: how many it has.
        epoch: the epoch, from 1, in which it resumes.
        epochs: of how many.
    """

    models: int
    epoch: int
    epochs: int


class StateKeeper:
    """Keeps one chunk's newest training state, and gives it back.

    Args:
        path: its file; None keeps nothing.
        rows: the chunk's rows of the membership, copies included.
        steps: steps of an epoch.
        epochs: of the training.
    """

    def __init__(self, path: Path | None, rows: Int[np.ndarray, " models"], steps: int, epochs: int) -> None:
        self.path, self.rows, self.steps, self.epochs = path, rows, steps, epochs
        self.wait, self.since = keep_seconds(), time.monotonic()

    def begin(self, states: Any) -> UnderWay:
        """Where training resumes: the kept state, bit for bit, else `states`, those before the first step.

        What was kept is taken only if it fits `states` in the number, types and shapes of arrays, and on their devices.
        """
        kept = (self.path and read_arrays(self.path)) or {}
        like, structure = jax.tree.flatten(states)
        ours = {**self._facts(like, 0), **numbered([np.zeros(0)] * len(like))}
        if kept.keys() != ours.keys() or not all(np.array_equal(kept[name], ours[name]) for name in ("rows", "types")):
            return UnderWay(states, 0)
        leaves = [_like(kept[str(index)], leaf) for index, leaf in enumerate(like)]
        return UnderWay(structure.unflatten(leaves), int(kept["position"][0]))

    def passing(self, now: UnderWay) -> None:
        """Keeps the state if it is time to."""
        if self.path is not None and time.monotonic() - self.since >= self.wait:
            self._keep(self.path, now)

    def stopping(self, now: UnderWay) -> None:
        """Keeps the state, since training ends here, if that is worth it and costs little."""
        size = sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(now.states))
        worth = time.monotonic() - self.since >= min(WORTH_SECONDS, self.wait)
        if self.path is not None and worth and size <= CHEAP_BYTES:
            self._keep(self.path, now)

    def _keep(self, path: Path, now: UnderWay) -> None:
        leaves = jax.tree.leaves(now.states)
        # An interrupt may find states handed over to a step. Weakly typed arrays would not come back as such.
        if any(leaf.is_deleted() or getattr(leaf, "weak_type", False) for leaf in leaves):
            return
        jax.block_until_ready(leaves)
        began = time.monotonic()
        write_arrays(path, {**self._facts(leaves, now.taken), **numbered([_plain(leaf) for leaf in leaves])})
        self.since = time.monotonic()
        self.wait = min(max(keep_seconds(), (self.since - began) / WRITING_SHARE), MOST_SECONDS)

    def _facts(self, leaves: list[Any], taken: int) -> dict[str, np.ndarray]:
        position, types = [taken, self.steps, self.epochs], [f"{leaf.dtype}{leaf.shape}" for leaf in leaves]
        return {"rows": self.rows, "position": np.array(position), "types": np.array(types, str)}


def kept_states(checkpoints: Path) -> list[KeptState]:
    """What `checkpoints` holds of chunks that are not finished, over all calls; nothing of damaged files."""
    found = []
    for path in sorted(checkpoints.glob(f"*/*-*{STATE}")):
        kept = read_arrays(path)
        if kept is not None and kept.keys() >= {"rows", "position"}:
            taken, steps, epochs = kept["position"].tolist()
            found.append(KeptState(len(np.unique(kept["rows"])), min(taken // max(steps, 1) + 1, epochs), epochs))
    return found


def keep_seconds() -> float:
    """`KEEP_SECONDS`, or what the environment says.

    Raises:
        InputError: it is not a number of seconds.
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


def _plain(leaf: Any) -> np.ndarray:
    """A leaf as an array that a .npz file gives back; `_like` undoes it."""
    host = np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
    return host if host.dtype.kind in PLAIN else host.view(f"u{host.dtype.itemsize}")


def _like(host: np.ndarray, leaf: Any) -> Any:
    if is_key(leaf):
        array = jax.random.wrap_key_data(jnp.asarray(host), impl=jax.random.key_impl(leaf))
    else:
        array = host.view(leaf.dtype)
    return jax.device_put(array, leaf.sharding)

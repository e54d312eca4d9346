"""Finished chunks of `fit_many` on disk, and the state of unfinished ones, from which a stopped training resumes.

    checkpoints/<digest of a call>/<models a batch>-<digest of a chunk's rows>.npz, or .state while the chunk trains

A call is identified by its keys, membership, pool and devices. Its learner and `summarize` are functions, which have no
digest; the command line keeps the identity of a run beside its chunks (`runs/unfinished.py`). A file starts with a
digest of the rest, so a damaged file is never used. Orbax is not used: its checkpoint is a folder that cannot be
replaced atomically, and it does not detect flipped bits.
"""

import hashlib
import math
import os
import sys
import time
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, Real

from jaxaudit.data.paths import DRAFT, open_regular, whole_file
from jaxaudit.errors import InputError
from jaxaudit.membership import AllBut, Membership

PLAIN = "biufc"
"""The kinds of NumPy dtypes that a .npz file stores without loss."""
DIGEST_BYTES = 16


def call_directory(
    checkpoints: Path, keys: Key[Array, " models"], membership: Membership | AllBut, *pool: Array | np.ndarray
) -> Path:
    """The folder in `checkpoints` for the chunks of one call, on this process's kind and number of devices. `pool`:
    inputs and labels.
    """
    devices, rows = jax.local_devices(), membership.left_out if isinstance(membership, AllBut) else membership
    return checkpoints / digest_of(f"{devices[0].device_kind} {len(devices)}", jax.random.key_data(keys), rows, *pool)


def digest_of(text: str, *arrays: Array | np.ndarray) -> str:
    """A digest of text and arrays (values, types and shapes): 32 hexadecimal digits."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for array in arrays:
        host = np.ascontiguousarray(array)
        digest.update(f"{host.dtype}{host.shape}".encode())
        digest.update(host.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def kept_models_per_batch(
    keys: Key[Array, " models"],
    membership: Membership | AllBut,
    inputs: Real[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    checkpoints: Path,
) -> int | None:
    """The models per batch of the finished chunks that `checkpoints` has of a call of `fit_many` with these arguments.

    None if there are no such chunks.
    """
    return models_per_batch_of(call_directory(checkpoints, keys, membership, inputs, labels))


def models_per_batch_of(directory: Path) -> int | None:
    """The most frequent models per batch of a call's chunks, finished or not; None without chunks."""
    numbers = [path.name.partition("-")[0] for path in directory.glob("*-*")]
    counts = Counter(int(number) for number in numbers if number.isdecimal() and int(number))
    return counts.most_common(1)[0][0] if counts else None


def kept_models(checkpoints: Path) -> int:
    """How many trained models `checkpoints` holds, over all calls; damaged chunks count as empty."""
    return sum(len(_rows(path)) for path in checkpoints.glob("*/*-*.npz"))


def chunk_path(directory: Path, models_per_batch: int, rows: Int[np.ndarray, " rows"]) -> Path:
    return (
        directory
        / f"{models_per_batch}-{hashlib.blake2b(rows.astype('<i8').tobytes(), digest_size=16).hexdigest()}.npz"
    )


def write_chunk(path: Path, rows: Int[np.ndarray, " rows"], tree: Any) -> bool:
    """Writes a chunk's result; returns whether it was written. A result that is not arrays of plain numbers is an
    `InputError`.
    """
    kind, leaves = _taken_apart(tree)
    return write_arrays(path, {"rows": rows, "kind": np.array(kind), **name_by_index(leaves)})


def read_chunk(path: Path, rows: Int[np.ndarray, " rows"]) -> Any | None:
    """The result kept for these rows, bit for bit; None if the file is missing, damaged, or of other rows."""
    kept = read_arrays(path)
    if kept is None or not np.array_equal(kept.pop("rows", np.zeros(0)), rows):
        return None
    try:
        kind, leaves = str(kept.pop("kind")), tuple(kept.values())
        return leaves[0] if kind == "array" else leaves if kind == "tuple" else _named_tuple(kind)._make(leaves)
    except Exception:  # the NamedTuple's class no longer exists
        return None


def name_by_index(leaves: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Names arrays by their index, for `write_arrays`."""
    return {str(index): leaf for index, leaf in enumerate(leaves)}


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> bool:
    """Writes named arrays of plain numbers and text, completely or not at all. Returns False, with a RuntimeWarning, if
    the disk cannot be written, so that training continues.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file is not flushed to the disk; its digest reveals damage by a power failure.
        with whole_file(path, lasting=False) as file:
            file.write(bytes(DIGEST_BYTES))
            np.savez(file, allow_pickle=False, **arrays)
            digest = _digest_of_rest(file)
            file.seek(0)
            file.write(digest)
    except OSError as error:
        warnings.warn(
            f"trained models cannot be kept in {path.parent} ({error.strerror}): training continues, but a run that is "
            "stopped loses them.",
            RuntimeWarning,
            stacklevel=3,
        )
        return False
    return True


def read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Reads what `write_arrays` wrote, in order, bit for bit; None if the file is missing or damaged."""
    try:
        with open_regular(path, links=False) as file:
            if file.read(DIGEST_BYTES) != _digest_of_rest(file):
                return None
            file.seek(DIGEST_BYTES)
            with np.load(file, allow_pickle=False) as archive:
                members = archive.zip.infolist()
                # Members must be uncompressed and must not overlap, so that arrays are no larger than the file.
                if any(m.compress_type for m in members) or sum(m.file_size for m in members) > path.stat().st_size:
                    return None
                return {name: archive[name] for name in archive.files}
    except Exception:  # any error of reading a damaged file: the chunk is trained again
        return None


def _digest_of_rest(file: IO[bytes]) -> bytes:
    file.seek(DIGEST_BYTES)
    return hashlib.file_digest(cast(Any, file), lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).digest()


def remove_kept(path: Path) -> None:
    """Removes a file of `write_arrays`, if it exists; a failure to remove it is ignored."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def drop_drafts(directory: Path) -> None:
    """Removes incomplete files that killed processes left in a call's folder; failures are ignored."""
    with suppress(OSError):
        for draft in directory.glob(f"{DRAFT}*"):
            draft.unlink(missing_ok=True)


def is_key(leaf: Any) -> bool:
    """Whether `leaf` is an array of random keys, which NumPy cannot store."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def as_plain(leaf: Any) -> np.ndarray:
    """A leaf as an array that a .npz file can store: keys as their data, other types as integers of the same bytes."""
    host = np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
    return host if host.dtype.kind in PLAIN else host.view(f"u{host.dtype.itemsize}")


def _rows(path: Path) -> np.ndarray:
    try:
        with open_regular(path, links=False) as file:
            file.seek(DIGEST_BYTES)
            with np.load(file, allow_pickle=False) as archive:
                return archive["rows"]
    except Exception:
        return np.zeros(0, np.int64)


def _taken_apart(tree: Any) -> tuple[str, list[np.ndarray]]:
    kind, leaves = "array", [tree]
    if isinstance(tree, tuple):
        kind, leaves = "tuple", list(tree)
        if type(tree) is not tuple:
            kind = f"{type(tree).__module__}:{type(tree).__qualname__}"
            if _named_tuple(kind) is not type(tree):
                raise InputError(
                    f"`summarize` returned a {type(tree).__name__}, which cannot be imported as {kind}; for "
                    "`checkpoints`, define it at the top of its module, or return a plain tuple."
                )
    for leaf in leaves:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in PLAIN:
            kind_of_leaf = leaf.dtype.name if isinstance(leaf, np.ndarray) else type(leaf).__name__
            raise InputError(
                f"`summarize` returned {kind_of_leaf}, but only arrays of plain numbers can be kept in `checkpoints`; "
                "return an array or a tuple of arrays."
            )
    return kind, leaves


def _named_tuple(kind: str) -> Any:
    """The NamedTuple class of this name among loaded modules, or None; a file never causes an import."""
    module, _, name = kind.partition(":")
    attribute = getattr(sys.modules.get(module), name, None)
    return (
        attribute
        if isinstance(attribute, type) and issubclass(attribute, tuple) and hasattr(attribute, "_fields")
        else None
    )


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
    """A chunk in training: the states of its models, and the steps taken. Both change in one assignment, because an
    interrupt may come between two.
    """

    states: Any
    taken: int


class KeptState(NamedTuple):
    """The saved training state of an unfinished chunk.

    Attributes:
        models: the number of its models.
        epoch: the epoch, from 1, in which training resumes.
        epochs: in total.
    """

    models: int
    epoch: int
    epochs: int


class StateKeeper:
    """Saves and restores the newest training state of one chunk: in `path` (None saves nothing), with the chunk's row
    numbers, copies included. `steps` are per epoch.
    """

    def __init__(self, path: Path | None, rows: Int[np.ndarray, " models"], steps: int, epochs: int) -> None:
        self.path, self.rows, self.steps, self.epochs = path, rows, steps, epochs
        self.wait, self.since = keep_seconds(), time.monotonic()

    def begin(self, states: Any) -> UnderWay:
        """The saved state, bit for bit, on the devices of the initial `states`; else `states`. A saved state is used
        only if it has this chunk's rows, and the number, types and shapes of the arrays in `states`.
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
    """The environment variable `JAXAUDIT_KEEP_SECONDS`, or `KEEP_SECONDS` if it is not set."""
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

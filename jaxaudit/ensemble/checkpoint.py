"""Finished chunks of `fit_many` on disk, from which a stopped training resumes.

    checkpoints/<digest of a call>/<models a batch>-<digest of a chunk's rows>.npz

A call is identified by its keys, its membership, its pool and its devices. Its learner and `summarize` are functions,
which have no digest: a caller that changes them must use another directory. A file consists of a digest and its .npz
archive, so that a damaged file is never used.

A run that was stopped goes on. Chunks do not depend on one another. The training state of those under way is kept every
minute or so (`ensemble/training_state.py`; four minutes at most, where writing is slow), and what is finished is all
the other state there is: `Execution(checkpoints=)` has `fit_many` keep what `summarize` made of each chunk in a file of
its own, named by a digest of keys, membership, pool and rows, and read it back bit for bit. The size of a chunk is part
of that name, and the size of what is kept wins over any other. Learners and `summarize` are functions and have no
digest; so the command line keeps the run's identity beside its chunks (options, content hashes of the data, a hash of
the package's sources, device, cores, libraries), refuses what differs by name, and holds a lock that the kernel lets go
of with the process (`runs/lock.py`). The result is as identical as two uninterrupted runs on that machine are.
"""

import hashlib
import sys
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

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
    """The folder in `checkpoints` for the chunks of one call, on this process's kind and number of devices.

    `pool`: inputs and labels.
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
    """The file of the chunk with these rows in a call's folder."""
    return (
        directory
        / f"{models_per_batch}-{hashlib.blake2b(rows.astype('<i8').tobytes(), digest_size=16).hexdigest()}.npz"
    )


def write_chunk(path: Path, rows: Int[np.ndarray, " rows"], tree: Any) -> bool:
    """Writes a chunk's result; returns whether it was written (see `write_arrays`).

    Raises:
        InputError: the result is not an array or a tuple (or NamedTuple) of arrays of plain numbers.
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
    """Writes named arrays of plain numbers and text, completely or not at all: a draft is written, then moved.

    If the disk cannot be written, issues a RuntimeWarning and returns False, so that training continues.
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
    """The digest of everything after the digest's own bytes."""
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

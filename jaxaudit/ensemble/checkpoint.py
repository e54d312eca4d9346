"""Finished chunks of `fit_many` on disk, from which a stopped training resumes.

    checkpoints/<digest of a call>/<models a batch>-<digest of a chunk's rows>.npz

A call is identified by its keys, membership, pool and devices. Its learner and `summarize` are functions, which have no
digest; the command line keeps the identity of a run beside its chunks (`runs/unfinished.py`). A file starts with a
digest of the rest, so a damaged file is never used. Orbax is not used: its checkpoint is a folder that cannot be
replaced atomically, and it does not detect flipped bits.
"""

import hashlib
import warnings
from collections import Counter
from collections.abc import Sequence
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
    """The most frequent models per batch of a call's chunks; None without chunks."""
    numbers = [path.name.partition("-")[0] for path in directory.glob("*-*")]
    counts = Counter(int(number) for number in numbers if number.isdecimal() and int(number))
    return counts.most_common(1)[0][0] if counts else None


def kept_models(checkpoints: Path) -> int:
    """How many trained models `checkpoints` holds, over all calls; damaged chunks count as empty."""
    return sum(map(_models_of, checkpoints.glob("*/*-*.npz")))


def chunk_path(directory: Path, models_per_batch: int, rows: Int[np.ndarray, " rows"]) -> Path:
    return (
        directory
        / f"{models_per_batch}-{hashlib.blake2b(rows.astype('<i8').tobytes(), digest_size=16).hexdigest()}.npz"
    )


def write_chunk(path: Path, rows: Int[np.ndarray, " rows"], tree: Any) -> None:
    """Writes a chunk's result, completely or not at all; where the disk cannot be written, warns (a RuntimeWarning), so
    that training continues. A result that is not arrays of plain numbers is an `InputError`.
    """
    is_tuple = type(tree) is tuple
    leaves = tree if is_tuple else (tree,)
    _refuse_unkept(leaves)
    arrays = {"rows": rows, "is_tuple": np.array(is_tuple), **{str(at): leaf for at, leaf in enumerate(leaves)}}
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


def read_chunk(path: Path, rows: Int[np.ndarray, " rows"]) -> Any | None:
    """The result kept for these rows, bit for bit; None if the file is missing, damaged, or of other rows."""
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
                rows_kept, is_tuple, *leaves = (archive[name] for name in archive.files)
        if not np.array_equal(rows_kept, rows):
            return None
        return tuple(leaves) if is_tuple else leaves[0]
    except Exception:  # whatever is wrong with a file: the chunk is trained again
        return None


def _digest_of_rest(file: IO[bytes]) -> bytes:
    file.seek(DIGEST_BYTES)
    return hashlib.file_digest(cast(Any, file), lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).digest()


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


def _models_of(path: Path) -> int:
    with suppress(Exception), open_regular(path, links=False) as file:
        file.seek(DIGEST_BYTES)
        with np.load(file, allow_pickle=False) as archive:
            return len(archive["rows"])
    return 0


def _refuse_unkept(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in PLAIN:
            kind_of_leaf = leaf.dtype.name if isinstance(leaf, np.ndarray) else type(leaf).__name__
            raise InputError(
                f"`summarize` returned {kind_of_leaf}, but only arrays of plain numbers can be kept in `checkpoints`; "
                "return an array or a plain tuple of arrays."
            )

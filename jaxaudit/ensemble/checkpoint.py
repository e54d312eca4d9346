"""Finished chunks of `fit_many` on disk, so that a training that was stopped goes on after the last of them.

    checkpoints/<digest of a call>/<width>-<digest of a chunk's rows>.npz

A call is known by its keys, its membership, its pool and the devices it runs on. Its learner and what is made of the
parameters are functions, which have no digest: a caller that changes them takes another directory.
"""

import hashlib
import os
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.errors import InputError

PLAIN = "biufc"
"""The kinds of number that a .npz file gives back as they were."""


def call_directory(
    checkpoints: Path,
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    inputs: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
) -> Path:
    """The folder in `checkpoints` for the chunks of these models, on devices such as this process has."""
    devices = jax.local_devices()
    digest = hashlib.blake2b(f"{devices[0].device_kind} {len(devices)}".encode(), digest_size=16)
    for array in (jax.random.key_data(keys), membership, inputs, labels):
        host = np.ascontiguousarray(array)
        digest.update(f"{host.dtype}{host.shape}".encode())
        digest.update(host.reshape(-1).view(np.uint8).data)
    return checkpoints / digest.hexdigest()


def kept_width(
    keys: Key[Array, " models"],
    membership: Bool[np.ndarray, "models examples"],
    inputs: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    checkpoints: Path,
) -> int | None:
    """The width at which chunks of these models were trained that `checkpoints` holds; None where it holds none."""
    return width_of(call_directory(checkpoints, keys, np.asarray(membership), inputs, labels))


def width_of(directory: Path) -> int | None:
    """The width of a call's chunks, the most frequent should there be several; None without chunks."""
    widths = [path.name.partition("-")[0] for path in directory.glob("*-*.npz")]
    counts = Counter(int(width) for width in widths if width.isdecimal() and int(width))
    return counts.most_common(1)[0][0] if counts else None


def kept_models(checkpoints: Path) -> int:
    """How many trained models `checkpoints` holds, over all calls; of a damaged chunk, none."""
    return sum(len(_rows(path)) for path in checkpoints.glob("*/*-*.npz"))


def chunk_path(directory: Path, width: int, rows: Int[np.ndarray, " rows"]) -> Path:
    """The file of the chunk with these rows in a call's folder."""
    return directory / f"{width}-{hashlib.blake2b(rows.astype('<i8').tobytes(), digest_size=16).hexdigest()}.npz"


def write_chunk(path: Path, rows: Int[np.ndarray, " rows"], tree: Any) -> None:
    """Keeps a chunk's result: whole or not at all, since it is written beside its place and then moved there.

    A disk that cannot be written costs a RuntimeWarning, not the training.

    Raises:
        InputError: where the result is not an array or a tuple (a NamedTuple, too) of arrays of plain numbers.
    """
    kind, leaves = _taken_apart(tree)
    draft: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            arrays = {str(index): leaf for index, leaf in enumerate(leaves)}
            np.savez(file, allow_pickle=False, rows=rows, kind=np.array(kind), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        warnings.warn(
            f"trained models cannot be kept in {path.parent} ({error.strerror}): training goes on, but a run that is "
            "stopped loses them.",
            RuntimeWarning,
            stacklevel=2,
        )
    finally:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)


def read_chunk(path: Path, rows: Int[np.ndarray, " rows"]) -> Any | None:
    """The result kept for these rows, bit for bit; None where there is none, or a damaged or a different one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            # Nothing here is compressed, so what is read is no larger than the file.
            if any(member.compress_type for member in archive.zip.infolist()):
                return None
            if not np.array_equal(archive["rows"], rows):
                return None
            leaves = [archive[str(index)] for index in range(len(archive.files) - 2)]
            tree = _put_together(str(archive["kind"]), leaves)
    except Exception:  # whatever a damaged file makes the reader raise, the answer is the same: train it again
        return None
    return tree if all(leaf.shape[:1] == rows.shape for leaf in leaves) else None


def _rows(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
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
                    f"`then` returned a {type(tree).__name__}, which cannot be found again as {kind}; with "
                    "`checkpoints` define it at the top of its module, or return a plain tuple."
                )
    for leaf in leaves:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in PLAIN:
            what = leaf.dtype.name if isinstance(leaf, np.ndarray) else type(leaf).__name__
            raise InputError(
                f"`then` returned {what} where only an array of plain numbers can be kept in `checkpoints`; return an "
                "array or a tuple of arrays."
            )
    return kind, leaves


def _put_together(kind: str, leaves: list[np.ndarray]) -> Any:
    if kind == "array":
        return leaves[0]
    return tuple(leaves) if kind == "tuple" else _named_tuple(kind)._make(leaves)


def _named_tuple(kind: str) -> Any:
    """The NamedTuple class of this name, looked up among loaded modules: a file never makes anything be imported."""
    module, _, name = kind.partition(":")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields") else None

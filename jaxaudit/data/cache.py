"""Arrays kept on disk: what records teach small models is computed once, and a text scored once by a model.

What is kept is taken for what was computed. So all is kept in a folder in which nobody but this user may write
(`cache_dir`). Only regular files of the expected shapes are read, and none that would unpack to more than it takes.
"""

import hashlib
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from platformdirs import user_cache_dir

from jaxaudit.data.formats.arrays import NpzArrays
from jaxaudit.data.paths import expanded, whole_file

NOWHERE = Path(os.devnull) / "jaxaudit"
"""A folder that cannot be created: nothing is cached there."""


MOST_ROWS = 2_000_000
"""About 100 MB of a model's scores of texts."""
HEADERS = 1 << 12
"""Bytes that the headers of arrays take."""
PAUSE = 60
"""Seconds between two writings of rows, while more are made."""


def cache_dir() -> Path:
    """The folder of `cache_place`, created for this user alone; `NOWHERE` if others may write in it."""
    folder = cache_place()
    with suppress(OSError, ValueError):
        folder.mkdir(0o700, parents=True)
    return folder if is_users_own(folder) else NOWHERE


def is_users_own(folder: Path, closed: int = 0o022) -> bool:
    """Whether a folder is this user's or the system's own, and closed to all others in this: by default for writing."""
    try:
        status = folder.stat()
        closed_to_others = not hasattr(os, "getuid") or (
            status.st_uid in (os.getuid(), 0) and not status.st_mode & closed
        )
        return stat.S_ISDIR(status.st_mode) and closed_to_others
    except (OSError, ValueError):
        return False


def cache_place() -> Path:
    """`$JAXAUDIT_CACHE`, else `jaxaudit` in the platform's cache folder; `NOWHERE` for a user without a home folder."""
    if chosen := os.environ.get("JAXAUDIT_CACHE"):
        return expanded(chosen)
    with suppress(RuntimeError, OSError):
        folder = Path(user_cache_dir("jaxaudit", appauthor=False))
        # If the home folder is unknown, `~` may remain in the path.
        return folder if folder.is_absolute() else NOWHERE
    return NOWHERE


def is_private(folder: Path) -> bool:
    """Whether a folder, created if missing, belongs to this user and is closed to all others; False also for a link."""
    with suppress(OSError):
        folder.mkdir(0o700)
    is_closed = hasattr(os, "getuid") and not folder.is_symlink() and is_users_own(folder, 0o077)
    return is_closed and folder.stat().st_uid == os.getuid()


def cache_path(key: str) -> Path:
    """The file that holds the arrays of `key`: readable start, then 128 bits of the key's BLAKE2b digest."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key).strip("-")[:48]
    return cache_dir() / f"{readable}-{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}.npz"


def cached_arrays(
    key: str, build: Callable[[], Mapping[str, np.ndarray]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The arrays that `build` makes, from disk if an earlier call with the same `key` saved them.

    `key` must change whenever the result of `build` would: include names, versions and a fingerprint of the source.
    `shapes` are those of all arrays, as far as they are known: (100,) is also that of 100 images. A reader never sees a
    partial file; one that is damaged (the archive's CRC covers every array) or of another kind is built again. Nothing
    is deleted or pickled. A cache that cannot be written is a RuntimeWarning.
    """
    path = cache_path(key)
    arrays = _read(path, shapes)
    if arrays is None:
        arrays = dict(build())
        _write(path, arrays)
    return arrays


def cached_rows(
    key: str,
    digests: Sequence[bytes],
    columns: int,
    build: Callable[[Int[np.ndarray, " new"]], Iterable[Mapping[int, Float[np.ndarray, " columns"]]]],
) -> Float[np.ndarray, "rows columns"]:
    """Numbers of records, `columns` of each, by their `digests`; else as `cached_arrays`. The latest `MOST_ROWS` of a
    key are kept, also while `build` goes on.
    """
    path = cache_path(key)
    longest = MOST_ROWS * (max(map(len, digests), default=0) + 8 * columns)
    kept, rows = _read(path, {"digests": (), "values": ()}, longest), dict[bytes, np.ndarray]()
    if kept is not None:
        names, values = kept["digests"], kept["values"]
        # Of another shape is what a damaged file has.
        if names.ndim == 2 and values.shape == (len(names), columns) and values.dtype == np.float64:
            rows = dict(zip(map(bytes, names), values, strict=True))
    new = {digest: index for index, digest in enumerate(digests) if digest not in rows}
    if new:
        digests_of_new = {index: digest for digest, index in new.items()}
        written = time.monotonic()
        try:
            for numbers in build(np.array(list(new.values()), int)):
                rows |= {digests_of_new[index]: row for index, row in numbers.items()}
                if time.monotonic() >= written + PAUSE:
                    _write_rows(path, rows)
                    written = time.monotonic()
        finally:
            _write_rows(path, rows)
    return np.stack([rows[digest] for digest in digests]) if digests else np.zeros((0, columns))


def _write_rows(path: Path, rows: Mapping[bytes, np.ndarray]) -> None:
    """Writes the latest rows, if there are any."""
    latest = list(rows)[-MOST_ROWS:]
    if latest:
        stacked = np.frombuffer(b"".join(latest), np.uint8).reshape(len(latest), -1)
        _write(path, {"digests": stacked, "values": np.stack([rows[digest] for digest in latest])})


def _read(path: Path, shapes: Mapping[str, tuple[int, ...]], most: int = sys.maxsize) -> dict[str, np.ndarray] | None:
    try:
        archive = NpzArrays(path, min(most + HEADERS, path.stat().st_size))
        found_shapes = {name: archive.header(name).shape for name in archive.names}
        if found_shapes.keys() != shapes.keys() or any(
            found_shapes[name][: len(shape)] != shape for name, shape in shapes.items()
        ):
            return None
        return {name: archive.read(name) for name in found_shapes}
    except Exception:  # whatever a damaged file makes the reader raise, the answer is the same: build it anew
        return None


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a file of arrays; warns if it cannot."""
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        with whole_file(path) as file:
            np.savez(file, allow_pickle=False, **arrays)
    except (OSError, ValueError) as error:
        warnings.warn(
            f"what was computed of records could not be cached in {cache_place()} "
            f"({'others may write there, or nobody' if path.parent == NOWHERE else error}); set JAXAUDIT_CACHE to a "
            "folder that only you may write, with free space.",
            RuntimeWarning,
            stacklevel=3,
        )

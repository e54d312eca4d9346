"""Arrays kept on disk: a set of images is decoded once, and a text scored once by a model."""

import hashlib
import math
import os
import re
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from platformdirs import user_cache_dir

from jaxaudit.data.paths import expanded, whole_file

NOWHERE = Path(os.devnull) / "jaxaudit"
"""A folder that cannot be created: nothing is cached there."""


MOST_ROWS = 2_000_000
"""About 100 MB of a model's scores of texts."""
PAUSE = 20
"""Rows are written while more are made; between two writings passes so many times what the first of them took."""


def cache_dir() -> Path:
    """The cache folder: `$JAXAUDIT_CACHE`, else `jaxaudit` in the platform's cache folder.

    If the home folder is unknown, as in a container with a numeric user: a private temporary folder of this user, or
    `NOWHERE` where there can be none.
    """
    if chosen := os.environ.get("JAXAUDIT_CACHE"):
        return expanded(chosen)
    try:
        folder = Path(user_cache_dir("jaxaudit", appauthor=False))
    except (RuntimeError, OSError):
        return _private_folder()
    # If the home folder is unknown, `~` may remain in the path.
    return folder if folder.is_absolute() else _private_folder()


def _private_folder() -> Path:
    try:
        folder = Path(tempfile.gettempdir()) / f"jaxaudit-{os.getuid()}"
    except (OSError, AttributeError):  # no room, or no users with numbers
        return NOWHERE
    return folder if is_private(folder) else NOWHERE


def is_private(folder: Path) -> bool:
    """Whether a folder, created if missing, belongs to this user and is closed to all others; False also for a link."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(0o700)
        status = folder.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    except (OSError, AttributeError):
        return False


def cache_path(key: str) -> Path:
    """The file that holds the arrays of `key`: readable start, then 128 bits of the key's BLAKE2b digest."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key).strip("-")[:48]
    return cache_dir() / f"{readable}-{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}.npz"


def cached_arrays(key: str, build: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays that `build` makes, from disk if an earlier call with the same `key` saved them.

    `key` must change whenever the result of `build` would: include names, versions and a fingerprint of the source. No
    file is ever deleted here; removing the cache folder is safe.

    Guarantees: a reader never sees a partial file; one that is damaged (the archive's CRC covers every array) or of
    another kind is built again; nothing is pickled or unpickled; if the cache cannot be written, a RuntimeWarning says
    so and the result is still returned.
    """
    path = cache_path(key)
    arrays = _read(path)
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
    """Numbers of records, by their digests: what an earlier call with the same `key` made is not made again.

    Args:
        key: as for `cached_arrays`.
        digests: one a record, all of one length. Records of one digest are made once.
        columns: how many numbers a record has.
        build: makes the numbers of the records with these indices, some at a time. They are kept while it goes on, and
            where it ends early: so a call that was stopped or killed is not made again from its beginning.

    The guarantees are those of `cached_arrays`. Up to `MOST_ROWS` rows of a key are kept, the latest.
    """
    path = cache_path(key)
    kept = _read(path) or {}
    names, values = kept.get("digests", np.zeros((0, 0), np.uint8)), kept.get("values", np.zeros((0, columns)))
    # Of another shape is what a damaged file has.
    fits = names.ndim == 2 and values.shape == (len(names), columns) and values.dtype == np.float64
    rows = dict(zip(map(bytes, names), values, strict=True)) if fits else {}
    new = {digest: index for index, digest in enumerate(digests) if digest not in rows}
    if new:
        digests_of_new = {index: digest for digest, index in new.items()}
        unwritten, due = False, time.monotonic()
        try:
            for numbers in build(np.array(list(new.values()), int)):
                rows |= {digests_of_new[index]: row for index, row in numbers.items()}
                unwritten, started = unwritten or bool(numbers), time.monotonic()
                if unwritten and started >= due:
                    could, unwritten = _write_rows(path, rows), False
                    now = time.monotonic()
                    due = now + PAUSE * (now - started) if could else math.inf
        finally:
            if unwritten and due < math.inf:
                _write_rows(path, rows)
    return np.stack([rows[digest] for digest in digests]) if digests else np.zeros((0, columns))


def _write_rows(path: Path, rows: Mapping[bytes, np.ndarray]) -> bool:
    """Writes the latest rows; returns whether it could."""
    latest = list(rows)[-MOST_ROWS:]
    stacked = np.frombuffer(b"".join(latest), np.uint8).reshape(len(latest), -1)
    return _write(path, {"digests": stacked, "values": np.stack([rows[digest] for digest in latest])})


def _read(path: Path) -> dict[str, np.ndarray] | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                return None
            return {name: archive[name] for name in archive.files}
    except Exception:  # whatever a damaged file makes the reader raise, the answer is the same: build it anew
        return None


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> bool:
    """Writes a file of arrays; warns, and returns False, if it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            np.savez(file, allow_pickle=False, **arrays)
    except (OSError, ValueError) as error:
        warnings.warn(
            f"decoded data, or scores of texts, could not be cached in {path.parent} ({error}); set JAXAUDIT_CACHE to "
            "a writable folder with free space.",
            RuntimeWarning,
            stacklevel=3,
        )
        return False
    return True

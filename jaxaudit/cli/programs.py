"""Stores compiled programs on disk, so that a command need not compile what an earlier one did.

JAX stores and reads them. This module decides where, for whom, how many, and whether this machine can read them. JAX's
own limit on size is not used: with it all processes wait for one lock at every read, each write scans every entry, and
an entry without its time stamp ends all writing (jax issue 39880).

Compiled programs are code. The command line keeps them with JAX's own cache, in a folder that nobody else can write,
named by what code is made for: JAX, device, instruction sets, cores. The folder is bounded by us, when a command
begins. Some machines refuse what they compiled themselves, with a line on stderr from C++; a folder is therefore asked
once whether it is read in silence. Importing the package changes no setting of JAX.
"""

import hashlib
import os
import platform
import re
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from jaxaudit.data.cache import cache_dir, is_private
from jaxaudit.data.paths import whole_file

FOLDER = "programs"
MOST_BYTES = 256 << 20
"""The most bytes of programs when a command starts; the least recently used are deleted first."""
SETTINGS = {
    # Most programs compile in less than JAX's default threshold of a second, and there are many.
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
_READS = ".reads"


def keep_programs() -> None:
    """Stores programs that this process compiles in the cache folder, and reads those that earlier processes stored.

    Nothing is done if JAX's settings name another folder (`JAX_COMPILATION_CACHE_DIR`) or want none
    (`JAX_ENABLE_COMPILATION_CACHE=false`). Programs are code, so a folder that others can read or write is not used;
    nor is one that cannot be created. Neither is an error. A damaged program is compiled again. Two processes may use
    the folder at the same time.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    # A partial entry, which another process is writing, is compiled again like any unreadable one.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    before = jax.config.values
    if before["jax_compilation_cache_dir"] or not before["jax_enable_compilation_cache"]:
        return
    folder = cache_dir() / FOLDER / machine()
    with suppress(OSError):
        cache_dir().mkdir(parents=True, exist_ok=True)
    if _others_may_rename(cache_dir()) or not (is_private(folder.parent) and is_private(folder)):
        return
    drop_unused(folder.parent)
    settings = {**SETTINGS, "jax_compilation_cache_dir": str(folder)}
    for name, value in settings.items():
        jax.config.update(name, value)
    if not _reads_in_silence(folder):
        for name in settings:
            jax.config.update(name, before[name])
        compilation_cache.reset_cache()


def _others_may_rename(folder: Path) -> bool:
    """Whether other users may replace a folder in this one. The user's own group does not count as others."""
    with suppress(OSError, AttributeError):
        status = folder.stat()
        foreign_owner = status.st_uid not in (os.getuid(), 0)
        by_group = bool(status.st_mode & 0o020) and status.st_gid != os.getgid()
        return foreign_owner or ((by_group or bool(status.st_mode & 0o002)) and not status.st_mode & stat.S_ISVTX)
    return True


def machine() -> str:
    """Everything that compiled code depends on: versions, device, instruction sets, and number of cores."""
    import jax

    from jaxaudit.ensemble.concurrency import threads

    device = jax.local_devices()[0]
    facts = (version("jax"), version("jaxlib"), device.platform, device.device_kind, _processor_can(), threads())
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", f"jaxlib-{version('jaxlib')}-{device.device_kind}")
    return f"{readable}-{hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()}"


def _processor_can() -> str:
    """The processor's instruction sets, if the system has a file of them; else its name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return f"{platform.machine()} {platform.processor()}"


def drop_unused(folder: Path) -> None:
    """Deletes the least recently read programs of all machines and versions, down to `MOST_BYTES`."""
    programs: list[tuple[float, Path, int]] = []
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process dropped it
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                # File systems may update the time of access only once a day.
                programs.append((max(status.st_atime, status.st_mtime), path, status.st_size))
    left = sum(size for _, _, size in programs)
    for _, path, size in sorted(programs):
        if left <= MOST_BYTES:
            return
        with suppress(OSError):
            path.unlink()
        left -= size


def _reads_in_silence(folder: Path) -> bool:
    """Whether a stored program is read without a message on stderr; tested once for each folder.

    On some processors XLA rejects programs that it compiled there itself, with a line on stderr for each, which no
    Python code can suppress (jax issue 38445).
    """
    import jax
    import numpy as np

    note = folder / _READS
    with suppress(OSError):
        return note.read_bytes() == b"yes"
    try:
        with _stderr() as read_stderr:
            # Two functions with the same program: the first is compiled, the second is read.
            for _ in range(2):
                jax.jit(lambda number: number + 1)(np.float32(1)).block_until_ready()
            silent = not read_stderr()
    except OSError:
        return False
    with suppress(OSError), whole_file(note) as file:
        file.write(b"yes" if silent else b"no")
    return silent


@contextmanager
def _stderr() -> Iterator[Callable[[], bytes]]:
    """Captures what the process writes to its standard error within this context, from any language.

    Raises:
        OSError: there is no standard error, or no room for a file.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        usual = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            yield lambda: os.pread(file.fileno(), 1 << 16, 0)
        finally:
            os.dup2(usual, 2)
            os.close(usual)

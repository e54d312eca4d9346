"""Keeps compiled programs and measurements of this machine, so that a later command need not make them again.

Programs are code: JAX stores and reads them in a folder that nobody else can write, named by what code is made for
(JAX, device, instruction sets, cores). JAX's own limit on size is not used: with it all processes wait for one lock,
and an entry without its time stamp ends all writing (jax issue 39880). Before jaxlib 0.10.2, XLA wrote a line to stderr
for each stored program that it read (jax issue 38445), so these versions store nothing.

Two measurements of forms of convolutions may differ, so the first is stored: the same command gives the same numbers.
"""

import hashlib
import json
import platform
import re
import stat
import warnings
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jaxaudit.data.cache import cache_dir, is_private
from jaxaudit.data.paths import read_small, whole_file
from jaxaudit.runs.unfinished import machine_facts

FOLDER = "programs"
MOST_BYTES = 256 << 20
"""The most bytes of programs when a command starts; the least recently used are deleted first."""
SETTINGS = {
    # Most programs compile in less than JAX's default threshold of a second, and there are many.
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
SILENT = (0, 10, 2)
"""The first version of jaxlib that reads stored programs without a message."""


def keep_programs() -> None:
    """Stores programs that this process compiles in the cache folder, and reads those that earlier processes stored.

    Not if JAX's settings name another folder or want none, if jaxlib is older than `SILENT`, or in a folder that others
    can read or write. A damaged program is compiled again. Two processes may use the folder at the same time.
    """
    import jax
    import jaxlib.version

    # A partial entry, which another process is writing, is compiled again like any unreadable one.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    settings = jax.config.values
    if settings["jax_compilation_cache_dir"] or not settings["jax_enable_compilation_cache"]:
        return
    if jaxlib.version.__version_info__ < SILENT:
        return
    folder = cache_dir() / FOLDER / machine()
    if not (is_private(folder.parent) and is_private(folder)):
        return
    drop_unused(folder.parent)
    for name, value in {**SETTINGS, "jax_compilation_cache_dir": str(folder)}.items():
        jax.config.update(name, value)


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
            elif not stat.S_ISDIR(status.st_mode):  # JAX would wait for a pipe
                path.unlink()
    left = sum(size for _, _, size in programs)
    for _, path, size in sorted(programs):
        if left <= MOST_BYTES:
            return
        with suppress(OSError):
            path.unlink()
        left -= size


def in_known_form(learner: Any) -> Any:
    """The learner with its convolutions in the form that is the fastest on this machine, measured once and cached."""
    from jaxaudit.ensemble.batches import fastest_letters, with_decided_form
    from jaxaudit.ensemble.concurrency import cores
    from jaxaudit.kernels.convolutions import is_form

    def letters_of(convolution: Any) -> str:
        # A limit on the number of cores changes no number, but how many chunks are trained at the same time.
        facts = {**machine_facts(), "cores": len(cores()), "convolution": repr(convolution)}
        name = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
        letters = _read().get(name)
        if not isinstance(letters, str) or not letters or not is_form(letters):
            letters = fastest_letters(convolution)
            with suppress(OSError), whole_file(_path()) as file:
                file.write(json.dumps({**_read(), name: letters}).encode())
        return letters

    return with_decided_form(learner, letters_of)


def _path() -> Path:
    return cache_dir() / "forms.json"


def _read() -> dict[str, Any]:
    try:
        kept_values = json.loads(read_small(_path(), 1 << 20))
    except (ValueError, RecursionError):  # also what cannot be read
        return {}
    return kept_values if isinstance(kept_values, dict) else {}

"""Keeps compiled programs and measurements of this machine, so that a later command need not make them again.

JAX stores and reads the programs. This module decides where, for whom, and how many. JAX's own limit on size is not
used: with it all processes wait for one lock at every read, each write scans every entry, and an entry without its time
stamp ends all writing (jax issue 39880).

Compiled programs are code. The command line keeps them with JAX's own cache, in a folder that nobody else can write,
named by what code is made for: JAX, device, instruction sets, cores. The folder is bounded by us, when a command
begins. Importing the package changes no setting of JAX.

Before jaxlib 0.10.2, XLA took two preferences of some processors for instructions that they lack, and wrote a line to
stderr for each stored program that it read (jax issue 38445). The line comes from C++, and JAX counts the program as
read, so nobody can ask for it; these versions store nothing.

Models per batch and forms of convolutions are measured. Two runs may measure differently, and models trained in batches
of another size differ by the rounding of differently shaped products, which training amplifies. So the first
measurement is stored beside the cached data sets, under a hash of the model and of everything else that affects it, and
written into the result: the same command gives the same numbers. The hash excludes the number of models, which must not
change the measurement. Of the records it includes only shape and number of classes, since nothing else affects the
speed.
"""

import hashlib
import json
import platform
import re
import stat
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jaxaudit.cli.options import json_options
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

    Nothing is done if JAX's settings name another folder (`JAX_COMPILATION_CACHE_DIR`) or want none
    (`JAX_ENABLE_COMPILATION_CACHE=false`), or if jaxlib is older than `SILENT`. Programs are code, so a folder that
    others can read or write is not used; nor is one that cannot be created. Neither is an error. A damaged program is
    compiled again. Two processes may use the folder at the same time.
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


DECIDING = (
    *("command", "model", "hidden", "batch_size", "optimizer", "classes", "models_per_batch", "record"),
    *("momentum", "dropout", "augment", "precision"),
    *("tokens", "source", "lora"),
)
"""The facts that affect the speed, or the memory that a model takes; those that were not given are left out."""


def facts_of(
    command: str, options: Any, sources: Mapping[str, str], record: tuple[int, ...], classes: int
) -> dict[str, Any]:
    """The facts of the work of a command, with your own code of these hashes, on records of this shape."""
    facts = {"source": sources.get("model"), "command": command, "record": list(record), "classes": classes}
    return {**json_options(options), **facts}


def recall_models_per_batch(work: Mapping[str, Any]) -> int | None:
    """The cached number for this work on this machine, if any."""
    number = _read().get(_name(work))
    return number if type(number) is int and number > 0 else None


def remember_models_per_batch(work: Mapping[str, Any], number: int) -> None:
    """Caches a number; a cache that cannot be written is not an error."""
    _write(_name(work), number)


def in_known_form(learner: Any) -> Any:
    """The learner with its convolutions in the form that is the fastest on this machine, measured once and cached."""
    from jaxaudit.ensemble.batches import fastest_letters, with_decided_form
    from jaxaudit.kernels.convolutions import is_form

    def letters_of(convolution: Any) -> str:
        name = _name({"command": "form", "record": [*convolution.inputs], "model": repr(convolution)})
        letters = _read().get(name)
        if not isinstance(letters, str) or not letters or not is_form(letters):
            letters = fastest_letters(convolution)
            _write(name, letters)
        return letters

    return with_decided_form(learner, letters_of)


def _write(name: str, value: Any) -> None:
    kept_values = {**_read(), name: value}
    with suppress(OSError), whole_file(_path()) as file:
        file.write(json.dumps(kept_values).encode())


def _path() -> Path:
    return cache_dir() / "widths.json"


def _read() -> dict[str, Any]:
    try:
        kept_values = json.loads(read_small(_path(), 1 << 20))
    except (ValueError, RecursionError):  # also what cannot be read
        return {}
    return kept_values if isinstance(kept_values, dict) else {}


def _name(work: Mapping[str, Any]) -> str:
    from jaxaudit.ensemble.concurrency import cores

    facts = {name: work[name] for name in DECIDING if work.get(name) not in (None, [], ())}
    # A limit on the number of cores changes no number, but changes how many chunks are trained at the same time.
    machine = {**machine_facts(), "cores": len(cores())}
    text = json.dumps({**facts, "machine": machine}, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

"""Facts about a machine that affect the rounding of a chunk's numbers."""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

SETTINGS = (
    *("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion"),
    *("jax_default_prng_impl", "jax_threefry_partitionable"),
)

Machine = dict[str, Any]
"""Facts by name."""


def this_machine() -> Machine:
    """The facts about this process that affect rounding.

    On a CPU they include the number of threads, which determines how large products are split into partial sums.
    """
    facts = device_facts() | {name: version(name) for name in ("jax", "jaxlib")}
    facts |= {name.removeprefix("jax_"): str(getattr(jax.config, name)) for name in SETTINGS}
    return facts | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}


def device_facts() -> Machine:
    """The kind and number of devices; on a CPU also its name, and the number of threads."""
    devices = jax.local_devices()
    facts: Machine = {"device": f"{devices[0].platform}: {devices[0].device_kind}", "devices": len(devices)}
    return facts | ({"processor": processor(), "threads": threads()} if devices[0].platform == "cpu" else {})


def unlike(there: Machine, here: Machine) -> str:
    """Describes the facts in which another machine differs from this one; empty if there are none."""
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    return "; ".join(f"{name}: {there.get(name) or 'none'} there, {here.get(name) or 'none'} here" for name in names)


def threads() -> int:
    """The number of threads of XLA on a CPU: the variable NPROC if set, else the number of cores."""
    wanted = os.environ.get("NPROC", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else len(cores())


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def processor() -> str | None:
    """The processor's name from /proc/cpuinfo, or None; compiled code depends on the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)

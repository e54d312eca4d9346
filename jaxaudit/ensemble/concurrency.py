"""Trains several chunks at a time, if one cannot use all cores; and what of a machine affects a chunk's rounding.

A chunk a core. XLA runs the small operations of a step on one core of a CPU, so a CPU trains as many chunks at the same
time as it has cores, each handed over by a thread of its own (programs of one thread run one after another). The tables
of the next minibatches are made by another thread meanwhile. A CPU also gives each model its own copy of a shared
minibatch: one product for all models would transpose every model's first kernel in every step.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import jax

MOST_CONCURRENT_CHUNKS = 8


def accelerated() -> bool:
    """Whether this process trains on an accelerator rather than on a CPU."""
    return jax.default_backend() != "cpu"


def concurrent_chunks() -> int:
    """How many chunks to train at the same time.

    XLA runs the small operations of a step on one core of a CPU. So a CPU that is one device trains one chunk per core,
    at most 8. On two cores this is up to three times as fast for the networks of leave-one-out audits, and 25% faster
    for a network of half a million parameters, whose products already use all cores. Other devices train one chunk.
    """
    if jax.default_backend() != "cpu" or len(jax.local_devices()) > 1:
        return 1
    return min(len(cores()), MOST_CONCURRENT_CHUNKS)


class NeighbourFailed(Exception):
    """Ends a thread's work because another one failed."""


class Stop(Event):
    """Tells the other threads, once it is set, that their work is no longer wanted."""

    def check(self) -> None:
        """Raises `NeighbourFailed` once it is set."""
        if self.is_set():
            raise NeighbourFailed


def run_at_once(
    tasks: Sequence[Any], work: Callable[[Any, Stop], Any], collect: Callable[[Any, Any], None], at_once: int
) -> None:
    """Calls `collect(task, work(task, stop))` for every task, with at most `at_once` tasks running.

    `work` runs in threads if tasks overlap; `collect` runs in the calling thread, as tasks finish. A new task starts
    only after a `collect`, so at most `at_once` results exist at a time. The first exception, including an interrupt of
    the calling thread, ends the other tasks at their next `stop.check()` and is raised.
    """
    stop = Stop()
    if min(at_once, len(tasks)) <= 1:
        for task in tasks:
            collect(task, work(task, stop))
        return
    waiting = iter(tasks)
    with ThreadPoolExecutor(at_once) as threads:
        try:
            running = {threads.submit(work, task, stop): task for task in islice(waiting, at_once)}
            while running:
                finished = wait(running, return_when=FIRST_COMPLETED).done
                while finished:
                    future = finished.pop()
                    collect(running.pop(future), future.result())
                    del future
                    running.update({threads.submit(work, task, stop): task for task in islice(waiting, 1)})
        except BaseException:
            stop.set()
            raise


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """Yields `items`, computing each one in another thread while the previous one is in use.

    A CPU runs the programs of one thread one after another. In the same thread, a program that computes the next item
    would wait for the programs that use the previous one.
    """
    end = object()
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(next, items, end)
        while (item := future.result()) is not end:
            future = thread.submit(next, items, end)
            yield item


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


def unlike(other_machine: Machine, machine: Machine) -> str:
    """Describes the facts in which another machine differs from this one; empty if there are none."""
    names = [name for name in {**machine, **other_machine} if machine.get(name) != other_machine.get(name)]
    return "; ".join(
        f"{name}: {other_machine.get(name) or 'none'} there, {machine.get(name) or 'none'} here" for name in names
    )


def threads() -> int:
    """The number of threads of XLA on a CPU: the variable NPROC if set, else the number of cores."""
    stated = os.environ.get("NPROC", "")
    return int(stated) if stated.isdecimal() and int(stated) else len(cores())


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

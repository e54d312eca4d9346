"""Which models train together, how many chunks at a time, and what of a machine affects a chunk's rounding.

XLA runs the small operations of a step on one core of a CPU. So a CPU trains a chunk per core at the same time, each
handed over by its own thread, because programs of one thread run one after another.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import jax
import numpy as np

from jaxaudit.learners.learner import SteppedLearner, takes_pool_order
from jaxaudit.membership import Masks, member_counts
from jaxaudit.metrics.arrays import ModelNumbers


@dataclass(frozen=True)
class ChunkGroup:
    """Models (rows of the membership matrix) that can be trained in the same chunk.

    Attributes:
        rows: those with the most steps first.
        pool: whether these models take minibatches of the whole pool; otherwise each takes its own members.
        shared: whether they also share one key, and so every minibatch: records are then gathered once for all models.
        uneven: whether a row may have a step with only weights of 0, which must change nothing. That needs another
            program, whose sums can round differently; so it is decided by each row's own steps alone.
    """

    rows: ModelNumbers
    pool: bool
    shared: bool
    steps_of_rows: ModelNumbers
    uneven: bool

    @property
    def steps(self) -> int:
        """The largest number of steps per epoch of any row."""
        return int(self.steps_of_rows[0])

    def chunks(self, models_per_batch: int, devices: int = 1) -> "list[ChunkGroup]":
        """The rows in order, in chunks of equal size: see `chunk_places`."""
        return [
            replace(self, rows=self.rows[indices], steps_of_rows=self.steps_of_rows[indices])
            for indices in chunk_places(len(self.rows), models_per_batch, devices)
        ]


def plan_groups(
    key_words: np.ndarray,
    membership: Masks,
    learner: SteppedLearner,
    members_only: bool = False,
) -> list[ChunkGroup]:
    """Groups that cover every row once: pool order without empty steps, pool order with some, and own order.
    `key_words`: the rows' keys as integers. `members_only` gives every row its own order.
    """
    examples, batch = membership.shape[1], learner.batch_size
    members = member_counts(membership)
    pool = takes_pool_order(members, examples, learner.batch_coupled or members_only)
    steps = -(-examples // batch)
    # A row can have an empty step only if its left-out records could fill a whole minibatch.
    gaps = examples - members >= min(examples - (steps - 1) * batch, batch)
    groups = []
    for uneven in (False, True):
        rows = np.flatnonzero(pool & (gaps == uneven))
        if len(rows):
            shared = bool((key_words[rows] == key_words[rows[0]]).all())
            groups.append(ChunkGroup(rows, True, shared, np.full(len(rows), steps), uneven))
    rows = np.flatnonzero(~pool)
    if len(rows):
        steps_of_rows = -(-members[rows] // batch)
        order = np.argsort(-steps_of_rows, kind="stable")
        groups.append(ChunkGroup(rows[order], False, False, steps_of_rows[order], True))
    return groups


def chunk_places(count: int, models_per_batch: int, devices: int = 1) -> list[ModelNumbers]:
    """The indices 0 to count - 1 in chunks of one size, `models_per_batch` rounded to a multiple of `devices`, down if
    possible. The last chunk repeats the last index: another size would round differently.

    >>> [list(map(int, indices)) for indices in chunk_places(5, 3)]
    [[0, 1, 2], [3, 4, 4]]
    """
    size = max(devices, models_per_batch // devices * devices)
    filled = np.minimum(np.arange(-(-count // size) * size), count - 1)
    return list(filled.reshape(-1, size))


MOST_CONCURRENT_CHUNKS = 8


def accelerated() -> bool:
    return jax.default_backend() != "cpu"


def concurrent_chunks() -> int:
    """How many chunks to train at the same time: on a CPU that is one device, one per core, at most 8; elsewhere one.
    On two cores this is up to three times as fast for small networks, and 25% faster for half a million parameters.
    """
    if accelerated() or len(jax.local_devices()) > 1:
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
    """Calls `collect(task, work(task, stop))` in the calling thread for every task, with at most `at_once` tasks
    running in threads, and as many results. The first exception, also an interrupt of the calling thread, ends the
    others at their next `stop.check()` and is raised.
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
    """Yields `items`, computing each one in another thread while the previous one is in use."""
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
    """The facts about this process that affect rounding, among them the threads that split a CPU's large products."""
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
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def processor() -> str | None:
    """The processor's name from /proc/cpuinfo, or None; compiled code depends on the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)

"""Workers that are processes on this machine: each has a GPU, or on a CPU a share of the cores.

They are new (spawned) processes, since a process must not be forked once JAX has started. They end when this process
ends, even if it is killed: their input is a pipe from this process, which is then closed.
"""

import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise, takewhile
from threading import Lock
from typing import Any

import jax

from jaxaudit.ensemble.concurrency import cores, threads
from jaxaudit.ensemble.local_child import read_frame, write_frame
from jaxaudit.ensemble.pull import Pulling, WorkerEnded
from jaxaudit.errors import InputError

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that limits which GPUs CUDA shows to a process. (JAX's own limit has no variable.)"""
KINDS = tuple(map(re.compile, (r"[0-9]+", r"GPU-.+", r"MIG-.+")))
CHILD = "from jaxaudit.ensemble.local_child import answer_calls; answer_calls()"


class LocalWorkers(Pulling):
    """An executor of processes on this machine. Use it as a context manager, or call `close`.

    On a CPU each worker has a share of this process's cores, but as many threads as this process, so that its numbers
    are the same bit for bit. With GPUs each worker has one: the first `count` of `CUDA_VISIBLE_DEVICES`, or of all. JAX
    in this process must then use one GPU, too, without preallocating memory: before its first use, call
    `jax.config.update("jax_cuda_visible_devices", "0")`, with `XLA_PYTHON_CLIENT_PREALLOCATE=false` in the environment.

    Args:
        count: the number of workers.

    Raises:
        InputError: there are fewer than 1 worker, or more than GPUs were named.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise InputError(f"{count} workers train nothing; give at least 1.")
        on_cpu = jax.default_backend() == "cpu"
        chosen = [] if on_cpu else gpus_of(os.environ.get(VISIBLE), count)
        super().__init__(lambda index: _Process(_environment(index, count, on_cpu, chosen)), count)


def cores_of_workers(everything: list[int], count: int) -> list[list[int]]:
    """The cores of each of `count` workers, divided as evenly as possible.

    >>> cores_of_workers([0, 1, 2, 3, 4], 2), cores_of_workers([0, 1], 3)
    ([[0, 1], [2, 3, 4]], [[0], [1], [0]])
    """
    if count > len(everything):
        return [[everything[index % len(everything)]] for index in range(count)]
    ends = [index * len(everything) // count for index in range(count + 1)]
    return [everything[start:end] for start, end in pairwise(ends)]


def gpus_of(visible: str | None, count: int) -> list[str]:
    """The GPU of each worker: the first `count` visible GPUs, in order.

    Args:
        visible: the value of `CUDA_VISIBLE_DEVICES`; None if it is not set, and all GPUs are visible.
        count: the number of workers.

    Raises:
        InputError: fewer GPUs are visible than there are workers.

    >>> gpus_of("3,5", 2), gpus_of(None, 2)
    (['3', '5'], ['0', '1'])
    """
    if visible is None:
        return [str(index) for index in range(count)]
    visible_gpus = seen_by_cuda(visible)
    if len(visible_gpus) < count:
        raise InputError(
            f"{count} workers need a GPU each, and CUDA sees {len(visible_gpus)} of {VISIBLE}={visible}; "
            + (f"start {len(visible_gpus)} workers, or name more." if visible_gpus else "name others, each once.")
        )
    return visible_gpus[:count]


def seen_by_cuda(visible: str) -> list[str]:
    """The devices that CUDA uses for a value of `CUDA_VISIBLE_DEVICES`, assuming that all named devices exist.

    Entries are indices, identifiers of GPUs, or identifiers of GPU partitions (MIG). CUDA ignores everything from the
    first entry that is of another kind than the first, and uses no device if one is named twice.

    >>> seen_by_cuda("2, 0,-1,1"), seen_by_cuda("MIG-a,MIG-b,3"), seen_by_cuda("1,1"), seen_by_cuda("")
    (['2', '0'], ['MIG-a', 'MIG-b'], [], [])
    """
    entries = [entry.strip() for entry in visible.split(",")]
    kind = next((kind for kind in KINDS if kind.fullmatch(entries[0])), None)
    seen = [] if kind is None else list(takewhile(kind.fullmatch, entries))
    seen = [str(int(entry)) if entry.isdecimal() else entry for entry in seen]
    return seen if len(set(seen)) == len(seen) else []


def _environment(worker: int, count: int, on_cpu: bool, gpus: list[str]) -> dict[str, str]:
    # A worker has this process's import path, in the same order.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
    if on_cpu:
        core_list = ",".join(map(str, cores_of_workers(cores(), count)[worker]))
        return environment | {"JAX_PLATFORMS": "cpu", "NPROC": str(threads()), "JAXAUDIT_CORES": core_list}
    return environment | {VISIBLE: gpus[worker], "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class _Process:
    """A process that answers calls through pipes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # In its own process group it does not receive the terminal's Ctrl-C; this process ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
            process_group=0,
        )
        self._lock = Lock()

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        content = pickle.dumps((fn, args, kwargs), protocol=5)
        try:
            write_frame(self._process.stdin, content)
            answer = read_frame(self._process.stdout)
        except (OSError, ValueError):  # of a pipe that broke, or that `kill` closed
            answer = None
        if answer is None:
            raise WorkerEnded(self._end())
        done, value = pickle.loads(answer)
        if done:
            return value
        raise value

    def kill(self) -> None:
        with self._lock:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                # Closing may fail to flush unwritten data, which nobody needs any more.
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()

    def _end(self) -> str:
        """Describes how the process ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        status = self._process.poll()
        if status is None:
            return f"process {self._process.pid} closed its pipe"
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"process {self._process.pid} {how}"

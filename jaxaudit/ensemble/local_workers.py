"""Workers that are processes of this machine: one a device, or on a CPU one a share of the cores.

They are started afresh (spawned), since a process whose JAX has started must not be forked, and end with this process,
however it ends: their input is a pipe that closes with it.
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

from jaxaudit.ensemble.frames import read_frame, write_frame
from jaxaudit.ensemble.machine import cores, threads
from jaxaudit.ensemble.pull import Pulling, WorkerEnded
from jaxaudit.errors import InputError

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable by which CUDA itself limits a process's devices. JAX's own limit is a setting that no variable sets."""
KINDS = tuple(map(re.compile, (r"[0-9]+", r"GPU-.+", r"MIG-.+")))
CHILD = "from jaxaudit.ensemble.local_child import main; main()"


class LocalWorkers(Pulling):
    """An executor of processes of this machine; to be used as a context, or closed.

    On a CPU each has a share of this process's cores and, so that its numbers are this process's bit for bit, as many
    threads. On a GPU each has one device: of those that `CUDA_VISIBLE_DEVICES` names, in their order, else from the
    first. JAX in this process must use one device as well, with memory not taken beforehand: before its first use,
    `jax.config.update("jax_cuda_visible_devices", "0")`, and `XLA_PYTHON_CLIENT_PREALLOCATE=false` in the environment.

    Args:
        count: how many.

    Raises:
        InputError: there are fewer than 1 worker, or more than GPUs were named.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise InputError(f"{count} workers train nothing; give at least 1.")
        on_cpu = jax.default_backend() == "cpu"
        chosen = [] if on_cpu else gpus_of(os.environ.get(VISIBLE), count)
        super().__init__(lambda place: _Process(_environment(place, count, on_cpu, chosen)), count)


def shares(everything: list[int], count: int) -> list[list[int]]:
    """The cores of each of `count` workers, shared as evenly as can be.

    >>> shares([0, 1, 2, 3, 4], 2), shares([0, 1], 3)
    ([[0, 1], [2, 3, 4]], [[0], [1], [0]])
    """
    if count > len(everything):
        return [[everything[place % len(everything)]] for place in range(count)]
    ends = [place * len(everything) // count for place in range(count + 1)]
    return [everything[start:end] for start, end in pairwise(ends)]


def gpus_of(visible: str | None, count: int) -> list[str]:
    """The GPU of each worker: of those that are visible, in their order, else from the first.

    Args:
        visible: the value of `CUDA_VISIBLE_DEVICES`; None where it is not set.
        count: how many workers.

    Raises:
        InputError: fewer are visible than there are workers.

    >>> gpus_of("3,5", 2), gpus_of(None, 2)
    (['3', '5'], ['0', '1'])
    """
    if visible is None:
        return [str(place) for place in range(count)]
    own = seen_by_cuda(visible)
    if len(own) < count:
        raise InputError(
            f"{count} workers need a GPU each, and CUDA sees {len(own)} of {VISIBLE}={visible}; "
            + (f"start {len(own)} workers, or name more." if own else "name others, each once.")
        )
    return own[:count]


def seen_by_cuda(visible: str) -> list[str]:
    """The devices that CUDA sees of a value of `CUDA_VISIBLE_DEVICES`, if the machine has all that it names.

    Entries are indices, or identifiers of GPUs, or identifiers of their parts (MIG). CUDA reads up to the first entry
    that is not of the first one's kind, and sees no device where one is named twice.

    >>> seen_by_cuda("2, 0,-1,1"), seen_by_cuda("MIG-a,MIG-b,3"), seen_by_cuda("1,1"), seen_by_cuda("")
    (['2', '0'], ['MIG-a', 'MIG-b'], [], [])
    """
    entries = [entry.strip() for entry in visible.split(",")]
    kind = next((each for each in KINDS if each.fullmatch(entries[0])), None)
    seen = [] if kind is None else list(takewhile(kind.fullmatch, entries))
    seen = [str(int(entry)) if entry.isdecimal() else entry for entry in seen]
    return seen if len(set(seen)) == len(seen) else []


def _environment(place: int, count: int, on_cpu: bool, gpus: list[str]) -> dict[str, str]:
    # What this process can import, a worker can: the order of folders is kept, and no other is put before them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(each) for each in sys.path)}
    if on_cpu:
        own = ",".join(map(str, shares(cores(), count)[place]))
        return environment | {"JAX_PLATFORMS": "cpu", "NPROC": str(threads()), "JAXAUDIT_CORES": own}
    return environment | {VISIBLE: gpus[place], "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class _Process:
    """A process that answers calls through pipes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # In a group of its own a terminal's Ctrl-C does not reach it: this process ends it.
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
                # What was not written yet has no reader.
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()

    def _end(self) -> str:
        """How it ended, in words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        status = self._process.poll()
        if status is None:
            return f"process {self._process.pid} closed its pipe"
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"process {self._process.pid} {how}"

"""Workers: processes of this machine, each with a GPU or a share of the cores; or actors of a Ray cluster.

Each is a lasting process, so programs are compiled once. Processes are spawned, since a process must not be forked once
JAX has started. They end when this process ends, even if it is killed: their input is a pipe from this process, which
is then closed. Ray is imported only here, when it is used.
"""

import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from jaxaudit.ensemble.concurrency import cores, threads
from jaxaudit.ensemble.local_child import read_frame, write_frame
from jaxaudit.errors import InputError, check_ranges, first_line, imported

STARTS = 3
"""How often in a row a worker may fail, at its start or in its calls, before it is no longer replaced."""
START_SECONDS = 2.0
"""Seconds between two attempts to start a worker."""


class WorkerEnded(RuntimeError):
    """A worker ended before it answered."""


@runtime_checkable
class Worker(Protocol):
    """A process that answers one call at a time."""

    def call(self, work: Callable[[], Any]) -> Any:
        """Returns `work()`, computed in the process; raises `WorkerEnded` if the process ends."""
        ...

    def kill(self) -> None:
        """Ends the process at once; may be called repeatedly and from any thread."""
        ...


_Task = tuple[Future[Any], Callable[[], Any]]
"""A call, and where its answer is awaited."""


class Pulling:
    """An executor with a fixed number of places for workers; a thread per place starts (`start(place)`), calls and
    replaces its worker. A place takes a task only when its worker is ready, so one that waits delays no task.
    """

    def __init__(self, start: Callable[[int], Worker], places: int) -> None:
        self._start, self._lock, self._asked = start, Lock(), SimpleQueue[_Task | None]()
        self._closed, self._left = False, places
        self._error: BaseException | None = RuntimeError("there are no workers")
        self._workers: dict[int, Worker] = {}
        self._answered, self._first = 0, 0.0
        self._threads = [Thread(target=self._serve, args=(place,), daemon=True) for place in range(places)]

    def pace(self) -> str:
        """How many workers are ready, and how many chunks per minute were trained since the first one, in words."""
        ready = len(self._workers)
        ready = f"{ready} of {self._left} workers" if ready < self._left else f"{ready} workers"
        minutes = (time.monotonic() - self._first) / 60
        return ready if self._answered < 2 else f"{ready}, {(self._answered - 1) / minutes:.2g} chunks a minute"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The future result of this call in a worker; a RuntimeError if it is closed, or no worker can be started."""
        future = Future[Any]()
        with self._lock:
            if self._closed or not self._left:
                raise RuntimeError("the workers are closed" if self._closed else str(self._error))
            self._asked.put((future, partial(fn, *args, **kwargs)))
            for thread in self._threads:
                if thread.ident is None:
                    thread.start()
        return future

    def close(self) -> None:
        """Ends all workers at once, even during a task."""
        with self._lock:
            self._closed, workers = True, list(self._workers.values())
        for worker in workers:
            worker.kill()
        begun = [thread for thread in self._threads if thread.ident is not None]
        for _ in begun:
            self._asked.put(None)
        for thread in begun:
            thread.join(timeout=5)
        while not self._asked.empty():
            if (task := self._asked.get()) is not None:
                task[0].cancel()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, place: int) -> None:
        failed, error = 0, None
        while failed < STARTS and not self._closed:
            try:
                worker = self._start(place)
            except Exception as fault:
                failed, error = failed + 1, fault
                time.sleep(START_SECONDS if failed < STARTS else 0)
                continue
            with self._lock:
                self._workers[place] = worker
                closed = self._closed
            try:
                while not closed and (task := self._asked.get()) is not None:
                    failed, error = _answer(worker, task, failed)
                    if error is not None:
                        break
                    with self._lock:
                        self._first = self._first or time.monotonic()
                        self._answered += 1
                else:
                    return
            finally:
                worker.kill()
        if failed >= STARTS:
            self._give_up(error)

    def _give_up(self, error: BaseException | None) -> None:
        """Gives up a place for a worker; if it is the last one, all waiting tasks fail with `error`."""
        with self._lock:
            self._left, self._error = self._left - 1, error
            while not self._left and not self._asked.empty():
                task = self._asked.get()
                if task is not None and task[0].set_running_or_notify_cancel():
                    task[0].set_exception(error)


def _answer(worker: Worker, task: _Task, failed: int) -> tuple[int, BaseException | None]:
    """Runs a task; returns the place's number of failures in a row, and the error that ended the worker, or None."""
    future, work = task
    if not future.set_running_or_notify_cancel():
        return failed, None
    try:
        future.set_result(worker.call(work))
    except BaseException as error:
        # Kill the worker before the error is reported: another one replaces it.
        with suppress(Exception):
            worker.kill()
        future.set_exception(error)
        # A worker that ended may have been ended from outside, which is no failure of its place. Tasks catch their own
        # errors, so an error in an answer is a failure of the worker.
        return (failed if isinstance(error, WorkerEnded) else failed + 1), error
    return 0, None


VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that limits which GPUs CUDA shows to a process. (JAX's own limit has no variable.)"""
CHILD = "from jaxaudit.ensemble.local_child import answer_calls; answer_calls()"


class LocalWorkers(Pulling):
    """An executor of processes on this machine. Use it as a context manager, or call `close`.

    On a CPU each worker has a share of this process's cores, but as many threads as this process, so that its numbers
    are the same bit for bit. With GPUs each worker has one: the first `count` of `CUDA_VISIBLE_DEVICES`, or of all. JAX
    in this process must then use one GPU, too, without preallocating memory: before its first use, call
    `jax.config.update("jax_cuda_visible_devices", "0")`, with `XLA_PYTHON_CLIENT_PREALLOCATE=false` in the environment.

    Raises:
        InputError: there are fewer than 1 worker, or more than GPUs were named.
    """

    def __init__(self, count: int) -> None:
        check_ranges("[1, inf)", count=count)
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
    """The GPU of each worker: the first `count` that the value of `CUDA_VISIBLE_DEVICES` names (None: all). A worker
    whose GPU is not there computes elsewhere, and is refused as another machine.

    >>> gpus_of("2, 0,1", 2), gpus_of(None, 2)
    (['2', '0'], ['0', '1'])
    """
    if visible is None:
        return [str(index) for index in range(count)]
    visible_gpus = list(dict.fromkeys(entry.strip() for entry in visible.split(",") if entry.strip()))
    if len(visible_gpus) < count:
        raise InputError(
            f"{count} workers need a GPU each, and {VISIBLE}={visible} names {len(visible_gpus)}: start as many "
            "workers, or name more."
        )
    return visible_gpus[:count]


def _environment(worker: int, count: int, on_cpu: bool, gpus: list[str]) -> dict[str, str]:
    # A worker has this process's import path, in the same order.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
    if on_cpu:
        core_list = ",".join(map(str, cores_of_workers(cores(), count)[worker]))
        return environment | {"JAX_PLATFORMS": "cpu", "NPROC": str(threads()), "JAXAUDIT_CORES": core_list}
    return environment | {VISIBLE: gpus[worker], "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class _Process:
    """A process that answers calls through pipes."""

    def __init__(self, environment: dict[str, str]) -> None:
        # In its own process group it does not receive the terminal's Ctrl-C; this process ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            process_group=0,
        )
        self._lock = Lock()

    def call(self, work: Callable[[], Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        content = pickle.dumps(work, protocol=5)
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
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        status = self._process.poll()
        if status is None:
            return f"process {self._process.pid} closed its pipe"
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"process {self._process.pid} {how}"


INSTALL = "pip install 'jaxaudit[ray]'"
LOOK_SECONDS = 1.0
"""Seconds between checks whether the executor was closed, while a worker waits for a machine."""


class RayWorkers(Pulling):
    """An executor of actors in a Ray cluster, one per GPU, or per core if this process uses a CPU.

    Use it as a context manager, or call `close`. Security: anyone who can reach Ray's ports can run code on its
    machines, and by default Ray requires no token. A Ray that is started here requires one (unless this process has
    imported Ray before), and ends with this process.

    Args:
        address: the cluster's address, such as `ray://head:10001`. None: the address in RAY_ADDRESS, or the cluster
            that this process is connected to; without either, a Ray is started on this machine.
        count: the number of actors; None: the number of GPUs, or cores, in the cluster.

    Raises:
        InputError: Ray is not installed, there is no cluster at the address, or it has no such device.
    """

    def __init__(self, address: str | None = None, count: int | None = None) -> None:
        ray = _ray()
        self._own = not ray.is_initialized()
        connect(address)
        kind = "CPU" if jax.default_backend() == "cpu" else "GPU"
        available = int(ray.cluster_resources().get(kind, 0))
        if not (count or available):
            self._end(ray)
            raise InputError(f"the Ray cluster has no {kind} now; add nodes, or say how many are to come (`count`).")
        self._ray, self._refs = ray, dict[str, Any]()
        resources = {"num_cpus": 1} if kind == "CPU" else {"num_gpus": 1}
        actor = ray.remote(_Actor).options(**resources, runtime_env={"env_vars": _environment_of_actor(kind)})
        super().__init__(lambda place: _RayWorker(ray, actor, lambda: self._closed), count or available)

    def share(self, arrays: Mapping[str, np.ndarray]) -> Callable[[str], np.ndarray]:
        """Puts the arrays into Ray's object store; arrays of the previous call are dropped."""
        # These references keep the arrays in the store, since a restarted actor loads them again.
        self._refs = {name: self._refs.get(name) or self._ray.put(array) for name, array in arrays.items()}
        return partial(load_stored, self._refs)

    def close(self) -> None:
        """Ends all actors, and Ray itself if it was started here."""
        super().close()
        self._end(self._ray)

    def _end(self, ray: Any) -> None:
        if self._own:
            ray.shutdown()


def load_stored(refs: Mapping[str, Any], name: str) -> np.ndarray:
    """The array of this name in Ray's object store, in memory that all workers of a node share."""
    return _ray().get(refs[name])


class _Actor:
    def call(self, work: Callable[[], Any]) -> Any:
        return work()


class _RayWorker:
    def __init__(self, ray: Any, actor: Any, is_closed: Callable[[], bool]) -> None:
        self._ray, self._actor = ray, actor.remote()
        ready = self._actor.call.remote(socket.gethostname)
        while not ray.wait([ready], timeout=LOOK_SECONDS)[0]:
            if is_closed():
                self.kill()
                raise WorkerEnded("closed before it had a machine")
        self._node = ray.get(ready)

    def call(self, work: Callable[[], Any]) -> Any:
        errors = self._ray.exceptions
        lost = (errors.RayActorError, errors.WorkerCrashedError, errors.ObjectLostError, errors.RaySystemError)
        try:
            return self._ray.get(self._actor.call.remote(work))
        except lost as error:
            raise WorkerEnded(f"an actor on {self._node}: {first_line(error)}") from error

    def kill(self) -> None:
        # If the connection is lost, there is nothing to end.
        with suppress(Exception):
            self._ray.kill(self._actor)


def _environment_of_actor(kind: str) -> dict[str, str]:
    """The environment variables of an actor, set before JAX starts in it."""
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if kind == "CPU":
        # Ray hides all GPUs from an actor without one, which JAX with CUDA would treat as an error.
        variables |= {"JAX_PLATFORMS": "cpu", "NPROC": str(threads())}
    if "XLA_FLAGS" in os.environ:
        variables["XLA_FLAGS"] = os.environ["XLA_FLAGS"]
    return variables


def connect(address: str | None) -> None:
    """Connects this process to a Ray cluster, or starts one here, unless it is already connected; see `RayWorkers`."""
    cluster_address = address or os.environ.get("RAY_ADDRESS")
    if cluster_address is None and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        # Ray listens on the whole network; a token that only this process and its workers know keeps others out.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    ray = _ray()
    if ray.is_initialized():
        return
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": True}
    try:
        if cluster_address is not None:
            ray.init(address=address, **quiet)
        else:
            ray.init(address="local", num_cpus=len(cores()), include_dashboard=False, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        where = cluster_address or "this machine"
        raise InputError(
            f"there is no Ray cluster at {where} ({first_line(error)}); is the address right, is it up, and has "
            "it the same versions of Ray and Python as this process?"
        ) from error


def _ray() -> Any:
    # Ray reports usage statistics to its makers unless this is disabled.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray must not change the visibility of GPUs for workers without a GPU; `_environment_of_actor` handles these.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return imported("ray", "a Ray cluster", INSTALL)

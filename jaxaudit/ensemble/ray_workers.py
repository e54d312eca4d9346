"""Workers in a Ray cluster: one actor per device. Each is a lasting process, so programs are compiled once.

Ray places actors on machines and reports which ended; `Pulling` and `distribute` assign and repeat tasks. Ray is
imported only here, when it is used.
"""

import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaudit.ensemble.concurrency import cores, threads
from jaxaudit.ensemble.local_workers import Pulling, WorkerEnded
from jaxaudit.errors import InputError, first_line, imported

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
        actor = ray.remote(_Actor).options(**resources, runtime_env={"env_vars": _environment(kind)})
        super().__init__(lambda place: _RayWorker(ray, actor, lambda: self._closed), count or available)

    def share(self, arrays: Mapping[str, np.ndarray]) -> "ObjectStore":
        """Puts the arrays into Ray's object store; arrays of the previous call are dropped."""
        # These references keep the arrays in the store, since a restarted actor loads them again.
        self._refs = {name: self._refs.get(name) or self._ray.put(array) for name, array in arrays.items()}
        return ObjectStore(self._refs)

    def close(self) -> None:
        """Ends all actors, and Ray itself if it was started here."""
        super().close()
        self._end(self._ray)

    def _end(self, ray: Any) -> None:
        if self._own:
            ray.shutdown()


class ObjectStore(NamedTuple):
    """Large arrays in Ray's object store, by name."""

    refs: dict[str, Any]

    def load(self, name: str) -> np.ndarray:
        """The array of this name, in memory that all workers of a node share."""
        return _ray().get(self.refs[name])


class _Actor:
    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return fn(*args, **kwargs)


class _RayWorker:
    def __init__(self, ray: Any, actor: Any, is_closed: Callable[[], bool]) -> None:
        self._ray, self._actor = ray, actor.remote()
        ready = self._actor.call.remote(socket.gethostname, (), {})
        while not ray.wait([ready], timeout=LOOK_SECONDS)[0]:
            if is_closed():
                self.kill()
                raise WorkerEnded("closed before it had a machine")
        self._node = ray.get(ready)

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        errors = self._ray.exceptions
        lost = (errors.RayActorError, errors.WorkerCrashedError, errors.ObjectLostError, errors.RaySystemError)
        try:
            return self._ray.get(self._actor.call.remote(fn, args, kwargs))
        except lost as error:
            raise WorkerEnded(f"an actor on {self._node}: {first_line(error)}") from error

    def kill(self) -> None:
        # If the connection is lost, there is nothing to end.
        with suppress(Exception):
            self._ray.kill(self._actor)


def _environment(kind: str) -> dict[str, str]:
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
    # Ray must not change the visibility of GPUs for workers without a GPU; `_environment` handles these.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return imported("ray", "a Ray cluster", INSTALL)

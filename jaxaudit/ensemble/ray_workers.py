"""Workers of a Ray cluster: an actor a device, each a process that stays, so that programs are compiled once.

Ray places them and says which ended; what they do and what is done again is decided here (`pull`, `distribute`). Large
arrays go into Ray's object store once. Ray is imported here alone, and only when it is asked for.
"""

import importlib
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaudit.ensemble.machine import cores, threads
from jaxaudit.ensemble.pull import Pulling, WorkerEnded
from jaxaudit.errors import InputError

INSTALL = "pip install 'jaxaudit[ray]'"
LOOK_SECONDS = 1.0
"""Between two looks at whether the workers were closed, while one waits for a machine."""


class RayWorkers(Pulling):
    """An executor of a Ray cluster's actors, one a GPU, or a core where this process has none; to be used as a context.

    Whoever reaches Ray's ports runs code on its machines, and Ray asks nobody for a token unless it is told to. A Ray
    that is started here is told to (where this process has not imported Ray before), and ends with this process.

    Args:
        address: of a cluster, such as `ray://head:10001`; None: that of RAY_ADDRESS, or the one that this process is
            connected to, else a Ray of this machine is started.
        count: how many actors; None: as many as the cluster has GPUs, or cores.

    Raises:
        InputError: Ray is not installed, there is no cluster at the address, or it has no such device.
    """

    def __init__(self, address: str | None = None, count: int | None = None) -> None:
        ray = _ray()
        self._own = not ray.is_initialized()
        connect(address)
        kind = "CPU" if jax.default_backend() == "cpu" else "GPU"
        there = int(ray.cluster_resources().get(kind, 0))
        if not (count or there):
            self._end(ray)
            raise InputError(f"the Ray cluster has no {kind} now; add nodes, or say how many are to come (`count`).")
        self._ray, self._refs = ray, dict[str, Any]()
        resources = {"num_cpus": 1} if kind == "CPU" else {"num_gpus": 1}
        actor = ray.remote(_Actor).options(**resources, runtime_env={"env_vars": _environment(kind)})
        super().__init__(lambda place: _RayWorker(ray, actor, lambda: self._closed), count or there)

    def share(self, arrays: Mapping[str, np.ndarray]) -> "ObjectStore":
        """The arrays in Ray's object store; those of the call before are dropped."""
        # This process's references keep them there: an actor that is started again asks for them again.
        self._refs = {name: self._refs.get(name) or self._ray.put(array) for name, array in arrays.items()}
        return ObjectStore(self._refs)

    def close(self) -> None:
        """Ends all actors, and a Ray that was started here."""
        super().close()
        self._end(self._ray)

    def _end(self, ray: Any) -> None:
        if self._own:
            ray.shutdown()


class ObjectStore(NamedTuple):
    """Large arrays in Ray's object store, by name."""

    refs: dict[str, Any]

    def load(self, name: str) -> np.ndarray:
        """The array of this name, in memory that a node's workers share."""
        return _ray().get(self.refs[name])


class _Actor:
    """A process of a node."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return fn(*args, **kwargs)


class _RayWorker:
    """An actor, once it is there."""

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
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise WorkerEnded(f"an actor on {self._node}: {first}") from error

    def kill(self) -> None:
        # Without a connection, too, there is nothing left to end.
        with suppress(Exception):
            self._ray.kill(self._actor)


def _environment(kind: str) -> dict[str, str]:
    """What an actor is told before JAX starts in it."""
    told = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if kind == "CPU":
        # An actor without a GPU is told that there is none, which a JAX for GPUs takes for an error.
        told |= {"JAX_PLATFORMS": "cpu", "NPROC": str(threads())}
    if "XLA_FLAGS" in os.environ:
        told["XLA_FLAGS"] = os.environ["XLA_FLAGS"]
    return told


def connect(address: str | None) -> None:
    """Connects this process to a cluster, or starts one here, unless it is connected; see `RayWorkers`.

    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """
    known = address or os.environ.get("RAY_ADDRESS")
    if known is None and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        # Ray listens to the whole network; a word that only this process's own know keeps others out.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    ray = _ray()
    if ray.is_initialized():
        return
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": True}
    try:
        if known is not None:
            ray.init(address=address, **quiet)
        else:
            ray.init(address="local", num_cpus=len(cores()), include_dashboard=False, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        where = known or "this machine"
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(
            f"there is no Ray cluster at {where} ({first}); is the address right, is it up, and has it the same "
            "versions of Ray and Python as this process?"
        ) from error


def _ray() -> Any:
    # Ray reports its use to its makers unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # What Ray does with a GPU's visibility for workers without one is set in their environment here.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise InputError(f"a Ray cluster needs Ray, which is not installed: {INSTALL}.") from error

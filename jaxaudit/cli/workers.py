"""Workers that train (`--workers`): processes of this machine, or of a Ray cluster; without them this process.

Imports nothing heavy.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jaxaudit.cli.groups import Machines
from jaxaudit.cli.parsers import parse_workers
from jaxaudit.cli.progress import say

if TYPE_CHECKING:
    from jaxaudit.ensemble.local_workers import Pulling


def before_jax(machines: Machines | None) -> None:
    """Preparations that must precede JAX's initialisation of devices.

    With workers this process uses one GPU, as each worker does, and does not preallocate memory. A Ray of this machine
    is started by forking, which a process with initialised JAX devices does not survive.
    """
    if machines is None or machines.workers is None:
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    # The first GPU that CUDA sees; workers, and a Ray started by this process, still see all.
    jax.config.update("jax_cuda_visible_devices", "0")
    _, cluster = parse_workers(machines.workers)
    if cluster is not None:
        from jaxaudit.ensemble.ray_workers import connect

        connect(_address(cluster))


@contextmanager
def crew(machines: Machines | None) -> "Iterator[Pulling | None]":
    """The workers within this context, or None if this process trains; their failures are printed on stderr, and all
    end with the context.
    """
    if machines is None or machines.workers is None:
        yield None
        return
    from jaxaudit.ensemble import LocalWorkers, RayWorkers

    count, cluster = parse_workers(machines.workers)
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = lambda message, *_, **__: say(str(message))
        with LocalWorkers(count or 1) if cluster is None else RayWorkers(_address(cluster), count) as workers:
            yield workers


def _address(cluster: str) -> str | None:
    """The address of Ray's client server; None for the cluster of `RAY_ADDRESS`, or a Ray of this machine."""
    return None if cluster == "ray" else cluster

"""Workers that train (`--workers`): processes of this machine, or of a Ray cluster; without them this process.

Imports nothing heavy.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxaudit.cli.groups import Machines
from jaxaudit.cli.parsers import parse_workers
from jaxaudit.cli.progress import say

if TYPE_CHECKING:
    from jaxaudit.ensemble import Execution
    from jaxaudit.ensemble.local_workers import Pulling


class Crew(NamedTuple):
    """The workers that train.

    Attributes:
        executor: hands chunks to workers; None if this process trains.
    """

    executor: "Pulling | None"

    @property
    def workers(self) -> int:
        """The number of workers; 0 if this process trains."""
        return 0 if self.executor is None else self.executor.places

    @property
    def answered(self) -> int:
        """The number of chunks that workers trained."""
        return 0 if self.executor is None else self.executor.answered

    def pace(self) -> str:
        """The speed of the workers, in words."""
        return "" if self.executor is None else self.executor.pace()

    def execution(self, models_per_batch: int | None, progress: Any, checkpoints: Path | None) -> "Execution":
        """An execution by these workers."""
        from jaxaudit.ensemble import Execution

        return Execution(models_per_batch, progress, checkpoints, self.executor)


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
def crew(machines: Machines | None) -> Iterator[Crew]:
    """The workers within this context; their failures are printed on stderr, and all end with the context."""
    if machines is None or machines.workers is None:
        yield Crew(None)
        return
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = lambda message, *_, **__: say(str(message))
        yield Crew(stack.enter_context(make_workers(machines.workers)))


def make_workers(workers: str) -> "Pulling":
    """The workers that `--workers` names, to be used as a context."""
    from jaxaudit.ensemble import LocalWorkers, RayWorkers

    count, cluster = parse_workers(workers)
    if cluster is not None:
        return RayWorkers(_address(cluster), count)
    assert count is not None
    return LocalWorkers(count)


def _address(cluster: str) -> str | None:
    """The address of Ray's client server; None for the cluster of `RAY_ADDRESS`, or a Ray of this machine."""
    return None if cluster == "ray" else cluster

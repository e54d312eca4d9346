"""Workers that train: this process, processes of this machine (`--workers`), or a Ray cluster (`--cluster`).

Imports nothing heavy.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxaudit.cli.parsers import parse_cluster
from jaxaudit.cli.progress import say

if TYPE_CHECKING:
    from jaxaudit.cli.groups import Machines
    from jaxaudit.ensemble import Execution
    from jaxaudit.ensemble.pull import Pulling


class Crew(NamedTuple):
    """The workers that train.

    Attributes:
        executor: None for this process.
        mixed_devices: whether machines that round differently may take part.
        mixed: the machines that did, in words; complete once training is done.
    """

    executor: "Pulling | None"
    mixed_devices: bool
    mixed: list[str]

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

        return Execution(models_per_batch, progress, checkpoints, self.executor, self.mixed_devices)


def before_jax(machines: "Machines | None") -> None:
    """Preparations that must precede JAX's initialisation of devices.

    With workers this process uses one GPU, as each worker does, and does not preallocate memory. A Ray of this machine
    is started by forking, which a process with initialised JAX devices does not survive.
    """
    if machines is None or not machines.spread:
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    # The first GPU that CUDA sees; workers, and a Ray started by this process, still see all.
    jax.config.update("jax_cuda_visible_devices", "0")
    if machines.cluster is not None:
        from jaxaudit.ensemble.ray_workers import connect

        connect(parse_cluster(machines.cluster))


@contextmanager
def crew(machines: "Machines | None") -> Iterator[Crew]:
    """The workers within this context; their failures are printed on stderr, and all end with the context."""
    if machines is None or not machines.spread:
        yield Crew(None, False, [])
        return
    from jaxaudit.ensemble import MixedDevicesWarning

    mixed: list[str] = []

    def tell(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, MixedDevicesWarning):
            if str(message) in mixed:
                return
            mixed.append(str(message))
        say(str(message))

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = tell
        yield Crew(stack.enter_context(make_workers(machines)), machines.mixed_devices, mixed)


def make_workers(machines: "Machines") -> "Pulling":
    """The workers that the options name, to be used as a context."""
    from jaxaudit.ensemble import LocalWorkers

    if machines.cluster is None:
        assert machines.workers is not None
        return LocalWorkers(machines.workers)
    from jaxaudit.ensemble import RayWorkers

    return RayWorkers(parse_cluster(machines.cluster), machines.workers)

"""Workers that train: this process, processes of this machine (`--workers`), or a Ray cluster (`--cluster`).

`jaxaudit cluster check` tries each with a small chunk. Imports nothing heavy.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from jaxaudit.cli.groups import DONE, MOST, Machines
from jaxaudit.cli.parsers import parse_cluster
from jaxaudit.cli.progress import say
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.ensemble import Execution
    from jaxaudit.ensemble.pull import Pulling
    from jaxaudit.ensemble.try_out import Tried


class Crew(NamedTuple):
    """The workers that train.

    Attributes:
        executor: hands chunks to workers; None if this process trains.
        mixed_devices: whether machines that round differently may take part.
        mixed: the machines that round differently and took part, in words; complete once training is done.
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


def before_jax(machines: Machines | None) -> None:
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
def crew(machines: Machines | None) -> Iterator[Crew]:
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


def make_workers(machines: Machines) -> "Pulling":
    """The workers that the options name, to be used as a context."""
    from jaxaudit.ensemble import LocalWorkers

    if machines.cluster is None:
        assert machines.workers is not None
        return LocalWorkers(machines.workers)
    from jaxaudit.ensemble import RayWorkers

    return RayWorkers(parse_cluster(machines.cluster), machines.workers)


SEED = 7
"""Seed of the chunk that all workers train."""
PATIENCE = 120.0
"""Seconds that workers may take to be ready, and then to train the chunk."""

cluster = typer.Typer(no_args_is_help=True, help="Workers of this machine, or of a Ray cluster.")


@cluster.callback()
def _group() -> None:
    """Keeps `check` a sub-command although it is the only one."""


@cluster.command("check", epilog=DONE)
def check_workers(
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST,
            help="Processes of this machine, or workers of --cluster. [default: all of --cluster]",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ray|ray://HOST:PORT",
            help="A Ray cluster: ray (that of RAY_ADDRESS) or ray://HOST:PORT. [default: ray]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Can these workers share a run?

    Starts the workers, has each train a small chunk, and compares its numbers with this machine's: worker by worker the
    host, the device, the version of jaxlib, and the seconds. Exit status 2 where one has other numbers, or does not
    answer.

    Examples:

    `jaxaudit cluster check --workers 2` (processes of this machine)

    `jaxaudit cluster check --cluster ray://head:10001`
    """
    if workers is None and cluster is None:
        cluster = "ray"
    if cluster is not None:
        parse_cluster(cluster)
    machines = Machines(workers, cluster)
    before_jax(machines)
    from jaxaudit.cli.job import Summary
    from jaxaudit.cli.show import show_summary
    from jaxaudit.ensemble.try_out import try_out

    say("trying the workers")
    with make_workers(machines) as started:
        answers = started.everyone(partial(try_out, SEED), PATIENCE)
    own_answer = try_out(SEED)
    lines = [_line(answer, own_answer) for answer in answers]
    plain = [{"error": str(answer)} if isinstance(answer, BaseException) else answer._asdict() for answer in answers]
    lines.append(f"{len(answers)} workers, compared with {_device(own_answer)}")
    show_summary(Summary(tuple(lines), {"here": own_answer._asdict(), "workers": plain}), as_json)
    unfit = [answer for answer in answers if isinstance(answer, BaseException) or answer.digest != own_answer.digest]
    if unfit:
        raise InputError(
            f"{len(unfit)} of {len(answers)} workers cannot share a run with this process; leave them out, start this "
            "process on a machine like theirs, or accept other numbers by --mixed-devices."
        )


def _line(answer: "Tried | BaseException", own_answer: "Tried") -> str:
    if isinstance(answer, BaseException):
        return f"no answer: {answer}"
    from jaxaudit.ensemble.concurrency import unlike

    same = "the same numbers"
    if answer.digest != own_answer.digest:
        same = f"other numbers ({unlike(answer.machine, own_answer.machine) or 'from the same device and versions'})"
    return f"{answer.host}, process {answer.process}: {_device(answer)}, {answer.seconds:.2f} s a chunk, {same}"


def _device(trial: "Tried") -> str:
    facts = trial.machine
    return f"{facts['device']}{' x ' + str(facts['devices']) if facts['devices'] > 1 else ''}, jaxlib {facts['jaxlib']}"

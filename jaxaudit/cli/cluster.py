"""`jaxaudit cluster check`: the workers that `--workers` and `--cluster` would have, each tried with a small chunk."""

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxaudit.cli.groups import DONE, MOST, Machines
from jaxaudit.cli.parsers import parse_cluster
from jaxaudit.cli.progress import say
from jaxaudit.cli.workers import before_jax, make_workers
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.ensemble.try_out import Tried

SEED = 7
"""Seed of the chunk that all workers train."""
PATIENCE = 120.0
"""Seconds that workers may take to be ready, and then to train the chunk."""

cluster = typer.Typer(no_args_is_help=True, help="Workers of this machine, or of a Ray cluster.")


@cluster.callback()
def _group() -> None:
    """Keeps `check` a sub-command although it is the only one."""


@cluster.command(epilog=DONE)
def check(
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=MOST, help="As for the commands that train. [default: all of --cluster]"),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ray|ray://HOST:PORT", help="As for the commands that train. [default: ray]")
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
    from jaxaudit.cli.show import show_text
    from jaxaudit.ensemble.try_out import try_out

    say("trying the workers")
    with make_workers(machines) as made:
        found = made.everyone(partial(try_out, SEED), PATIENCE)
    here = try_out(SEED)
    lines = [_line(each, here) for each in found]
    if as_json:
        show_text(json.dumps({"here": here._asdict(), "workers": [_plain(each) for each in found]}) + "\n")
    else:
        show_text("\n".join([*lines, f"{len(found)} workers, compared with {_device(here)}"]) + "\n")
    unfit = [each for each in found if isinstance(each, BaseException) or each.digest != here.digest]
    if unfit:
        raise InputError(
            f"{len(unfit)} of {len(found)} workers cannot share a run with this process; leave them out, start this "
            "process on a machine like theirs, or accept other numbers by --mixed-devices."
        )


def _line(found: "Tried | BaseException", here: "Tried") -> str:
    if isinstance(found, BaseException):
        return f"no answer: {found}"
    from jaxaudit.ensemble.machine import unlike

    same = "the same numbers"
    if found.digest != here.digest:
        same = f"other numbers ({unlike(found.machine, here.machine) or 'from the same device and versions'})"
    return f"{found.host}, process {found.process}: {_device(found)}, {found.seconds:.2f} s a chunk, {same}"


def _device(found: "Tried") -> str:
    facts = found.machine
    return f"{facts['device']}{' x ' + str(facts['devices']) if facts['devices'] > 1 else ''}, jaxlib {facts['jaxlib']}"


def _plain(found: "Tried | BaseException") -> dict[str, Any]:
    return {"error": str(found)} if isinstance(found, BaseException) else found._asdict()

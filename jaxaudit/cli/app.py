"""The `jaxaudit` command: its sub-commands, and what becomes of errors."""

import functools
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from jaxaudit.cli.attack.command import attack
from jaxaudit.cli.efficacy.command import efficacy
from jaxaudit.cli.ks.command import ks
from jaxaudit.cli.pdtp.command import pdtp
from jaxaudit.cli.power.command import power
from jaxaudit.cli.progress import say
from jaxaudit.cli.report import report
from jaxaudit.cli.show import accept_any_text
from jaxaudit.cli.unlearn.command import unlearn
from jaxaudit.cli.work import INTERRUPTED, Interrupted
from jaxaudit.errors import InputError, InputErrors
from jaxaudit.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _at_home(command: Callable[..., None]) -> Callable[..., None]:
    """The command with `~` replaced in every path it is given, as shells do where it begins a word."""

    def replaced(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [replaced(each) for each in value]
        return _expanded(value) if isinstance(value, Path) else value

    @functools.wraps(command)
    def run(**options: Any) -> None:
        command(**{name: replaced(value) for name, value in options.items()})

    return run


def _expanded(path: Path) -> Path:
    found = os.path.expanduser(path)
    if path.parts[:1] == ("~",) and found == os.fspath(path):
        raise InputError(f"{path}: there is no home folder here (HOME is not set); write the path in full.")
    return Path(found)


for command in (ks, pdtp, attack, power, efficacy, unlearn, report):
    app.command()(_at_home(command))


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"jaxaudit {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What does a trained classifier still remember?

    `jaxaudit ks` asks whether it has forgotten a data set; `jaxaudit pdtp`, whether it may be published, and whose
    records are at risk; `jaxaudit attack`, how well membership attacks do on it; `jaxaudit efficacy`, how much its
    weights still expose of some records; `jaxaudit unlearn`, whether unlearning worked. Try them without options: they
    need no data and about a minute. `jaxaudit report` shows what they found as one page.

    Exit status: 0 done, whatever the verdict; 2 something you gave cannot be used; 1 a failure of the program;
    3 a verdict you asked to fail on.
    """


def main() -> None:
    """Runs the command; an `InputError` becomes one line and status 2, any other error one line and status 1.

    `InputErrors` are a line each.
    """
    try:
        accept_any_text()
        # It would tell of a home folder that is not there.
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        app()
    except InputErrors as errors:
        _stop(2, *(f"Error: {problem}" for problem in errors.problems))
    except InputError as error:
        _stop(2, f"Error: {error}")
    except SystemExit as stop:
        # Typer turns Ctrl-C into this status without a word.
        if stop.code == INTERRUPTED and not isinstance(stop, Interrupted):
            say("Interrupted.")
        raise
    except Exception as error:
        if os.environ.get("JAXAUDIT_DEBUG"):
            raise
        first = (str(error).strip().splitlines() or ["no message"])[0]
        _stop(1, f"Failed: {type(error).__name__}: {first} (set JAXAUDIT_DEBUG=1 for the traceback)")


def _stop(status: int, *messages: str) -> None:
    for message in messages:
        say(message)
    sys.exit(status)

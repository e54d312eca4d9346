"""The `jaxaudit` command: its sub-commands, and how errors are reported, in the flags of a command."""

import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

import typer
import typer.core

from jaxaudit.cli.attack import ATTACK
from jaxaudit.cli.deal import DEAL
from jaxaudit.cli.efficacy import EFFICACY
from jaxaudit.cli.ks import KS
from jaxaudit.cli.options import fields_of
from jaxaudit.cli.pdtp import PDTP
from jaxaudit.cli.power import POWER
from jaxaudit.cli.progress import INTERRUPTED, Interrupted, say
from jaxaudit.cli.report import cite, doctor, report
from jaxaudit.cli.scores import SCORES
from jaxaudit.cli.shadows import SHADOWS, TRAIN
from jaxaudit.cli.shared_options import DONE, JUDGED
from jaxaudit.cli.show import accept_any_text
from jaxaudit.cli.unlearn import UNLEARN
from jaxaudit.errors import InputError, InputErrors, first_line
from jaxaudit.version import __version__

COMMANDS = (KS, PDTP, ATTACK, POWER, EFFICACY, UNLEARN)
"""The commands that audit."""

HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    context_settings=HELP,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

GROUPS = {
    title: typer.Typer(no_args_is_help=True, context_settings=HELP, help=text)
    for title, text in {
        "shadows": "Shadow models for any number of audits: trained here, by your own script, or by another tool.",
        "scores": "Tables of scores, a number a record and model: from models, or from what other tools leave.",
    }.items()
}
for command in (*COMMANDS, DEAL, *SHADOWS, *SCORES):
    words = command.name.split()
    epilog = JUDGED if hasattr(command.options, "fail_on") else DONE
    place = GROUPS.get(words[0], app)
    place.command(words[-1], epilog=epilog, context_settings=HELP)(command.as_function())
for title, place in GROUPS.items():
    app.add_typer(place, name=title)
app.command(epilog=DONE, context_settings=HELP)(report)
app.command(epilog=DONE, context_settings=HELP)(cite)
app.command(context_settings=HELP)(doctor)


def _print_version(is_asked: bool) -> bool:
    if is_asked:
        print(f"jaxaudit {__version__}")
        raise typer.Exit
    return is_asked


QUESTIONS = """What does a trained model still remember?

Has a model forgotten these records, or never used them?   jaxaudit ks
How much information on records is left in its weights?    jaxaudit efficacy
May it be published: which records does it give away?      jaxaudit attack

Each runs on embedded data as it stands. Before records are shared: jaxaudit deal. All commands: jaxaudit --help
"""


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What does a trained model still remember?

    Try its audits without options: they need no data and take about a minute. `jaxaudit deal` splits records before
    they are shared, or draws those to withdraw, so that their deletion can be tested later.

    Exit status: 0: done, whatever the verdict. 1: a failure of the program. 2: an option or its data cannot be used.
    3: a verdict that --fail-on names.

    Examples:

    `jaxaudit ks` (an audit of embedded data)

    `jaxaudit ks --out run` and then `jaxaudit report run` (its result as a page)

    `jaxaudit deal records.npz --out deal` (before records are shared)

    `jaxaudit doctor` (what is ready here)
    """


def main() -> None:
    """Runs the command. An `InputError` prints one line with status 2, any other error one line with status 1.

    `InputErrors` print one line for each problem. Arguments that a message names are printed as flags of the command.
    """
    try:
        accept_any_text()
        # Matplotlib would warn of a missing home folder.
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        if not sys.argv[1:]:
            print(QUESTIONS, end="")
            return
        # The help shows this name however the program was started.
        _command()(sys.argv[1:], prog_name="jaxaudit")
    except InputErrors as errors:
        _refuse(*errors.problems)
    except InputError as error:
        _refuse(str(error))
    except SystemExit as stop:
        # Typer turns Ctrl-C into this status without printing anything.
        if stop.code == INTERRUPTED and not isinstance(stop, Interrupted):
            say("Interrupted.")
        raise
    except Exception as error:
        if os.environ.get("JAXAUDIT_DEBUG"):
            raise
        _stop(1, f"Failed: {first_line(error)} (set JAXAUDIT_DEBUG=1 for the traceback)")


@cache
def _command() -> Any:
    """The command that Typer builds from all options. Building it takes a tenth of a second."""
    return typer.main.get_command(app)


def _refuse(*problems: str) -> None:
    flags = flags_of(_command(), sys.argv[1:])
    _stop(2, *(f"Error: {as_flags(problem, flags)}" for problem in problems))


def _stop(status: int, *messages: str) -> None:
    for message in messages:
        say(message)
    sys.exit(status)


NAMED = re.compile(r"(?<!field )`([a-z][a-z0-9_]*)`")
OTHER_NAMES = {
    "allow_unrelated_target": "allow_unrelated",
    "images": "image_size",
    "leave_one_out": "rates",
    "lora": "layers",
    "out": "directory",
    "outputs_kind": "kind",
    "target": "targets",
    "target_kind": "kind",
    "workers": "count",
}
"""Arguments by the option that has another name for them, where a command has none of the argument's own."""
ELSEWHERE = {name: f"--{name} of `jaxaudit shadows plan`" for name in ("coins", "outputs")}
"""Arguments that are an option of another command than those that speak of it."""
RECIPE_NAMES = [
    field.name for command in (*COMMANDS, TRAIN) for field in fields_of(command.options()) if field.declared.in_recipe
]
"""The settings of a recipe."""
OF_DEAL = {role: f"{role}.* in --deal" for role in ("holdout", "members")}
"""Arguments that are a part of a folder of sets."""


def as_flags(message: str, flags: Mapping[str, str]) -> str:
    """The message with each argument, a name between backticks, as its flag.

    Every other word stays as it is, a field of a file, too: names from untrusted files may contain backticks.

    >>> as_flags("give `members` or `half`; `members", {"members": "--members"})
    'give --members or `half`; `members'
    """
    return NAMED.sub(lambda match: flags.get(match[1], match[0]), message)


def flags_of(command: Any, words: Sequence[str]) -> dict[str, str]:
    """The flags, by argument, of the command that these words run; `command` is the whole, as Typer builds it."""
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    flags = {parameter.opts[0].removeprefix("--").replace("-", "_"): parameter.opts[0] for parameter in options}
    flags |= {parameter.name: parameter.opts[0] for parameter in options}
    if "--recipe" in flags.values():
        flags = {**{name: f"--recipe {name.replace('_', '-')}" for name in RECIPE_NAMES}, **flags}
    if "direction" in flags:
        ways = {way: f"--direction SCORE={way}" for way in ("lower", "higher")}
        flags = {"never": "--test-option shadow.never=N", **ways, **flags}
    further_flags = {argument: flags[option] for option, argument in OTHER_NAMES.items() if option in flags}
    return {**ELSEWHERE, **(OF_DEAL if "deal" in flags else {}), **further_flags, **flags}

"""The command line as a shell has it: help, completion, the version, colours, exit statuses."""

import re

import pytest
import typer
from readme_sections import COMMANDS, OTHERS
from support.cli_runs import jaxaudit

from jaxaudit.cli.app import app
from jaxaudit.version import __version__

ESCAPE = "\x1b["


HELPS = {
    each.name or each.callback.__name__: each.callback.__doc__ for each in app.registered_commands if each.callback
}


def test_every_help_has_an_example_that_parses():
    shown = {name: jaxaudit(name, "--help").out for name in HELPS}
    for name, said in HELPS.items():
        examples = re.findall(r"`jaxaudit ([^`]+)`", said or "")
        assert name in {example.split()[0] for example in examples}
        for example in examples:
            command, *words = example.split()
            known = shown.get(command) or jaxaudit(command, "--help").out
            assert f"jaxaudit {command}" in known
            flags = {word for word in words if word.startswith("-")}
            assert flags <= set(re.findall(r"--[a-z][a-z-]*", known)), example


def test_every_command_is_on_the_page_of_the_command_line():
    click = typer.main.get_command(app)
    found = set()
    for name, command in click.commands.items():  # pyright: ignore[reportAttributeAccessIssue]
        found |= {f"{name} {each}" for each in command.commands} if hasattr(command, "commands") else {name}
    assert found == {*COMMANDS, *OTHERS}


def test_the_version_is_one_line_and_no_words_print_the_help():
    assert jaxaudit("--version") == (0, f"jaxaudit {__version__}\n", "")
    done = jaxaudit()
    assert "Usage: " in done.out + done.err
    assert " ks " in done.out + done.err


@pytest.mark.parametrize("words", [("--help",), ("ks", "--help"), ("ks", "--epochs", "0"), ("doctor",)])
def test_nothing_is_coloured_where_it_is_not_a_terminal(words: tuple[str, ...]):
    done = jaxaudit(*words)
    assert ESCAPE not in done.out + done.err

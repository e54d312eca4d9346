"""The command line as a shell has it: help, completion, the version, colours, exit statuses."""

import re

import pytest
from support.cli_runs import jaxaudit

from jaxaudit.cli.app import COMMANDS as AUDITS
from jaxaudit.cli.app import app
from jaxaudit.cli.deal.command import DEAL
from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import fields_of
from jaxaudit.cli.scores.command import SCORES
from jaxaudit.cli.shadows.command import SHADOWS
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


COMMAND_WORDS = [command.name for command in (*AUDITS, DEAL, *SHADOWS, *SCORES)] + ["report", "cite", "cluster check"]


@pytest.mark.parametrize("name", COMMAND_WORDS)
def test_no_word_of_a_help_is_cut_at_80_columns(name: str, monkeypatch: pytest.MonkeyPatch):
    """As the end of a list of choices is that has nowhere to be broken."""
    monkeypatch.setenv("COLUMNS", "80")
    said = jaxaudit(*name.split(), "--help").out
    assert "--help" in said
    assert "…" not in said, [line for line in said.splitlines() if "…" in line]


def test_the_version_is_one_line_and_no_words_print_the_help():
    assert jaxaudit("--version") == (0, f"jaxaudit {__version__}\n", "")
    done = jaxaudit()
    assert "Usage: " in done.out + done.err
    assert " ks " in done.out + done.err


@pytest.mark.parametrize("words", [("--help",), ("ks", "--help"), ("ks", "--epochs", "0"), ("doctor",)])
def test_nothing_is_coloured_where_it_is_not_a_terminal(words: tuple[str, ...]):
    done = jaxaudit(*words)
    assert ESCAPE not in done.out + done.err


@pytest.mark.parametrize("command", AUDITS, ids=lambda command: command.name)
def test_the_help_names_every_option_in_full_within_80_columns(command: Command, monkeypatch: pytest.MonkeyPatch):
    """Those that most people need stand first."""
    monkeypatch.setenv("COLUMNS", "80")
    fields = {field.name: field for field in fields_of(command.options())}
    said = jaxaudit(command.name, "--help").out
    assert max(map(len, said.splitlines())) <= 80
    assert len(command.first) == 3
    # A line of the text beside a flag may begin with another flag, far to the right.
    shown = re.findall(r"^│ \*? {0,3}(--[a-z-]+)", said, re.MULTILINE)
    assert shown[:4] == [*(fields[name].flag for name in command.first), "--help"], said
    words = set(said.replace(",", " ").split())
    assert {flag for field in fields.values() for each in field.flags for flag in each.split("/")} <= words

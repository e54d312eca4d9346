"""The command line as a shell has it: help, completion, the version, colours, exit statuses."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from readme_sections import COMMANDS, OTHERS
from support.cli_runs import jaxaudit

from jaxaudit.cli.app import COMMANDS as AUDITS
from jaxaudit.cli.app import _command, app
from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import fields_of
from jaxaudit.version import __version__

ESCAPE = "\x1b["
COLOUR = re.compile(r"\x1b\[(?:\d+;)*[39][0-7]")


@pytest.mark.parametrize("command", AUDITS, ids=lambda command: command.name)
def test_the_help_names_every_option_in_full_within_80_columns(command: Command, monkeypatch: pytest.MonkeyPatch):
    """Those that most people need stand first; old names are not shown."""
    monkeypatch.setenv("COLUMNS", "80")
    fields = {field.name: field for field in fields_of(command.options())}
    said = jaxaudit(command.name, "--help").out
    assert max(map(len, said.splitlines())) <= 80
    assert len(command.first) == 3
    shown = re.findall(r"^│ \*? *(--[a-z-]+)", said, re.MULTILINE)
    assert shown[:4] == [*(fields[name].flag for name in command.first), "--help"]
    words = set(said.replace(",", " ").split())
    assert {flag for field in fields.values() for each in field.flags for flag in each.split("/")} <= words
    assert not words & {flag for field in fields.values() for flag in field.declared.formerly}


@pytest.mark.parametrize("command", [*COMMANDS, *OTHERS])
def test_the_help_ends_with_the_exit_statuses(command: str):
    said = " ".join(jaxaudit(*command.split(), "--help").out.split())
    assert "Exit status" in said
    assert f"jaxaudit {command}" in said
    assert ("--fail-on names" in said) is (command in {*COMMANDS} - {"efficacy"})


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


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("jaxaudit ", {"ks", "pdtp", "report", "cite", "doctor"}),
        ("jaxaudit do", {"doctor"}),
        ("jaxaudit shadows t", {"train"}),
        ("jaxaudit ks --calibration-t", {"--calibration-target"}),
        ("jaxaudit unlearn --fisher-variant p", {"paper"}),
    ],
)
def test_a_shell_completes_words(words: str, completed: set[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("_JAXAUDIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - (not words.endswith(" "))))
    done = jaxaudit()
    assert done.err == ""
    assert completed <= set(done.out.split())
    assert all(each.startswith(words.split(" ")[-1]) for each in done.out.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_for_a_shell(shell: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    # Typer looks at the variable when it makes the command.
    _command.cache_clear()
    done = jaxaudit("--show-completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_COMPLETE" in done.out


def test_the_version_is_one_line_and_no_words_print_the_help():
    assert jaxaudit("--version") == (0, f"jaxaudit {__version__}\n", "")
    done = jaxaudit()
    assert "Usage: " in done.out + done.err
    assert " ks " in done.out + done.err


@pytest.mark.parametrize("words", [("--help",), ("ks", "--help"), ("ks", "--epochs", "0"), ("doctor",)])
def test_nothing_is_coloured_where_it_is_not_a_terminal(words: tuple[str, ...]):
    done = jaxaudit(*words)
    assert ESCAPE not in done.out + done.err


@pytest.mark.outer
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="the system has no terminals of this kind")
def test_colours_are_of_terminals_and_of_those_who_want_them(tmp_path: Path):
    command = ("pdtp", "--data", "wine", "--model", "nb")
    assert COLOUR.search(_on_terminal(command, tmp_path))
    assert not COLOUR.search(_on_terminal(command, tmp_path, NO_COLOR="1"))
    assert COLOUR.search(_on_terminal(("--help",), tmp_path))
    assert not COLOUR.search(_on_terminal(("--help",), tmp_path, NO_COLOR="1"))


def _on_terminal(words: tuple[str, ...], cwd: Path, **environment: str) -> str:
    """What the command prints on a terminal."""
    ours, theirs = os.openpty()
    known = {**os.environ, "TERM": "xterm-256color", **environment}
    for name in {"NO_COLOR", "FORCE_COLOR", "CI"} - environment.keys():
        known.pop(name, None)
    with subprocess.Popen([sys.executable, "-m", "jaxaudit", *words], stdout=theirs, stderr=theirs, cwd=cwd, env=known):
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # Linux says so that the other end is closed
                break
            if not part:
                break
            found += part
    os.close(ours)
    return found.decode()

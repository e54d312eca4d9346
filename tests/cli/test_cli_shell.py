"""The command line as a shell has it: help, completion, the version, colours, exit statuses."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli_runs import jaxaudit

from jaxaudit.cli.app import COMMANDS as AUDITS
from jaxaudit.cli.app import app
from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import fields_of
from jaxaudit.version import __version__

ESCAPE = "\x1b["


HELPS = {
    each.name or each.callback.__name__: each.callback.__doc__ for each in app.registered_commands if each.callback
}


COLOUR = re.compile(r"\x1b\[(?:\d+;)*[39][0-7]")


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


@pytest.mark.outer
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="the system has no terminals of this kind")
def test_colours_are_of_terminals_and_of_those_who_want_them(tmp_path: Path):
    command = ("pdtp", "--data", "wine", "--model", "nb")
    assert COLOUR.search(_on_terminal(command, tmp_path))
    assert not COLOUR.search(_on_terminal(command, tmp_path, NO_COLOR="1"))
    assert COLOUR.search(_on_terminal(("--help",), tmp_path))
    assert not COLOUR.search(_on_terminal(("--help",), tmp_path, NO_COLOR="1"))

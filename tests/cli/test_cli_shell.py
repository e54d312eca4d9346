"""The command line as a shell has it: help, completion, the version, colours, exit statuses."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from readme_sections import COMMANDS, OTHERS
from support.cli_runs import jaxaudit, process

from jaxaudit.cli.app import COMMANDS as AUDITS
from jaxaudit.cli.app import app
from jaxaudit.cli.options import fields_of
from jaxaudit.version import __version__

ESCAPE = "\x1b["
COLOUR = re.compile(r"\x1b\[(?:\d+;)*[39][0-7]")


@pytest.mark.parametrize("command", AUDITS, ids=lambda command: command.name)
def test_the_options_that_most_people_need_stand_first(command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    flags = {field.name: field.flag for field in fields_of(command.options())}
    assert len(command.first) == 3
    shown = re.findall(r"^│ \*? *(--[a-z-]+)", jaxaudit(command.name, "--help").out, re.MULTILINE)
    assert shown[:4] == [*(flags[name] for name in command.first), "--help"]
    assert set(flags.values()) <= set(shown)


@pytest.mark.parametrize("command", [*COMMANDS, *OTHERS])
def test_the_help_ends_with_the_exit_statuses_and_has_an_example(command: str):
    said = " ".join(jaxaudit(*command.split(), "--help").out.split())
    assert "Exit status" in said
    assert f"jaxaudit {command}" in said
    assert ("--fail-on names" in said) is (command in {*COMMANDS} - {"efficacy"})


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
@pytest.mark.outer
def test_a_shell_completes_words(words: str, completed: set[str], tmp_path: Path):
    count = len(words.split()) - (not words.endswith(" "))
    environment = {"_JAXAUDIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    code = "import sys; sys.argv = ['jaxaudit']; from jaxaudit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert completed <= set(done.stdout.split())
    assert all(each.startswith(words.split(" ")[-1]) for each in done.stdout.split())


@pytest.mark.outer
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_for_a_shell(shell: str, tmp_path: Path):
    done = process("--show-completion", shell, cwd=tmp_path, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (done.code, done.err) == (0, "")
    assert "_COMPLETE" in done.out


def test_the_version_is_one_line():
    done = jaxaudit("--version")
    assert (done.code, done.out, done.err) == (0, f"jaxaudit {__version__}\n", "")


@pytest.mark.outer
@pytest.mark.parametrize("words", [("--help",), ("ks", "--help"), ("ks", "--epochs", "0"), ("doctor",)])
def test_nothing_is_coloured_where_it_is_not_a_terminal(words: tuple[str, ...], tmp_path: Path):
    done = process(*words, cwd=tmp_path)
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

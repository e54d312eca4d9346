"""The command line as a shell has it: help, the version, colours, exit statuses, messages in flags, the doctor."""

import ast
import json
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from support.cli_runs import jaxaudit

import jaxaudit as ja
from jaxaudit.cli.app import COMMANDS as AUDITS
from jaxaudit.cli.app import OTHER_NAMES, _command, app, as_flags, flags_of
from jaxaudit.cli.deal import DEAL
from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import fields_of
from jaxaudit.cli.scores import SCORES
from jaxaudit.cli.shadows import SHADOWS
from jaxaudit.ensemble.concurrency import this_machine
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


def test_the_version_is_one_line_and_no_words_print_the_help():
    assert jaxaudit("--version") == (0, f"jaxaudit {__version__}\n", "")
    done = jaxaudit()
    assert "jaxaudit ks\n" in done.out
    assert "jaxaudit --help" in done.out


def test_nothing_is_coloured_where_it_is_not_a_terminal():
    for words in (("ks", "--help"), ("ks", "--epochs", "0")):
        done = jaxaudit(*words)
        assert ESCAPE not in done.out + done.err


@pytest.mark.parametrize("command", [*AUDITS, DEAL, *SHADOWS, *SCORES], ids=lambda command: command.name)
def test_the_help_names_every_option_in_full_within_80_columns(command: Command, monkeypatch: pytest.MonkeyPatch):
    """Those that most people need stand first; no word is cut, such as the end of a list of choices."""
    monkeypatch.setenv("COLUMNS", "80")
    fields = {field.name: field for field in fields_of(command.options())}
    said = jaxaudit(*command.name.split(), "--help").out
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said, [line for line in said.splitlines() if "…" in line]
    if command in AUDITS:
        # A line of the text beside a flag may begin with another flag, far to the right.
        shown = re.findall(r"^│ \*? {0,3}(--[a-z-]+)", said, re.MULTILINE)
        assert shown[: len(command.first) + 1] == [*(fields[name].flag for name in command.first), "--help"], said
    words = set(said.replace(",", " ").split())
    assert {flag for field in fields.values() for each in field.flags for flag in each.split("/")} <= words
    settings = {field.setting for field in fields.values() if field.declared.in_recipe}
    assert settings <= {*re.findall(r"[a-z][a-z-]*", said)}


PACKAGE = Path(ja.__file__).parent
FLAG = re.compile(r"(?<![\w-])--(?!sans\))[a-z]")
"""`var(--sans)` is a font of the page."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every text of a module but the docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in alone:
            yield each.lineno, each.value


def test_the_library_names_no_flag():
    library = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "cli" not in path.parents]
    assert len(library) > 100
    found = [(path.name, line, text) for path in library for line, text in texts(path) if FLAG.search(text)]
    assert found == []
    assert any(FLAG.search(text) for _, text in texts(PACKAGE / "cli" / "shared_options.py"))


def test_only_options_of_the_running_command_become_flags():
    ks, attack = (flags_of(_command(), [name, "--out", "run"]) for name in ("ks", "attack"))
    said = "`members`, `targets`, `images`, `layers`, `members `, ``members, `out`, `json`, members`"
    assert as_flags(said, ks) == (
        "members.* in --deal, --target, --images, --recipe lora, `members `, ``members, --out, --json, members`"
    )
    assert as_flags("`holdout`, `batch_size`", ks) == "holdout.* in --deal, --recipe batch-size"
    assert as_flags("`targets`, `images`", attack) == "--targets, `images`"
    assert as_flags("unknown field `query`", ks) == "unknown field `query`"
    assert as_flags("`outputs`", flags_of(_command(), ["shadows", "add"])) == "--outputs of `jaxaudit shadows plan`"
    assert as_flags("`out`", flags_of(_command(), ["shadows", "plan"])) == "--out"
    assert as_flags("`members`", flags_of(_command(), [])) == "`members`"


def test_every_other_name_is_that_of_an_option():
    commands = [("ks",), ("shadows", "import"), ("attack",), ("unlearn",), ("pdtp",)]
    known = {name for words in commands for name in flags_of(_command(), words)}
    assert {*OTHER_NAMES, *OTHER_NAMES.values()} <= known


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder and a cache of its own, and no cluster."""
    for name, folder in {"JAXAUDIT_DATA": "data", "JAXAUDIT_CACHE": "cache"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return tmp_path


def test_it_says_what_is_here(here: Path):
    done = jaxaudit("doctor", "--json")
    assert (done.code, done.err) == (0, "")
    facts = done.result
    assert (facts["jaxaudit"], facts["problems"]) == (__version__, [])
    assert {name: facts[name] for name in this_machine()} == this_machine()
    assert (facts["data"], facts["cache"]) == (str(here / "data"), str(here / "cache"))
    assert {"extra torch", "extra ray"} <= facts.keys()
    # JAX is there, and what its own extra adds is not.
    assert facts["extra cuda"].startswith("lacks jax[cuda13]")
    lines = jaxaudit("doctor").out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [*facts][:-1]


def test_what_every_command_needs_and_is_not_there_is_a_failure(here: Path, monkeypatch: pytest.MonkeyPatch):
    asked = ["jax>=99", "no-such-package>=1.5", 'windows-only; sys_platform == "none"', 'other; extra == "torch"']
    monkeypatch.setattr(metadata, "requires", lambda _: asked)
    done = jaxaudit("doctor")
    assert done.code == 1
    assert "jaxaudit lacks jax>=99, no-such-package>=1.5:" in done.out
    assert "windows-only" not in done.out


def test_a_cache_that_cannot_be_is_a_failure(here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "file").write_text("")
    monkeypatch.setenv("JAXAUDIT_CACHE", str(here / "file" / "cache"))
    done = jaxaudit("doctor", "--json")
    assert done.code == 1
    assert "JAXAUDIT_CACHE" in json.loads(done.out)["problems"][0]

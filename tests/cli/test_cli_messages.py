"""A message names arguments in Python, and flags on the command line."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from support.cli_runs import jaxaudit, records, refused

import jaxaudit as ja
from jaxaudit.cli.app import OTHER_NAMES, _command, as_flags, flags_of
from jaxaudit.errors import InputError

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
    assert any(FLAG.search(text) for _, text in texts(PACKAGE / "cli" / "groups.py"))


def test_the_same_mistake_in_the_words_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    words: list[str] = []
    sides = (("query", 60, "target"), ("holdout", 60, "holdout-target"), ("members", 5, "members-target"))
    for seed, (role, size, target) in enumerate(sides):
        inputs, labels = records(seed, 0.0, size)
        np.savez(f"{role}.npz", x=inputs, y=np.append(labels[3:], [0, 1, 2]))
        np.save(f"{role}.npy", np.random.default_rng(seed).dirichlet(np.ones(3), size))
        words += [f"--{role}", f"{role}.npz", f"--{target}", f"{role}.npy"]
    on_command_line = refused(("ks", *words))
    query, holdout, members = (ja.load(f"{role}.npz") for role, _, _ in sides)
    said = {role: ja.load_outputs(f"{role}.npy", 3, size) for role, size, _ in sides}
    target = ja.FileTarget(said["query"], said["holdout"], on_members=said["members"])
    with pytest.raises(InputError) as caught:
        ja.train_shadows(jax.random.key(0), query, None, None, [target], holdout=holdout, members=members)
    assert "(`members`)" in str(caught.value)
    assert on_command_line == f"Error: {str(caught.value).replace('`members`', '--members')}"


def test_only_options_of_the_running_command_become_flags():
    ks, attack = (flags_of(_command(), [name, "--out", "run"]) for name in ("ks", "attack"))
    said = "`members`, `targets`, `gray`, `members `, ``members, `out`, `json`, `dry_run`, members`, `ks --members`"
    assert as_flags(said, ks) == (
        "--members, --target, --gray, `members `, ``members, --out, --json, --dry-run, members`, `ks --members`"
    )
    assert as_flags("`targets`, `gray`", attack) == "--targets, `gray`"
    assert as_flags("unknown field `query`", ks) == "unknown field `query`"
    assert as_flags("`outputs`", flags_of(_command(), ["shadows", "add"])) == "--outputs of `jaxaudit shadows plan`"
    assert as_flags("`out`", flags_of(_command(), ["shadows", "plan"])) == "--out"
    assert as_flags("`members`", flags_of(_command(), [])) == "`members`"


def test_every_other_name_is_that_of_an_option():
    commands = [("ks",), ("shadows", "import"), ("attack",), ("unlearn",)]
    known = {flag for words in commands for flag in flags_of(_command(), words).values()}
    assert {f"--{option.replace('_', '-')}" for option in OTHER_NAMES} <= known


@pytest.mark.parametrize("words", [("ks",), ("shadows",), ("shadows", "plan"), ("cluster", "check")])
def test_the_help_of_a_command_is_the_same_whoever_asked_before(words: tuple[str, ...]):
    """Alone, as the pages of the site are written, or below its parent, as a user asks."""

    def alone() -> set[str]:
        found = _command()
        for word in words:
            found = found.commands[word]
        context = found.make_context(" ".join(words), [], resilient_parsing=True)
        return set(found.get_help_option(context).opts)

    def below() -> str:
        return jaxaudit(*words, "--help").out

    _command.cache_clear()
    first = alone(), below()
    _command.cache_clear()
    assert (below(), alone()) == first[::-1]
    assert first[0] == {"--help"}
    short = jaxaudit(*words, "-h").out
    assert jaxaudit(*words, "--help").out == first[1]
    assert jaxaudit(*words, "-h").out == short

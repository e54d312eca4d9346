"""Everything wrong with the words of a command is said at once, before anything heavy is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cli_runs import QUICK, SETS, content, jaxaudit, options_of, process

from jaxaudit.cli import preflight
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.unlearn.command import UnlearnOptions
from jaxaudit.errors import InputError, InputErrors

HEAVY = "import sys; assert not {'numpy', 'jax', 'pyarrow', 'optax'} & set(sys.modules), 'heavy'"


def problems(kind: type[Any], **options: Any) -> list[str]:
    try:
        preflight.check(options_of(kind, **options))
    except InputErrors as errors:
        return list(errors.problems)
    except InputError as error:
        return [str(error)]
    return []


def test_all_problems_at_once(sets: Path):
    before = content(sets)
    done = jaxaudit(
        *("ks", "--query", "quer.npz", "--calibration", "gone/c.npy@train", "--holdout", "~/h.npz"),
        *("--target", "t.csv", "--target", "u.csv", "--holdout-target", "th.csv", "--target-data", "fra.npz:0.5"),
        *("--target-data", "far.npz:2", "--model", "mine.py:f", "--hidden", "many", "--level", "7", "--subsample", "0"),
        *("--image-size", "9", "--learning-rate", "-1", "--field-strength", "f.csv", "--data-dir", "far.npz"),
        *("--out", "query.npz", "--report", "nowhere/r.html", "--tests", "holdout,shadows", "--budget", "soon"),
    )
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert all(line.startswith("Error: ") for line in lines)
    for said in (
        *("--query quer.npz", "--calibration gone/c.npy", "--holdout ~/h.npz", "--target t.csv", "--target u.csv"),
        *("--holdout-target th.csv", "--target-data fra.npz", "--target-data far.npz:2", "--model mine.py:f"),
        *("--hidden many", "--level ", "--subsample ", "--image-size 9", "--learning-rate "),
        *("--field-strength f.csv", "--data-dir far.npz", "--out query.npz", "nowhere/r.html"),
        *("--holdout-target 1", "--tests", "--budget soon"),
    ):
        assert sum(said in line for line in lines) == 1, (said, lines)
    assert len(lines) == 21
    assert "did you mean query.npz?" in lines[[said.startswith("Error: --query") for said in lines].index(True)]
    assert content(sets) == before


@pytest.mark.outer
def test_nothing_heavy_is_imported_before(tmp_path: Path):
    """So that a misspelt path is known at once, not after the seconds that JAX takes."""
    (tmp_path / "sitecustomize.py").write_text(f"import atexit\natexit.register(lambda: exec({HEAVY!r}))\n")
    done = process(
        "ks", *SETS, "--target", "t.csv", cwd=tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path])
    )
    assert done.code == 2
    assert done.err.count("Error: ") == 3
    assert "heavy" not in done.err


BEFORE = """
import json, sys
from jaxaudit.cli import harness, main

def look(_):
    print("jax" in sys.modules)
    sys.exit()

harness.before_jax = look
for words in json.loads(sys.argv[1]):
    sys.argv = ["jaxaudit", *words]
    try:
        main()
    except SystemExit:
        pass
"""
"""Runs commands up to what must be done before JAX starts, and prints whether JAX is imported by then."""


@pytest.mark.outer
def test_all_that_a_command_checks_is_checked_before_jax_is_imported(sets: Path):
    Path("page.html").touch()
    commands = [
        ("ks", *SETS, "--target-data", "far.npz:0.5", "--tests", "shadow,rho"),
        ("pdtp", "--data", "query.npz", "--model", "nn"),
        ("attack", "--data", "query.npz", "--attacks", "distance"),
        ("power", *SETS, "--groups", "groups"),
        ("efficacy",),
        ("unlearn", "--data", "query.npz"),
    ]
    words = json.dumps([[*command, "--out", "run", "--report", "page.html"] for command in commands])
    done = subprocess.run([sys.executable, "-c", BEFORE, words], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["False"] * len(commands), done.stderr


def test_names_that_may_be_sets_are_left_to_be_found_out(sets: Path):
    Path("folder").mkdir()
    Path("data").mkdir()
    Path("data/here.npz").touch()
    Path("a@b.npz").touch()
    for name in (
        *("mnist", "svhn_cropped@train", "mnist@train[:10%]", "emnist/letters:3.1.0", "emnist/letters", "tfds:mnist"),
        *("printed-digits", "digits@train[:100]", "query.npz", "query.npz@train", "acdc:folder@3.0", "folder"),
        *("here.npz", "folder/", "a@b.npz", "@train", "tfds:no.such"),
    ):
        assert problems(KSOptions, query=name, data_dir=Path("data"), target_data=(f"{name}:0.5",)) == [], name
        assert problems(UnlearnOptions, data=name, data_dir=Path("data")) == [], name
    assert problems(UnlearnOptions, data_dir=Path("new"), data="mnist") == []


def test_names_that_can_only_be_paths(sets: Path):
    paths = ("nowhere.npz", "./mnist", "~/mnist", "/mnist", "a/b/c", "query.npz/x", "a b", "acdc:gone@3", "n\0l")
    for name in (*paths, "x" * 5000 + "/"):
        (said,) = problems(KSOptions, query=name)
        assert said.startswith("--query ")
        assert len(said) < 300


def test_what_is_neither_a_file_nor_a_folder(sets: Path):
    os.mkfifo("pipe.csv")
    (said,) = problems(KSOptions, target=(Path("pipe.csv"),))
    assert said.startswith("--target pipe.csv ")


def test_other_commands(sets: Path):
    for words, count in (
        (("efficacy", "--model", "no", "--params", "w.safetensors", "--reference", "a=b.safetensors"), 4),
        (("unlearn", "--data", "d.npz", "--test-data", "t.npz", "--level", "2", "--fraction", "0"), 4),
        (("power", "--query", "q.npz", "--calibration", "c.npz", "--fraction", "2"), 3),
        (("pdtp", "--csv", "t.csv", "--learning-rate", "0"), 2),
        (("attack", "--data", "t.csv", "--level", "0"), 2),
    ):
        done = jaxaudit(*words)
        assert done.code == 2
        assert done.err.count("Error: ") == count, done.err


def test_it_is_said_first_that_targets_are_simulated(sets: Path):
    def said(*words: str) -> bool:
        return "No --target" in jaxaudit("ks", *words).err

    assert not said(*QUICK, "--query", "c.npz@x")
    assert jaxaudit("ks", *QUICK, "--query", "query.npz@x").err.startswith("No --target")
    assert not said(*QUICK, "--target-data", "query.npz@x")
    assert not said("--model", "nowhere:f")

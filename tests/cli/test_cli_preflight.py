"""Everything wrong with the words of a command is said at once, before anything heavy is imported.

What else cannot be used is refused with one line that says so, before anything is trained or written.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import cli_runs
from support.cli_runs import QUICK, RECORDS, SETS, content, jaxaudit, options_of, records

from jaxaudit.cli import preflight
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.unlearn.command import UnlearnOptions
from jaxaudit.errors import InputError, InputErrors

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


def problems(kind: type[Any], **options: Any) -> list[str]:
    try:
        preflight.refuse_bad_options(options_of(kind, **options))
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
        *("--out", "query.npz", "--report", "nowhere/r.html", "--tests", "holdout,shadows"),
    )
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert all(line.startswith("Error: ") for line in lines)
    for said in (
        *("--query quer.npz", "--calibration gone/c.npy", "--holdout ~/h.npz", "--target t.csv", "--target u.csv"),
        *("--holdout-target th.csv", "--target-data fra.npz", "--target-data far.npz:2", "--model mine.py:f"),
        *("--hidden many", "--level ", "--subsample ", "--image-size 9", "--learning-rate "),
        *("--field-strength f.csv", "--data-dir far.npz", "--out query.npz", "nowhere/r.html"),
        *("--holdout-target 1", "--tests"),
    ):
        assert sum(said in line for line in lines) == 1, (said, lines)
    assert len(lines) == 20
    assert "did you mean query.npz?" in lines[[said.startswith("Error: --query") for said in lines].index(True)]
    assert content(sets) == before


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


def test_it_is_said_first_that_targets_are_simulated(sets: Path):
    def said(*words: str) -> bool:
        return "No --target" in jaxaudit("ks", *words).err

    assert not said(*QUICK, "--query", "c.npz@x")
    assert jaxaudit("ks", *QUICK, "--query", "query.npz@x").err.startswith("No --target")
    assert not said(*QUICK, "--target-data", "query.npz@x")
    assert not said("--model", "nowhere:f")


# What cannot be used


def refused(words: tuple[str, ...], *said: str) -> None:
    """The last line names all that it must, and nothing was trained or written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxaudit.audits.ks.train.train_rows", None)
        cli_runs.refused(("ks", *words), said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--query", "query.npz", "--tests", "shadow"), ("--query", "--calibration")),
        ((*QUICK, "--model", "resnet50x"), ("--model resnet50x", "mlp", "liu-cnn", "medical-cnn", "resnet-8-16")),
        ((*QUICK, "--optimizer", "lion"), ("--optimizer lion", "adam", "sgd", "package.module:function")),
        ((*QUICK, "--tests", "shaddow"), ("--tests", "shaddow", "shadow?")),
        ((*QUICK, "--tests", ","), ("--tests", "holdout", "shadow", "ema", "rho", "all")),
        ((*QUICK, "--out", "."), ("--out .",)),
        ((*QUICK, "--query", "mnits"), ("mnits", "mnist")),
        ((*QUICK, "--query", "query.npz@"), ("query.npz@",)),
        ((*QUICK, "--query", "query.npz@test"), ("query.npz", "test")),
        ((*QUICK, "--query", "evil\nError: \x1b[31mname"), (r"--query evil\nError: \x1b[31mname",)),
        ((*QUICK, "--query", "acdc:somewhere"), ("acdc:somewhere", "acdc:FOLDER@STRENGTH")),
    ],
)
def test_options(sets: Path, words: tuple[str, ...], said: tuple[str, ...]):
    refused(words, *said)


def saved(name: str, inputs: np.ndarray, labels: np.ndarray, **more: np.ndarray) -> None:
    np.savez(name, allow_pickle=True, x=inputs, y=labels, **more)


INPUTS, LABELS = records(9, 0.0)


def test_calibration_sets(sets: Path):
    saved("c", INPUTS, np.arange(RECORDS) % 4)
    refused((*QUICK, "--calibration", "c.npz"), "c.npz", "'3'", "query.npz", "--drop-unshared")
    saved("c", INPUTS[:, 1:], LABELS)
    refused((*QUICK, "--calibration", "c.npz"), "query.npz", "(12,)", "c.npz", "(11,)")


def test_a_pickled_npy_is_never_loaded(sets: Path):
    class Evil:
        def __reduce__(self):
            return (Path("owned").touch, ())

    np.save("x.npy", np.array([Evil()] * 3), allow_pickle=True)
    np.save("y.npy", np.arange(3))
    refused((*QUICK, "--query", "x.npy"), "x.npy", "pickle")


def test_classes_the_query_set_lacks_are_dropped_when_asked(sets: Path):
    saved("c", INPUTS, np.arange(RECORDS) % 4)
    # Outputs for one record stop the run right after the sets are matched.
    np.save("t.npy", np.full((1, 3), 1 / 3))
    refused((*QUICK, "--calibration", "c.npz", "--drop-unshared", "--target", "t.npy"), "t.npy", "1 row")


def test_target_data_of_another_shape(sets: Path):
    saved("t", INPUTS[:, 1:], LABELS)
    refused((*QUICK, "--target-data", "t.npz"), "t.npz", "(11,)", "query.npz", "(12,)")
    saved("t", INPUTS, np.arange(RECORDS) % 4)
    refused((*QUICK, "--target-data", "t.npz"), "t.npz", "query.npz", "'3'")


def test_an_out_directory_that_cannot_be(sets: Path):
    Path("fixed").mkdir(mode=0o555)
    refused((*QUICK, "--out", "fixed/run"), "--out fixed/run")
    Path("old").mkdir()
    Path("old/result.json").touch()
    refused((*QUICK, "--out", "old"), "--out old")
    refused((*QUICK, "--out", "x" * 300), "--out xxx", "File name too long")


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

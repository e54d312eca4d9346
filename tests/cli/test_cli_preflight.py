"""What is wrong with a command's words is said at once, before anything heavy is imported; how words become values."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import cli_runs
from support.cli_runs import QUICK, SETS, content, jaxaudit, recipe

from jaxaudit.cli import harness, progress
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.parsers import SHARES, parse_hidden, parse_images, share_check
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.unlearn import UnlearnOptions
from jaxaudit.errors import InputError, InputErrors
from jaxaudit.runs import describe_machine

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
        harness.refuse_bad_options(kind(**options))
    except InputErrors as errors:
        return list(errors.problems)
    except InputError as error:
        return [str(error)]
    return []


def test_all_problems_at_once(sets: Path):
    before = content(sets)
    done = jaxaudit(
        *("ks", "--query", "quer.npz", "--calibration", "gone/c.npy@train", "--deal", "~/deal", "--before", "b.npz"),
        *("--target", "t.csv", "--target", "u.csv"),
        *("--model", "mine.py:f", *recipe("hidden=many", "learning-rate=-1")),
        *("--test-option", "rho=0", "--images", "9"),
        *("--out", "query.npz", "--report", "nowhere/r.html", "--tests", "holdout,shadows"),
    )
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert all(line.startswith("Error: ") for line in lines)
    for said in (
        *("--query quer.npz", "--calibration gone/c.npy", "/deal: there is no such", "--target t.csv"),
        *("--target u.csv", "--before b.npz", "--model mine.py:f"),
        *("--recipe hidden=many", "--test-option rho=0", "--images 9", "--recipe learning-rate "),
        *("--out query.npz", "nowhere/r.html", "--tests"),
    ):
        assert sum(said in line for line in lines) == 1, (said, lines)
    assert len(lines) == 14
    assert content(sets) == before


def test_names_that_may_be_sets_are_left_to_be_found_out(sets: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAXAUDIT_DATA", "data")
    Path("folder").mkdir()
    Path("data").mkdir()
    Path("data/here.npz").touch()
    Path("a@b.npz").touch()
    for name in (
        *("mnist", "svhn_cropped@train", "mnist@train[:10]", "emnist/letters:3.1.0", "emnist/letters"),
        *("digits", "digits@train[:100]", "query.npz", "query.npz@train", "folder"),
        *("here.npz", "folder/", "a@b.npz", "@train"),
    ):
        assert problems(KSOptions, query=name) == [], name
        assert problems(UnlearnOptions, data=name) == [], name


def test_names_that_can_only_be_paths(sets: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAXAUDIT_DATA", raising=False)
    paths = ("nowhere.npz", "./mnist", "~/mnist", "/mnist", "a/b/c", "query.npz/x", "a b", "n\0l")
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
        ((*QUICK, "--model", "resnet50x"), ("--model resnet50x", "mlp", "liu-cnn", "resnet-8-16")),
        ((*QUICK, "--tests", "shaddow"), ("--tests", "shaddow", "shadow?")),
        ((*QUICK, "--tests", ","), ("--tests", "holdout", "shadow", "rho", "all")),
        ((*QUICK, "--out", "."), ("--out .",)),
        ((*QUICK, "--query", "mnits"), ("mnits", "mnist")),
        ((*QUICK, "--query", "query.npz@"), ("query.npz@",)),
        ((*QUICK, "--query", "query.npz@test"), ("query.npz", "test")),
        ((*QUICK, "--query", "evil\nError: \x1b[31mname"), (r"--query evil\nError: \x1b[31mname",)),
    ],
)
def test_options(sets: Path, words: tuple[str, ...], said: tuple[str, ...]):
    refused(words, *said)


def test_a_pickled_npy_is_never_loaded(sets: Path):
    class Evil:
        def __reduce__(self):
            return (Path("owned").touch, ())

    Path("evil").mkdir()
    np.save("evil/x.npy", np.array([Evil()] * 3), allow_pickle=True)
    np.save("evil/y.npy", np.arange(3))
    refused((*QUICK, "--query", "evil"), "x.npy", "pickle")


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
        ("ks", *SETS, "--tests", "shadow,rho"),
        ("pdtp", "--data", "query.npz", "--model", "nn"),
        ("attack", "--data", "query.npz", "--attacks", "distance"),
        ("power", *SETS, "--groups", "groups"),
        ("efficacy",),
        ("unlearn", "--data", "query.npz"),
    ]
    words = json.dumps([[*command, "--out", "run", "--report", "page.html"] for command in commands])
    done = subprocess.run([sys.executable, "-c", BEFORE, words], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["False"] * len(commands), done.stderr


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still unless moved."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_nothing_is_estimated_before_steps_were_timed(clock: list[float], capsys: pytest.CaptureFixture[str]):
    """Compiling for a minute says nothing of the steps; nor do chunks that were kept from before."""
    with progress_on_stderr("training", "comparing") as show:
        for now, done in ((0, 0), (60, 0), (61, 500), (95, 500), (130, 600), (165, 700), (200, 1000), (201, 1000)):
            clock[0] = 1000.0 + now
            show(done, 1000)
        for done in (1, 3):
            clock[0] += 40
            show(done, 4)
    assert capsys.readouterr().err.splitlines() == [
        "training: 0% after 60 s, compiling",
        "training: 50% after 95 s, timing the first steps",
        "training: 60% after 2 min, about 5 min left",
        "training: 70% after 3 min, about 3 min left",
        "training: 100% after 3 min",
        "comparing",
        "comparing: 25% after 41 s, timing the first steps",
        "comparing: 75% after 81 s, timing the first steps",
    ]


def test_what_is_said_is_one_line(capsys: pytest.CaptureFixture[str]):
    say("a\nb\x1b[31m")
    assert capsys.readouterr() == ("", "a\\nb\\x1b[31m\n")


def test_only_settings_that_decide_a_number_are_told(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_", "CUDA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/home/someone")
    monkeypatch.setenv("JAX_LOGGING_LEVEL", "INFO")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/home/someone --xla_cpu_enable_fast_math=false")
    told = describe_machine()["environment"]
    assert told == {"JAX_DEFAULT_MATMUL_PRECISION": "highest", "XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}


@pytest.mark.parametrize("name", SHARES)
def test_shares_and_factors(name: str):
    check = share_check(name)
    unbounded = name.endswith("rate")
    for right in (0.95, 10.0) if unbounded else (0.95,):
        check(right)
    for wrong in (-0.1, *(() if unbounded else (1.1,)), float("nan"), float("inf")):
        with pytest.raises(InputError, match=rf"^`{name}` .*{wrong:g}"):
            check(wrong)


def test_image_sizes_and_hidden_layers():
    for text, size in (("28x28", (28, 28)), ("7X9", (7, 9)), ("none", None), ("١x2", (1, 2))):
        assert parse_images(text) == (size, True)
        assert parse_images(f"{text},color") == (size, False)
    for text in ("", "28", "x", "28x", "x28", "0x28", "8x00", "8x0,color", "-1x2", "1.5x2", "28x28x1", "²x2", "color"):
        with pytest.raises(InputError, match=r"^--images .*28x28"):
            parse_images(text)
    assert (parse_hidden("512,256,128"), parse_hidden(" 16 , "), parse_hidden("")) == ((512, 256, 128), (16,), ())
    for text in ("12,0", "12,many", "-1", "65537", "1e3"):
        with pytest.raises(InputError, match=rf"^--recipe hidden={text}"):
            parse_hidden(text)

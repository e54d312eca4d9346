"""The command as a process: signals, closed pipes, and what it imports."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runs import QUICK, content, jaxaudit, process

from jaxaudit.cli.app import app
from jaxaudit.version import __version__

HEAVY = ("jax", "numpy", "scipy", "sklearn", "flax", "optax", "matplotlib", "PIL", "pyarrow", "tensorflow_datasets")
ENDLESS = (*QUICK, "--epochs", "100000000", "--out", "run")


def start(cwd: Path, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "jaxaudit", *words], cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def training(sets: Path):
    """A run that has started to train and would never end, in a folder that held these files before."""
    before = content(sets)
    run = start(sets, "ks", *ENDLESS)
    assert run.stderr is not None
    assert run.stderr.readline() == "training 10 mlp models on cpu, 100000000 epochs each\n"
    yield run, before
    run.kill()
    run.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_before_anything_is_finished_is_one_line_and_leaves_nothing(
    sets: Path, training: tuple[subprocess.Popen[str], dict[str, bytes | None]], number: signal.Signals
):
    run, before = training
    time.sleep(1)
    run.send_signal(number)
    out, err = run.communicate(timeout=300)
    assert (run.returncode, out) == (130, "")
    assert err == "Interrupted: nothing was kept; the same command starts anew.\n"
    assert content(sets) == before


@pytest.mark.parametrize("words", [("ks", "--help"), ("ks", *QUICK, "--json")])
def test_a_reader_that_leaves_early_is_no_error(sets: Path, words: tuple[str, ...]):
    reader, writer = os.pipe()
    run = start(sets, *words, stdout=writer)
    os.close(writer)
    os.close(reader)
    _, err = run.communicate(timeout=300)
    assert run.returncode == 1
    assert not [line for line in err.splitlines() if not line.startswith("training")]


def test_help_imports_nothing_heavy(tmp_path: Path):
    program = (
        "import sys\n"
        "from jaxaudit.cli import main\n"
        "try:\n    main()\n"
        f"finally:\n    print(*sorted(set(sys.modules) & set({HEAVY})), file=sys.stderr)\n"
    )
    for words in (["--help"], ["ks", "--help"], ["--version"], ["ks", "--epochs", "0"]):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.stderr.splitlines()[-1] == "", words
        assert done.returncode == (2 if "0" in words else 0)


def test_version():
    assert jaxaudit("--version") == (0, f"jaxaudit {__version__}\n", "")


def test_no_words_print_the_help():
    done = jaxaudit()
    assert "Usage: " in done.out + done.err
    assert " ks " in done.out + done.err


def test_a_failing_process_with_its_traceback(sets: Path):
    Path("mine.py").write_text("def f(input_shape, classes, *, rngs):\n    raise RuntimeError('no luck')\n")
    done = process("ks", *QUICK, "--model", "mine:f", cwd=sets, JAXAUDIT_DEBUG="1")
    assert done.code == 1
    assert done.err.startswith("Traceback (most recent call last):\n")
    assert "\nRuntimeError: no luck\n" in done.err


def test_bad_input_to_a_process(sets: Path):
    before = content(sets)
    done = process("ks", *QUICK, "--target", "gone.npy", "--out", "run", cwd=sets)
    assert done == (2, "", "Error: gone.npy: there is no such file; is the path right?\n")
    assert content(sets) == before


COMMANDS = {command.callback.__name__: command.callback for command in app.registered_commands if command.callback}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example_that_parses(name: str):
    shown = jaxaudit(name, "--help")
    assert shown.code == 0
    examples = re.findall(r"`jaxaudit ([^`]+)`", COMMANDS[name].__doc__ or "")
    assert name in {example.split()[0] for example in examples}
    for example in examples:
        command, *words = example.split()
        known = shown.out if command == name else jaxaudit(command, "--help").out
        assert f"jaxaudit {command}" in known
        flags = {word for word in words if word.startswith("-")}
        assert flags <= set(re.findall(r"--[a-z][a-z-]*", known)), example

"""The command as a process: signals, closed pipes, and what it imports."""

import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from support.banks import QUERY, RECORDS, planned, target, train
from support.cli_runs import jaxaudit, process

from jaxaudit import load_bank
from jaxaudit.cli.options import at_home

HEAVY = ("jax", "numpy", "scipy", "sklearn", "flax", "optax", "matplotlib", "PIL", "pyarrow", "tensorflow_datasets")
MISSPELT = ("--query", "q.npz", "--calibration", "c.npz", "--target", "t.csv")
SHORT = ("pdtp", "--data", "wine", "--model", "nb")


@pytest.mark.outer
def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "jaxaudit", *SHORT, "--json"]
    done = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(writer)
    assert done.returncode == 1
    assert not [line for line in done.stderr.splitlines() if line.startswith(("Error", "Traceback", "Exception"))]


@pytest.mark.outer
@pytest.mark.parametrize("place", ["/dev/full", "&-"])
def test_a_full_or_closed_stdout_is_said_in_a_line(tmp_path: Path, place: str):
    if place == "/dev/full" and not Path(place).exists():
        pytest.skip("there is no device that is always full")
    words = ("-m", "jaxaudit", "deal", "digits", "--out", "d")
    shell = ["/bin/sh", "-c", f'exec "$0" "$@" >{place}', sys.executable, *words]
    done = subprocess.run(shell, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(r"Error: .*stdout.*\n", done.stderr)


@pytest.mark.outer
def test_an_encoding_that_lacks_a_character_is_no_error(tmp_path: Path):
    (tmp_path / "people.csv").write_text("a,who\n" + "".join(f"{n % 3},{'日本x'[n % 3]}\n" for n in range(30)), "utf-8")
    words = ("pdtp", "--data", "people.csv", "--label", "who", "--model", "nb", "--categorical", "a")
    done = process(*words, cwd=tmp_path, PYTHONIOENCODING="ascii", COLUMNS="80")
    assert done.code == 0, done.err
    assert done.out.isascii()
    assert "\\u65e5" in done.out
    assert "|###" in done.out


def test_the_home_folder_is_meant_in_every_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Else Matplotlib looks for fonts again, by a process.
    monkeypatch.setenv("MPLCONFIGDIR", matplotlib.get_cachedir())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert at_home(Path("~/a")) == tmp_path / "a"
    assert [at_home(Path(each)) for each in ("c", "a/~", "~nobody-is-called-so/b")] == [
        *map(Path, ("c", "a/~", "~nobody-is-called-so/b"))
    ]
    done = jaxaudit(*SHORT, "--out", "~/run", "--report", "~/page.html")
    assert done.code == 0, done.err
    assert {"run", "page.html"} <= set(os.listdir(tmp_path))
    assert "~" not in os.listdir(tmp_path)
    for verb in ("written", "replaced"):
        assert f"{verb}: " in jaxaudit("report", "~/run", "--out", "~/again.html").err
    assert "again.html" in os.listdir(tmp_path)
    # What is handed on does not say where that is.
    assert str(tmp_path) not in "".join(
        path.read_text() for path in (tmp_path / "run/result.json", tmp_path / "page.html")
    )


def test_without_a_home_folder_paths_are_asked_for_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.path.expanduser", os.fspath)
    assert jaxaudit(*SHORT).code == 0
    refused = jaxaudit(*SHORT, "--out", "~/run")
    assert refused.code == 2
    assert "~/run" in refused.err
    assert os.listdir() == []


IMPORTED = f"""
import sys
from jaxaudit.cli import main
try:
    main()
finally:
    print(*sorted(sys.modules.keys() & {{*{(*HEAVY, "scipy.stats", "torch")}}}), file=sys.stderr)
"""
"""A command that prints which heavy libraries it imported."""


@pytest.mark.outer
def test_help_imports_nothing_heavy(tmp_path: Path):
    for words in (["--help"], ["ks", "--help"], ["--version"], ["ks", "--epochs", "0"], ["ks", *MISSPELT]):
        done = subprocess.run([sys.executable, "-c", IMPORTED, *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.stderr.splitlines()[-1] == "", words
        assert done.returncode == (2 if words[-1] in ("0", "t.csv") else 0)


@pytest.mark.outer
def test_a_bank_is_read_without_the_libraries_of_networks_and_of_tables(tmp_path: Path):
    bank = load_bank(planned(tmp_path / "bank", 21, 0, holdout=True))
    train(bank, range(21), 6.0)
    target(bank.directory, "used", np.arange(RECORDS) < QUERY, 6.0)
    ks = ("ks", "--target", "used.npz")
    for command, *options in (ks, ("attack", "--attacks", "lira")):
        words = [command, "--shadows", "bank", *options]
        done = subprocess.run([sys.executable, "-c", IMPORTED, *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0
        assert not {"flax", "pyarrow", "scipy.stats", "torch"} & set(done.stderr.splitlines()[-1].split())

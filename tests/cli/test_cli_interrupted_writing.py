"""Ctrl-C while a command writes: what it writes stands whole or not at all, and a line says which."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from support.cli_runs import jaxaudit
from support.language_models import save_model, write_lines

from jaxaudit.cli.progress import MARKS
from jaxaudit.data.bank.description import DESCRIPTION
from jaxaudit.data.challenge import DEAL_RECORD
from jaxaudit.data.paths import DRAFT, whole_file
from jaxaudit.runs.directory import RESULT

DEAL = ("deal", "p.csv", "--label", "set", "--seed", "3")
KS = ("ks", "--scores", "s.csv")


@contextmanager
def unread() -> Iterator[tuple[int, int]]:
    """The ends of a pipe that is full: who prints to it waits."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b" " * 512)
    except BlockingIOError:
        os.set_blocking(writer, True)
    try:
        yield reader, writer
    finally:
        os.close(reader)


def signal_once(
    run: subprocess.Popen[str], reached: Callable[[], bool], number: signal.Signals = signal.SIGINT
) -> None:
    """Sends a signal as soon as this is so; a process that never comes there is killed."""
    deadline = time.monotonic() + 120
    while not reached():
        if run.poll() is not None or time.monotonic() > deadline:
            run.kill()
            pytest.fail(f"the process did not come so far: {run.communicate()}")
        time.sleep(0.002)
    run.send_signal(number)


def interrupted(words: tuple[str, ...], until: Path) -> tuple[int, str]:
    """Status and standard error of a command that gets SIGINT once this file is there, before its result is printed."""
    with unread() as (reader, stdout):
        command = [sys.executable, "-m", "jaxaudit", *words]
        with subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True) as run:
            os.close(stdout)
            signal_once(run, until.exists)
            # What is still printed as the process ends would wait, too.
            while os.read(reader, 1 << 16):
                pass
            _, err = run.communicate(timeout=60)
    return run.returncode, err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(5)
    rows = [f"{a:.3f},{b:.3f},{('query', 'holdout')[n % 2]}" for n, (a, b) in enumerate(random.normal(size=(60, 2)))]
    Path("p.csv").write_text("\n".join(["a,b,set", *rows]) + "\n")
    Path("s.csv").write_text("\n".join(["set,target.loss", *(f"{row[-1]},{row[0]}" for row in map(_cells, rows))]))
    return tmp_path


def _cells(row: str) -> list[str]:
    return row.split(",")


def test_a_directory_is_marked_by_the_file_that_is_written_last():
    assert set(MARKS) == {RESULT, DEAL_RECORD, DESCRIPTION}


@pytest.mark.outer
@pytest.mark.parametrize(
    ("words", "out", "mark"),
    [
        ((*DEAL, "--out", "dealt"), "dealt", DEAL_RECORD),
        ((*KS, "--out", "run"), "run", RESULT),
        ((*KS, "--report", "page.html"), "page.html", ""),
    ],
)
def test_what_was_written_stands_whole_and_a_line_says_so(
    words: tuple[str, ...], out: str, mark: str, here: Path
) -> None:
    code, err = interrupted(words, Path(out, mark))
    assert (code, "Traceback" in err) == (130, False), err
    assert f"{out} is written, and whole." in err.splitlines()[-1], err
    Path(out).rename(f"first-{out}")
    assert jaxaudit(*words).code == 0
    again = sorted(path for path in [Path(out), *Path(out).rglob("*")] if path.is_file())
    for path in again:
        # Times and paths are of one run.
        if path.suffix in (".csv", ".txt"):
            assert path.read_bytes() == Path(f"first-{path}").read_bytes()
        assert Path(f"first-{path}").is_file()
    assert not [path for path in here.rglob("*") if path.name.startswith(DRAFT) or path.name == "unfinished"]


@pytest.mark.outer
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_scoring_leaves_no_table_and_its_repetition_is_as_if_it_had_never_been_stopped(
    number: signal.Signals, here: Path
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (the torch extra)")
    pytest.importorskip("transformers", reason="transformers is not installed")
    for seed, name in enumerate(("target", "base")):
        save_model(here / name, seed=seed)
    words: tuple[str, ...] = ("scores", "lm", "target", "--baseline", "base")
    for more, of in enumerate(("query", "holdout")):
        texts = [{"text": f"{of} {row} {'word ' * (12 + more)}"} for row in range(800)]
        words += (f"--{of}", str(write_lines(f"{of}.jsonl", texts)))
    cache = here / "cache"
    environment = {**os.environ, "JAXAUDIT_CACHE": str(cache)}
    command = [sys.executable, "-m", "jaxaudit", *words, "--out", "new.csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as run:
        signal_once(run, lambda: bool(list(cache.glob("token-scores*"))), number)
        out, err = run.communicate(timeout=60)
    killed = number == signal.SIGKILL
    assert (run.returncode, out, "Traceback" in err) == (-number if killed else 130, "", False), err
    if not killed:
        kept, last = err.splitlines()[-2:]
        assert last == "Interrupted: nothing was written."
        assert "are kept: the same command goes on from there" in kept
    kept_scores = 0
    for path in cache.glob("token-scores*"):
        with np.load(path, allow_pickle=False) as archive:
            kept_scores += len(archive["digests"])
    # Of two models.
    assert 0 < kept_scores < 2 * 1600
    assert not [path for path in here.iterdir() if path.name.startswith(DRAFT) or path.name == "new.csv"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    anew = subprocess.run(
        [*command[:-1], "anew.csv"],
        capture_output=True,
        text=True,
        env={**environment, "JAXAUDIT_CACHE": str(here / "other")},
        timeout=300,
    )
    assert anew.returncode == 0, anew.stderr
    assert Path("new.csv").read_bytes() == Path("anew.csv").read_bytes()


def _interrupt(file: IO[bytes]) -> None:
    file.write(b"set,")
    raise KeyboardInterrupt


def test_an_interruption_within_the_writing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "new.csv") as file:
        _interrupt(file)
    assert not list(tmp_path.iterdir())

"""A run that is stopped anywhere goes on, and ends as if it had never been stopped."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.cli_runs import LEARNS, jaxaudit, recipe, refused, stopping
from support.people import PEOPLE, write_people

from jaxaudit.ensemble import kept_models

SLOW = (*LEARNS, "--tests", "rho", "--test-option", "rho.replicates=12", "--epochs", "80")
SLOW += (*recipe("models-per-batch=1"), "--json")
"""28 chunks of one model: more than are ever trained at the same time."""


@contextmanager
def started(*ATTACK: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "jaxaudit", "ks", *ATTACK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


def chunks(work: str = "run/unfinished") -> set[Path]:
    return set(Path(work).glob("chunks/*/*.npz"))


def wait_for_another_chunk(run: subprocess.Popen[str]) -> None:
    before, deadline = chunks(), time.monotonic() + 120
    while chunks() <= before:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def models_kept(line: str, word: str = "Interrupted", of: int = 28) -> int:
    found = re.match(rf"{word}: (\d+) of {of} models ", line)
    assert found, line
    return int(found[1])


@pytest.mark.outer
def test_a_run_killed_and_stopped_and_started_again(sets: Path):
    """`kills.py` does so at length."""
    whole = jaxaudit("ks", *SLOW, "--out", "whole").result

    with started(*SLOW, "--out", "run") as first:
        wait_for_another_chunk(first)
        first.kill()
        first.communicate()
    assert os.listdir("run") == ["unfinished"]

    finished = kept_models(Path("run/unfinished/chunks"))
    with started(*SLOW, "--out", "run") as second:
        assert second.stderr is not None
        assert "three targets" in second.stderr.readline()
        assert "28 models" in second.stderr.readline()
        assert models_kept(second.stderr.readline(), "Resuming") == finished
        wait_for_another_chunk(second)
        # It does not run away while it is looked at: a signal stops threads one by one, a while after it was sent.
        second.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, second.pid, os.WSTOPPED)
        said = refused(("ks", *SLOW, "--out", "run"))
        assert said.startswith("Error: --out run is in use ")
        second.send_signal(signal.SIGTERM)
        second.send_signal(signal.SIGCONT)
        out, err = second.communicate()
    assert (second.returncode, out, "Traceback" in err) == (130, "", False)
    kept = models_kept(err.splitlines()[-1])
    assert finished < kept < 28

    said = refused(("ks", *SLOW, "--epochs", "9", "--seed", "8", "--out", "run"))
    assert said.startswith("Error: --out run ")
    assert re.search(r"epochs: 80\b.*\b9\b.*seed: 7\b.*\b8\b", said), said
    done = jaxaudit("ks", *SLOW, "--out", "run")
    assert models_kept(done.err.splitlines()[2], "Resuming") == kept
    assert done.result["targets"] == whole["targets"]
    assert done.result["noise_floor"] == whole["noise_floor"]
    assert sorted(os.listdir("run")) == ["confidences.npz", "result.json", "table.txt"]
    assert json.loads(Path("run/result.json").read_text()) == done.result
    with np.load("run/confidences.npz") as ours, np.load("whole/confidences.npz") as theirs:
        assert {name: ours[name].tobytes() for name in ours} == {name: theirs[name].tobytes() for name in theirs}
    assert refused(("ks", *SLOW, "--out", "run")).startswith("Error: --out run ")


ATTACK = ("attack", *PEOPLE, "--iterations", "2", "--targets", "5", "--epochs", "5", "--attacks", "distance", "--json")
ATTACK += recipe("batch-size=10", "models-per-batch=4")


@pytest.mark.outer
def test_a_command_on_a_table_goes_on_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What `pdtp` does is tested with workers, and `unlearn` beside what it finds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jaxaudit.ensemble.train.concurrent_chunks", lambda: 1)
    write_people(tmp_path)
    whole = jaxaudit(*ATTACK, "--out", "whole").result
    with monkeypatch.context() as patch:
        patch.setattr("jaxaudit.cli.progress.progress_on_stderr", stopping(0.6))
        stopped = jaxaudit(*ATTACK, "--out", "run")
    assert stopped.code == 130
    kept, _, total = stopped.err.splitlines()[-1].removeprefix("Interrupted: ").split()[:3]
    assert 0 < int(kept) < int(total)
    assert re.search(r"\(epochs: 5\b.*\b31\b", refused((*ATTACK, "--out", "run", "--epochs", "31")))
    done = jaxaudit(*ATTACK, "--out", "run")
    assert f"Resuming: {kept} of {total} models " in done.err
    assert {**done.result, "provenance": None} == {**whole, "provenance": None}
    assert sorted(os.listdir("run")) == sorted(os.listdir("whole"))

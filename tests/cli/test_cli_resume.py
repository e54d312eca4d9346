"""A run that is stopped anywhere goes on, and ends as if it had never been stopped."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.cli_runs import LEARNS, QUICK, content, jaxaudit, records

from jaxaudit.ensemble import kept_models
from jaxaudit.ensemble.models_per_batch import BatchChoice
from jaxaudit.runs import identity

pytestmark = pytest.mark.slow

SLOW = (*LEARNS, "--target-data", "query.npz", "--replicates", "12", "--epochs", "80", "--width", "1", "--json")
"""26 chunks of one model: more than are ever trained at the same time."""


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "jaxaudit", "ks", *words]
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


IN_TRAINING = r"(?:, \d more (?:is|are) in epochs? \d+(?: to \d+)? of \d+)?"


def models_kept(line: str) -> int:
    found = re.fullmatch(
        rf"Interrupted: (\d+) of \d+ models are trained{IN_TRAINING}; the same command goes on from there\.\n", line
    )
    assert found, line
    return int(found[1])


def refused(*words: str) -> str:
    """The one line with which these words are refused; nothing is changed by it."""
    before = content(Path.cwd())
    done = jaxaudit("ks", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert content(Path.cwd()) == before
    return done.err.strip()


def test_a_run_killed_and_stopped_and_started_again(sets: Path, monkeypatch: pytest.MonkeyPatch):
    """Within its chunks, too; `kills.py` does so at length."""
    monkeypatch.setenv("JAXAUDIT_KEEP_SECONDS", "0.01")
    whole = jaxaudit("ks", *SLOW, "--out", "whole").result

    with started(*SLOW, "--out", "run") as first:
        wait_for_another_chunk(first)
        first.kill()
        first.communicate()
    assert os.listdir("run") == ["unfinished"]

    finished = kept_models(Path("run/unfinished/chunks"))
    with started(*SLOW, "--out", "run") as second:
        assert second.stderr is not None
        assert second.stderr.readline() == "training 26 mlp models on cpu, 80 epochs each\n"
        said = second.stderr.readline()
        assert re.fullmatch(rf"Resuming: {finished} of 26 models are trained{IN_TRAINING}\.\n", said), said
        wait_for_another_chunk(second)
        # It does not run away while it is looked at.
        second.send_signal(signal.SIGSTOP)
        assert refused(*SLOW, "--out", "run") == (
            f"Error: --out run is in use by another process (pid {second.pid}); wait for it to end, or name another "
            "directory."
        )
        second.send_signal(signal.SIGINT)
        second.send_signal(signal.SIGCONT)
        out, err = second.communicate()
    assert (second.returncode, out) == (130, "")
    kept = models_kept(err)
    assert finished < kept < 26

    holds = "Error: --out run holds an unfinished run made with "
    advice = (
        "; repeat its own command to go on, name another directory, or delete it to start anew (nothing was changed)."
    )
    assert refused(*SLOW, "--epochs", "9", "--seed", "8", "--out", "run") == (
        f"{holds}other options (epochs: 80 there, 9 here; seed: 7 there, 8 here){advice}"
    )
    with monkeypatch.context() as patch:
        patch.setattr(identity, "sources_hash", lambda: "blake2b:0")
        assert refused(*SLOW, "--out", "run").startswith(f"{holds}another version of the code (sources: blake2b:")
    own = Path("calibration.npz").read_bytes()
    inputs, labels = records(99, 0.5)
    np.savez("calibration.npz", x=inputs, y=labels)
    other = refused(*SLOW, "--out", "run")
    assert re.match(rf"{re.escape(holds)}other data \(calibration: blake2b:\w+ there, blake2b:\w+ here\); rep", other)
    Path("calibration.npz").write_bytes(own)

    done = jaxaudit("ks", *SLOW, "--out", "run")
    said = done.err.splitlines()[1]
    assert re.fullmatch(rf"Resuming: {kept} of 26 models are trained{IN_TRAINING}\.", said), said
    assert done.result["targets"] == whole["targets"]
    assert done.result["noise_floor"] == whole["noise_floor"]
    assert sorted(os.listdir("run")) == ["confidences.npz", "result.json", "table.txt"]
    assert json.loads(Path("run/result.json").read_text()) == done.result
    with np.load("run/confidences.npz") as ours, np.load("whole/confidences.npz") as theirs:
        assert {name: ours[name].tobytes() for name in ours} == {name: theirs[name].tobytes() for name in theirs}
    assert refused(*SLOW, "--out", "run") == (
        "Error: --out run already holds another run; name a new directory (nothing was changed)."
    )


def stopping(share: float) -> Callable[[str, str], object]:
    @contextmanager
    def progress(label: str, after: str) -> Iterator[Callable[[int, int], None]]:
        def show(done: int, total: int) -> None:
            if done > share * total:
                raise KeyboardInterrupt

        yield show

    return progress


def test_without_a_directory_the_same_command_goes_on_too(sets: Path, monkeypatch: pytest.MonkeyPatch):
    """At the width it had measured, also where another run of the same kind has measured another one meanwhile."""
    monkeypatch.setattr("jaxaudit.ensemble.train.concurrent_chunks", lambda: 1)  # a chunk at a time, on any machine
    cache = sets / "cache"
    monkeypatch.setenv("JAXAUDIT_CACHE", str(cache))
    words = [word for word in QUICK if word not in ("--width", "9")]
    whole = jaxaudit("ks", *words, "--seed", "2", "--width", "2", "--json").result
    assert list(cache.glob("unfinished/*")) == []
    with monkeypatch.context() as patch:
        patch.setattr("jaxaudit.audits.ks.models.measure_models_per_batch", lambda *_: BatchChoice(2, {}))
        patch.setattr("jaxaudit.cli.ks.run.progress_on_stderr", stopping(0.6))
        stopped = jaxaudit("ks", *words, "--seed", "2", "--json")
    assert stopped.code == 130
    kept = models_kept(stopped.err.splitlines(keepends=True)[-1])
    assert 0 < kept < 10
    (left,) = cache.glob("unfinished/*")
    monkeypatch.setattr("jaxaudit.cli.ks.run.recall_width", lambda _: 3)
    done = jaxaudit("ks", *words, "--seed", "2", "--json")
    assert f"Resuming: {kept} of 10 models are trained.\n" in done.err
    assert done.result["provenance"]["options"]["width"] == 2
    assert done.result["targets"] == whole["targets"]
    assert not left.exists()

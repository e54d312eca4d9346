"""Kills long commands at random moments within their chunks, and compares what they end with.

    python tests/kills.py                                       10 kills of each command, half an hour
    python tests/kills.py --kills 3 --seed 8 unlearn "pdtp nn"

Each runs in a process of its own, is killed (SIGKILL), started again, and so on, then left alone; every file of its run
directory must then be, byte for byte, that of a run which was never killed, but for the times in `result.json`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from support.cli_runs import content, recipe, write_sets

SETS = ("--query", "query.npz", "--calibration", "calibration.npz", *recipe("batch-size=50"))
IMAGES = ("--query", "images.npz", "--calibration", "others.npz", *recipe("batch-size=20"))
COMMANDS = {
    "ks mlp": (
        *("ks", *SETS, *recipe("hidden=256,128"), "--epochs", "800", "--test-option", "rho.replicates=2"),
        *("--tests", "rho"),
    ),
    "ks liu-cnn": (
        *("ks", *IMAGES, "--model", "liu-cnn", "--epochs", "40", "--test-option", "rho.replicates=1"),
        *("--tests", "rho"),
    ),
    "power": (
        *("power", *SETS, *recipe("hidden=64", "models-per-batch=5"), "--effort", "full", "--epochs", "2000"),
        *("--models", "19"),
    ),
    "pdtp nn": ("pdtp", "--epochs", "1500", "--measured-records", "12", *recipe("models-per-batch=6")),
    "attack nn": (
        *("attack", "--data", "breast-cancer", "--sample", "300", "--iterations", "2", "--targets", "6"),
        *("--shadow-pairs", "2", "--measured-iterations", "1", "--epochs", "1000", "--attacks", "distance,frequency"),
        *recipe("models-per-batch=4"),
    ),
    "unlearn": (
        *("unlearn", "--per-class", "40", "--seeds", "4", "--epochs", "1500", "--attack-epochs", "100"),
        *recipe("hidden=64", "models-per-batch=2"),
    ),
}
"""Chunks that take several seconds each."""


class Killed(NamedTuple):
    """A run that was killed again and again.

    Attributes:
        kills: how often; less than asked for where it was through before.
        within: how many kills came after a chunk in training was kept since the start.
        differing: names of files that are not those of the run that was never killed.
    """

    kills: int
    within: int
    differing: list[str]


def kill_again_and_again(words: Sequence[str], folder: Path, kills: int, generator: np.random.Generator) -> Killed:
    """Runs `jaxaudit WORDS` in `folder`, where `write_data` was called, once in peace and once killed."""
    with _started(words, folder) as run:
        _wait(run, folder, 0.0)
        began = time.monotonic()
        _end(run)
    span = time.monotonic() - began
    (folder / "run").rename(folder / "whole")
    done = within = 0
    while done < kills and not _is_through(folder):
        before = _newest(folder)
        with _started(words, folder) as run:
            # Every fourth is killed wherever it is, the others when they have got further than the one before.
            _wait(run, folder, generator.uniform(0, span / kills), anywhere=done % 4 == 3)
            run.send_signal(signal.SIGKILL)
            _end(run, -signal.SIGKILL)
        if not _is_through(folder):
            done, within = done + 1, within + (_newest(folder) > before)
    if not _is_through(folder):
        with _started(words, folder) as run:
            _end(run)
    ours, theirs = (_comparable(folder / name) for name in ("run", "whole"))
    different = (name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    return Killed(done, within, sorted(different))


def write_data(folder: Path) -> None:
    """The data that `COMMANDS` name."""
    write_sets(folder)
    for seed, name in enumerate(("images", "others")):
        random = np.random.default_rng(seed)
        labels = np.arange(60) % 3
        images = (random.uniform(size=(60, 28, 28, 1)) + labels[:, None, None, None]) / 3
        np.savez(folder / f"{name}.npz", x=images.astype(np.float32), y=labels)


def _started(words: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """The command, which makes `run/result.json`; what is compiled once need not be after every kill."""
    own = {"JAXAUDIT_KEEP_SECONDS": "0.2", "JAXAUDIT_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "jaxaudit", *words, "--out", "run"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env={**os.environ, **own}, **pipes)


def _end(run: subprocess.Popen[str], *codes: int) -> None:
    _, err = run.communicate()
    assert run.returncode in (0, *codes), err


def _is_through(folder: Path) -> bool:
    result = folder / "run" / "result.json"
    return result.exists() and result.stat().st_size > 0


def _chunks(folder: Path) -> Path:
    """Where the run keeps its models, once it does."""
    return next((path.parent / "chunks" for path in folder.rglob("identity.json")), folder / "none")


def _wait(run: subprocess.Popen[str], folder: Path, seconds: float, *, anywhere: bool = False) -> None:
    """Until so many seconds after the first training state is written, or, `anywhere`, after the first could be."""
    before, patience = _newest(folder), time.monotonic() + 300
    while run.poll() is None and not (anywhere and _chunks(folder).exists()) and _newest(folder) <= before:
        assert time.monotonic() < patience
        time.sleep(0.01)
    deadline = time.monotonic() + seconds
    while run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


def _newest(folder: Path) -> float:
    """When a training state was written last."""
    times = [0.0]
    for path in _chunks(folder).rglob("*.state"):
        try:
            times.append(path.stat().st_mtime)
        except FileNotFoundError:
            continue
    return max(times)


def _comparable(folder: Path) -> dict[str, object]:
    files: dict[str, object] = dict(content(folder))
    result = json.loads((folder / "result.json").read_text())
    for name in ("started", "seconds"):
        del result["provenance"][name]
    return {**files, "result.json": result}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=f"of {', '.join(COMMANDS)}; all by default")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    failed = False
    print("command     kills  within a chunk  files that differ")
    for name in given.commands or COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            write_data(Path(folder))
            generator = np.random.default_rng([given.seed, *name.encode()])
            found = kill_again_and_again(COMMANDS[name], Path(folder), given.kills, generator)
        failed |= bool(found.differing)
        print(f"{name:11} {found.kills:5} {found.within:15}  {', '.join(found.differing) or 'none'}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

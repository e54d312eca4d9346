"""Runs of the command line on sets small enough to train on in a second."""

import importlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

from jaxaudit.cli import main
from jaxaudit.errors import InputError
from jaxaudit.runs import run_identity

RECORDS, FEATURES, CLASSES = 300, 12, 3
SETS = ("--query", "query.npz", "--calibration", "calibration.npz")


def recipe(*settings: str) -> tuple[str, ...]:
    """The words that give these settings, each `NAME=VALUE`."""
    return tuple(word for setting in settings for word in ("--recipe", setting))


SHORT = (
    *(*SETS, *recipe("hidden=32", "learning-rate=0.01", "batch-size=50", "models-per-batch=9"), "--epochs", "2"),
    *("--effort", "full"),
)
"""Too short to learn anything: for what has nothing to do with the verdict."""
LEARNS = (*SHORT, "--epochs", "60", "--test-option", "rho.replicates=3", "--tests", "rho")
"""Long enough for rho's verdicts."""
QUICK = (*LEARNS, "--epochs", "2")


class Done(NamedTuple):
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The JSON object on stdout."""
        assert self.code in (0, 3), self.err
        return json.loads(self.out)


def records(seed: int, shift: float, count: int = RECORDS) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds that overlap, so that a network learns their records by heart; `shift` moves the domain."""
    means = 0.7 * np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    away = np.random.default_rng(1).normal(size=FEATURES)
    labels = np.arange(count) % CLASSES
    inputs = means[labels] + shift * away + np.random.default_rng(seed).normal(size=(count, FEATURES))
    return inputs.astype(np.float32), labels


def write_sets(folder: Path) -> None:
    """`query.npz`; `calibration.npz` of a domain nearby; `far.npz`, where the clouds have other names."""
    for seed, (name, shift) in enumerate({"query": 0.0, "calibration": 0.7, "far": 0.7}.items(), 2):
        inputs, labels = records(seed, shift)
        np.savez(folder / f"{name}.npz", x=inputs, y=np.roll(labels, name == "far"))


def jaxaudit(*words: str) -> Done:
    """`jaxaudit WORDS` in this process."""
    out, err, code = StringIO(), StringIO(), 0
    with mock.patch.object(sys, "argv", ["jaxaudit", *words]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return Done(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


def process(*words: str, cwd: Path, **environment: str) -> Done:
    """`python -m jaxaudit WORDS` as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "jaxaudit", *words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def identities(patch: pytest.MonkeyPatch) -> list[str]:
    """The identities of the runs that begin from here on, as text, in order."""
    noted: list[str] = []

    def note(*facts: Any) -> Any:
        identity = run_identity(*facts)
        noted.append(json.dumps(identity, sort_keys=True))
        return identity

    patch.setattr("jaxaudit.runs.unfinished.run_identity", note)
    return noted


def intercept(patch: pytest.MonkeyPatch, place: str) -> dict[str, Any]:
    """What the function there is called with, by the names of its parameters; the call ends with `Error: enough`."""
    seen: dict[str, Any] = {}
    module, _, name = place.rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), name))

    def stop(*given: Any, **named: Any) -> None:
        seen.clear()
        seen.update(parameters.bind(*given, **named).arguments)
        raise InputError("enough")

    patch.setattr(place, stop)
    return seen


def arrays(path: str) -> dict[str, np.ndarray]:
    """The arrays of an archive, by name."""
    with np.load(path, allow_pickle=False) as found:
        return dict(found)


def linked(made: Path, folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """`folder` as working folder, with a link to each file that a module's tests share."""
    for each in made.iterdir():
        (folder / each.name).symlink_to(each)
    patch.chdir(folder)
    return folder


def content(folder: Path) -> dict[str, bytes | None]:
    """Every file below `folder` with its bytes, every folder with None."""
    paths = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


def refused(words: tuple[str, ...], said: tuple[str, ...] = ()) -> str:
    """The command's last line, an error that says all of this; nothing is printed or written."""
    before = content(Path())
    done = jaxaudit(*words)
    assert (done.code, done.out) == (2, ""), (words, done)
    last = done.err.splitlines()[-1]
    assert last.startswith("Error: ")
    assert [each for each in said if each not in last] == [], last
    after = content(Path())
    changed = {name for name in before.keys() | after.keys() if before.get(name, b"") != after.get(name, b"")}
    assert changed == set()
    return last


@contextmanager
def own_modules(folder: Path) -> Iterator[Path]:
    """`folder` as working folder; what is imported from it is forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "dont_write_bytecode", True)
        before = set(sys.modules)
        yield folder
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def stopping(share: float) -> Callable[..., Any]:
    """In place of `jaxaudit.cli.progress.progress_on_stderr`: Ctrl-C after this share of the work."""

    @contextmanager
    def progress(*_: object, **__: object) -> Iterator[Callable[[int, int], None]]:
        yield stop

    def stop(done: int, total: int) -> None:
        if done > share * total:
            raise KeyboardInterrupt

    return progress

"""A few hundred cases on every change; thousands by hand (see the package)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jaxaudit
from fuzz.planted import PLANTED

pytestmark = pytest.mark.outer

CASES = 200
TESTS = Path(__file__).parent.parent


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    """`python -m fuzz WORDS`: a process of its own, because it forks, and this one has threads."""
    sources = os.pathsep.join(map(str, (TESTS, Path(jaxaudit.__file__).parent.parent)))
    environment = {**os.environ, "PYTHONPATH": sources}
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *words], env=environment, capture_output=True, text=True, timeout=300
    )


def test_whatever_is_given_is_read_or_refused():
    done = fuzz("--cases", str(CASES), "--seed", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CASES} cases of" in done.stdout


def test_what_is_wrong_is_found():
    done = fuzz("--planted", "--cases", str(len(PLANTED)))
    assert done.returncode == 1, done.stderr
    found = {line.removeprefix("planted-") for line in done.stdout.splitlines() if line.startswith("planted-")}
    assert {f"{kind} {kind.partition('-')[0]}" for kind in PLANTED} <= found, done.stdout

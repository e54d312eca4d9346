"""A few hundred cases on every change; thousands by hand (see the package)."""

import subprocess
import sys

import pytest
from support.processes import environment

from fuzz.planted import PLANTED

pytestmark = pytest.mark.outer

CASES = 200


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    """`python -m fuzz WORDS`: a process of its own, because it forks, and this one has threads."""
    command = [sys.executable, "-m", "fuzz", *words]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)


def test_whatever_is_given_is_read_or_refused():
    done = fuzz("--cases", str(CASES), "--seed", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CASES} cases of" in done.stdout


def test_what_is_wrong_is_found():
    done = fuzz("--planted", "--cases", str(len(PLANTED)))
    assert done.returncode == 1, done.stderr
    found = {line.removeprefix("planted-") for line in done.stdout.splitlines() if line.startswith("planted-")}
    assert {f"{kind} {kind.partition('-')[0]}" for kind in PLANTED} <= found, done.stdout

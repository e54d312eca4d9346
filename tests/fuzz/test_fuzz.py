"""A few hundred cases on every change; thousands by hand (see the package)."""

import subprocess
import sys

import pytest
from support.processes import environment

from fuzz.planted import PLANTED

pytestmark = pytest.mark.outer


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    """`python -m fuzz WORDS`: a process of its own, because it forks, and this one has threads."""
    command = [sys.executable, "-m", "fuzz", *words]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=550)


def test_whatever_is_given_is_read_or_refused():
    done = fuzz("--cases", "200", "--seed", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 cases of" in done.stdout


def test_what_is_given_to_a_language_model_is_scored_or_refused():
    pytest.importorskip("transformers", reason="transformers is not installed")
    done = fuzz("--cases", "100", "--seed", "12", "--reader", "lm-model")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 cases of 1 readers" in done.stdout


def test_what_is_wrong_is_found():
    done = fuzz("--planted", "--cases", str(len(PLANTED)))
    assert done.returncode == 1, done.stderr
    assert {f"planted-{kind} 1 {kind.partition('-')[0]}" for kind in PLANTED} <= {*done.stdout.splitlines()}

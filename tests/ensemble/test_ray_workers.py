"""Chunks trained by the actors of a Ray cluster; skipped where Ray is not installed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.outer


def run(scene: str) -> dict[str, Any]:
    tests = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, tests / "support" / "ray_child.py", scene],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_actor_that_is_killed_changes_nothing():
    found = run("actors")
    assert found["large"]
    assert found["stored"] == 1  # the inputs, once; labels are small
    assert found["killed"]
    assert found["actors"] == 1
    assert found["same"]
    assert len(found["told"]) == 1
    assert "attempt 2 of 4" in found["told"][0]


def test_a_node_that_goes_and_one_that_comes_change_nothing():
    found = run("nodes")
    assert found["workers"] == 2
    assert found["exchanged"]
    assert found["same"]


def test_only_its_own_processes_reach_a_ray_of_this_machine():
    assert run("strangers") == {"own": True, "none": False, "other": False}

"""`python -m bench.device`, in reduced sizes and real processes; and the page that `python -m bench.readme` writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def bench(*words: str, module: str = "bench.device") -> "subprocess.CompletedProcess[str]":
    """The bench in a process of its own, which has no other packages' rivals to wait for where these are missing."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", module, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500
    )


def written(folder: Path) -> dict[str, dict]:
    """The results, by piece."""
    results = [json.loads(path.read_text()) for path in folder.glob("device-cpu-reduced/*.json")]
    return {result["piece"]: result for result in results}


@pytest.mark.outer
def test_a_dry_run_lists_every_piece_and_measures_nothing(tmp_path: Path):
    done = bench("--dry-run", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    listed = [line[2:32].strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {"floors", "training MLP", "leave one out", "adapters", "ks", "command", "tests", "all"} <= set(listed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.outer
def test_pieces_are_measured_once(tmp_path: Path):
    words = ("--reduced", "--results", str(tmp_path), "--rivals", "eager,graph", "--piece", "floors", "ks")
    done = bench(*words)
    assert done.returncode == 0, done.stderr
    results = written(tmp_path)
    assert set(results) == {"floors", "ks"}
    assert all(result["finished"] for result in results.values())
    # Nothing is promised on a CPU, and what is not installed is named.
    assert results["ks"]["claims"] == []
    assert {timing["contender"] for timing in results["ks"]["timings"]} >= {"jaxaudit", "numpy"}
    missing = [name for name in ("torch", "cupy") if not _installed(name)]
    assert [line.partition(":")[0] for line in results["ks"]["left_out"]] == missing
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert bench(*words).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == before


COUNTS = """
from bench.device import counting, networks
weights = 784 * 512 + 512 * 256 + 256 * 128 + 128 * 10
step = counting.of_step(networks.mlp((784,), (512, 256, 128), 10), (784,), 128)
assert step.flops == 6 * 128 * weights - 2 * 128 * 784 * 512
assert step.bytes == 24 * (weights + 512 + 256 + 128 + 10) + 2 * 4 * 128 * (784 + 512 + 256 + 128 + 10)
step = counting.of_step(networks.cnn((8, 8, 3), 10), (8, 8, 3), 2, bytes_a_number=2)
first, second, dense = 64 * 9 * 3 * 32, 16 * 9 * 32 * 64, 4 * 64 * 128 + 128 * 10
assert step.flops == 2 * 2 * (2 * first + 3 * second + 3 * dense)
weights = 9 * 3 * 32 + 32 + 9 * 32 * 64 + 64 + dense + 128 + 10
assert step.bytes == 24 * weights + 2 * 2 * 2 * (192 + 64 * 32 + 16 * 64 + 128 + 10)
"""


@pytest.mark.outer
def test_steps_are_counted_as_by_hand():
    done = subprocess.run([sys.executable, "-c", COUNTS], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0


@pytest.mark.outer
def test_the_page_of_measurements_is_what_the_results_say():
    code = "from bench.readme import README, page; assert README.read_text(encoding='utf-8') == page()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, "run python -m bench.readme"


def _installed(name: str) -> bool:
    code = f"import {name}"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0

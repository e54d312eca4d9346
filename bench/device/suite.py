"""What passes, on this device, of the tests of kernels, ensembles and learners that are of the inner circle."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from bench.device.measuring import Asked, Outcome

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/kernels", "tests/ensemble", "tests/learners")
REDUCED = ("tests/kernels/test_ks_kernel.py",)
SECONDS = 180
QUIET = ("-W", "ignore::pytest.PytestConfigWarning")
"""Of options of plugins that are not installed."""
VERDICT = re.compile(r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?:\s+\[\s*\d+%\])?\s+(tests/\S.*?)\s*$")
NAMED = re.compile(r"^(tests/\S.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")


def piece(asked: Asked, outcome: Outcome) -> None:
    missing = [name for name in ("pytest", "hypothesis", "beartype") if find_spec(name) is None]
    if missing:
        outcome.leave_out("the whole piece", f"{', '.join(missing)} not installed")
        return
    workers = workers_for(asked)
    words = [sys.executable, "-m", "pytest", "-vv", "-m", "not outer", "--tb=line", *QUIET]
    words += ["-n", str(workers)] if workers > 1 else []
    environment = {
        **os.environ,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.35 / workers:.3f}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONUNBUFFERED": "1",
    }
    seconds = min(SECONDS, max(20.0, asked.deadline - time.monotonic()))
    words += REDUCED if asked.reduced else FOLDERS
    text, whole = printed(words, environment, seconds)
    if not whole:
        outcome.leave_out("the tests that are not counted", f"{seconds:.0f} seconds were over")
    verdicts = read(text)
    if not verdicts:
        raise RuntimeError(f"pytest ran nothing: {text[-300:]}")
    counts = Counter(verdicts.values())
    outcome.tables["Tests"] = [
        ["verdict", "tests"],
        *([verdict.lower(), str(n)] for verdict, n in counts.most_common()),
    ]
    outcome.tables["Tests"] += [
        ["failed", name] for name, verdict in verdicts.items() if verdict in ("FAILED", "ERROR")
    ]
    outcome.say(", ".join(f"{verdict.lower()} {n}" for verdict, n in counts.most_common()))
    for name, verdict in verdicts.items():
        if verdict in ("FAILED", "ERROR"):
            outcome.say(f"{verdict.lower()}: {name}")


def printed(words: list[str], environment: dict[str, str], seconds: float) -> tuple[str, bool]:
    """What the process prints within so many seconds, and whether it ended by itself; else it ends with its workers."""
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(seconds)
            whole = True
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            whole = False
        out.seek(0)
        return out.read(), whole


def workers_for(asked: Asked) -> int:
    """Processes that share the tests: some where pytest-xdist is installed, and one in reduced sizes."""
    if asked.reduced or find_spec("xdist") is None:
        return 1
    return max(1, min(8, len(os.sched_getaffinity(0)) // 2 if hasattr(os, "sched_getaffinity") else 1))


def read(text: str) -> dict[str, str]:
    """The verdict of each test in what `pytest -vv` printed, with or without workers."""
    verdicts: dict[str, str] = {}
    for line in text.splitlines():
        if match := NAMED.search(line):
            verdicts[match[1]] = match[2]
        elif match := VERDICT.search(line):
            verdicts[match[2]] = match[1]
    return verdicts

"""A whole command, as a user starts it: `jaxaudit ks`, with a set where one is at hand, in wall seconds."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.device.measuring import Asked, Outcome
from bench.harness import Timings

SET = "mnist"
FIRST, SECOND = "first run", "second run"
LONGEST = 400


def piece(asked: Asked, outcome: Outcome) -> None:
    words = ["--query", SET] if has_set(outcome) else []
    title = " ".join(["jaxaudit ks", *words])
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as kept:
        for turn in (FIRST,) if asked.reduced else (FIRST, SECOND):
            if asked.late:
                outcome.leave_out(turn, "no time was left")
                continue
            seconds[turn] = [run(["ks", *words], Path(kept))]
            outcome.say(f"{title}, {turn}: {seconds[turn][0]:.1f} s")
    outcome.timings.append(Timings(title, seconds))
    outcome.notes.append("The second run finds what the first kept: compiled programs, and the models a batch.")


def has_set(outcome: Outcome) -> bool:
    """Whether the set's files are here."""
    from jaxaudit.data import load

    try:
        load(SET)
    except Exception as error:  # whatever an absent set leads to
        outcome.leave_out(f"--query {SET}", error)
        return False
    return True


def run(words: list[str], kept: Path) -> float:
    """Seconds of the command in a process of its own, beside this one, which holds most of a GPU's memory."""
    environment = {**os.environ, "JAXAUDIT_CACHE": str(kept / "cache"), "XLA_PYTHON_CLIENT_MEM_FRACTION": ".3"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "jaxaudit", *words],
        cwd=kept,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LONGEST,
    )
    took = time.perf_counter() - start
    # 3 is a verdict, too.
    if done.returncode not in (0, 3):
        raise RuntimeError(f"jaxaudit {' '.join(words)} ended with {done.returncode}: {done.stderr[-300:]}")
    return took

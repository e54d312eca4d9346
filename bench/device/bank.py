"""A bank of shadow models from nothing, once: compiling and choosing the models a batch included."""

import os
import subprocess
import sys
import time

from bench.device.chunks import train
from bench.device.measuring import JAXAUDIT, Asked, Outcome
from bench.device.training import CASES, CHOSEN_FOR, make_job
from bench.harness import Claim, Spread, Timings
from jaxaudit.ensemble import Execution

CASE = "Purchase"
MINUTES = 60
CALL = "from bench.device.bank import whole; whole({reduced})"
BESIDE = {"JAX_ENABLE_COMPILATION_CACHE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".3"}
"""No program is kept from before; and this process holds most of a GPU's memory."""


def piece(asked: Asked, outcome: Outcome) -> None:
    words = [sys.executable, "-c", CALL.format(reduced=asked.reduced)]
    done = subprocess.run(words, env={**os.environ, **BESIDE}, stdout=subprocess.PIPE, text=True, check=True)
    took, steps = map(float, done.stdout.split())
    outcome.timings.append(Timings("whole bank", {JAXAUDIT: [took]}))
    models, epochs = size(asked.reduced)
    text = f"minutes for {models} models of {CASE}, {epochs} epochs of {CASES[CASE].members:,} records"
    outcome.say(f"{text}: {took / 60:.3g}")
    if asked.gpu and not asked.reduced:
        outcome.claims.append(Claim(text, Spread.of([took / 60]), MINUTES, at_least=False))
    outcome.notes.append(f"{1e6 * took / steps:.3g} microseconds a model-step, all included; trained once")


def size(reduced: bool) -> tuple[int, int]:
    """Models and epochs."""
    return (4, 2) if reduced else CHOSEN_FOR


def whole(reduced: bool) -> None:
    """Trains it in this process, and prints the seconds and the model-steps."""
    case = CASES[CASE].reduced() if reduced else CASES[CASE]
    job = make_job(CASE, case, *size(reduced))
    start = time.perf_counter()
    train(job, Execution())
    print(time.perf_counter() - start, job.model_steps)

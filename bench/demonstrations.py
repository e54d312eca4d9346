"""Where the time of the six commands without options goes: `python -m bench.demonstrations [--before FOLDER]`.

Promised: the second run of a command, which finds what the first kept (compiled programs, the models a batch), takes at
most .6 of the first's processor time.

Each run is a process of its own on one core (on Linux alone), and every figure is its processor time, threads included:
other work on the machine moves it little. A moment counts for the innermost of these that is under way:

- import: Python itself and every module,
- tracing: JAX, from Python functions to programs, as JAX's own monitoring events say,
- compiling: of programs, or reading kept ones, by the same events,
- training: `fit_many`, the choice of models a batch, and outputs of trained models,
- statistics: all else that an audit does (attacks, unlearning, tests),
- data and output: what is done before and after the audit.

`--before` names another working copy of this repository, which is measured in turn with this one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMANDS = ("ks", "efficacy", "unlearn", "pdtp", "attack", "power")
PARTS = ("import", "data", "tracing", "compiling", "training", "statistics", "output")
EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "tracing",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
FUNCTIONS = {
    "jaxaudit.cli.harness": {"_done": "statistics"},
    "jaxaudit.ensemble.train": {
        "fit_many": "training",
        "suitable_models_per_batch": "training",
        "log_probs_many": "training",
    },
    "jaxaudit.learners.learner": {"train_by_steps": "training"},
}
FIRST, SECOND = "first run", "second run"


class Clock:
    """Processor seconds of each part, a moment counted for the innermost.

    The main thread's clock is that of the process; what another thread does within a part of its own is taken from
    whatever the main thread was at, which waits for it.
    """

    def __init__(self) -> None:
        self.seconds = defaultdict[str, float](float)
        self.outermost = "data"
        self._threads = threading.local()
        self.seconds["import"] = self._now = time.process_time()

    def begin(self, part: str) -> None:
        self._count()
        self._parts.append(part)

    def end(self) -> None:
        self._count()
        self._parts.pop()

    @property
    def _parts(self) -> list[str]:
        if not hasattr(self._threads, "parts"):
            self._threads.parts = []
        return self._threads.parts

    def _count(self) -> None:
        part = self._parts[-1] if self._parts else self.outermost
        if threading.current_thread() is threading.main_thread():
            now, before = time.process_time(), self._now
            self.seconds[part], self._now = self.seconds[part] + now - before, now
            return
        now = time.thread_time()
        if self._parts:
            self.seconds[part] += now - self._threads.now
            self.seconds["training"] -= now - self._threads.now
        self._threads.now = now


def follow(clock: Clock) -> None:
    """Tells the clock of every import, every event of JAX and the functions that are parts."""
    import importlib

    bootstrap: Any = vars(importlib)["_bootstrap"]
    find = bootstrap._find_and_load

    def timed_import(name: str, *rest: Any) -> Any:
        clock.begin("import")
        try:
            module = find(name, *rest)
        finally:
            clock.end()
        for function, part in FUNCTIONS.get(name, {}).items():
            # Another working copy may have it elsewhere.
            if function in vars(module):
                setattr(module, function, timed(vars(module)[function], part))
        return module

    def timed(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            clock.begin(part)
            try:
                return function(*args, **options)
            finally:
                clock.end()
                clock.outermost = "output" if function.__name__ == "_done" else clock.outermost

        return call

    bootstrap._find_and_load = timed_import
    import jax

    def begin(event: str, *_: Any, **__: Any) -> None:
        if event in EVENTS:
            clock.begin(EVENTS[event])

    def end(event: str, *_: Any, **__: Any) -> None:
        if event in EVENTS:
            clock.end()

    jax.monitoring.register_scalar_listener(begin)
    jax.monitoring.register_event_duration_secs_listener(end)


def run_here(command: str, out: Path) -> None:
    """The command in this process; the seconds of its parts as JSON into `out`."""
    clock = Clock()
    follow(clock)
    from jaxaudit.cli import main

    sys.argv = ["jaxaudit", command]
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
    clock.begin("output")
    out.write_text(json.dumps(clock.seconds))


def run_apart(command: str, tree: Path, kept: Path) -> dict[str, float]:
    """The same in a process of its own, on one core, with the modules of `tree` and what is kept in `kept`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds.json"
        subprocess.run(
            [sys.executable, "-P", __file__, "--run", command, "--out", str(out)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(tree), "JAXAUDIT_CACHE": str(kept)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}),
        )
        return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, help="another working copy, measured too")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        run_here(asked.run, asked.out)
        return
    from bench.harness import Bench, Claim, Timings, report

    trees = {"": Path(__file__).parents[1]} | ({", before": asked.before.resolve()} if asked.before else {})
    found: dict[str, dict[str, list[float]]] = {part: {} for part in (*PARTS, "in all")}
    for command in COMMANDS:
        for suffix, tree in trees.items():
            with tempfile.TemporaryDirectory() as kept:
                for turn in (FIRST, SECOND):
                    seconds = run_apart(command, tree, Path(kept))
                    for part in PARTS:
                        found[part][f"{command}, {turn}{suffix}"] = [seconds.get(part, 0.0)]
                    found["in all"][f"{command}, {turn}{suffix}"] = [sum(seconds.values())]
    timings = [Timings(part, seconds) for part, seconds in found.items()]
    claims = [
        Claim(
            f"{command}: second / first run",
            timings[-1].ratio(f"{command}, {SECOND}", f"{command}, {FIRST}"),
            0.6,
            False,
        )
        for command in COMMANDS
    ]
    report(Bench("demonstrations", timings, claims), ["jax", "jaxlib", "numpy", "scipy", "flax"])


if __name__ == "__main__":
    main()

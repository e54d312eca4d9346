"""Where results go, and what is said about them: of the run that made them, and in `experiments/README.md`."""

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax

RESULTS = Path(__file__).parent / "results"


class Row(NamedTuple):
    """A table or figure of a paper, done again; made of a committed result by its experiment's `summary(result)`.

    Attributes:
        paper: `liu2020`, `becker2022`, `long2017`, or another of `readme.PAPERS`.
        item: `Table 1` or `Figure 2`, as in `readme.ITEMS`; any other words put the row below "Beyond the papers".
        quantity: what the numbers are of.
        theirs: the paper's number, or "none given".
        ours: ours, in the same words.
        sentence: where the two differ and why, in one honest sentence.
        arguments: what the command takes beside its name.
    """

    paper: str
    item: str
    quantity: str
    theirs: str
    ours: str
    sentence: str
    arguments: str = ""


def device_slug() -> str:
    """`cpu`, or the accelerator's kind in lower case, for file names."""
    kind = jax.devices()[0].device_kind
    return "cpu" if jax.default_backend() == "cpu" else re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")


def describe_run(options: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
    """Options (paths left out), versions, source commit, device and wall time."""
    kept = {name: value for name, value in options.items() if not isinstance(value, Path) and value is not None}
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "options": kept,
        "versions": {name: version(name) for name in ("jaxaudit", "jax", "jaxlib", "flax", "optax", "numpy")},
        "commit": commit or None,
        "python": platform.python_version(),
        "device": f"{len(jax.devices())} x {jax.devices()[0].device_kind}, {os.cpu_count()} host cores",
        **({} if seconds is None else {"seconds": round(seconds, 1)}),
    }


def progress_of(name: str) -> Callable[[int, int], None]:
    """Says every minute how far a run is."""
    started = shown = time.time()

    def progress(done: int, total: int) -> None:
        nonlocal shown
        if time.time() - shown > 60:
            shown = time.time()
            print(f"{name}: {done / total:.0%} after {shown - started:.0f} s", file=sys.stderr, flush=True)

    return progress

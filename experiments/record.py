"""Where results go, and what is said about the run that made them."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

RESULTS = Path(__file__).parent / "results"


def device_slug() -> str:
    """`cpu`, or the accelerator's kind in lower case, for file names."""
    kind = jax.devices()[0].device_kind
    return "cpu" if jax.default_backend() == "cpu" else re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")


def describe_run(options: dict[str, Any], seconds: float) -> dict[str, Any]:
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
        "seconds": round(seconds, 1),
    }

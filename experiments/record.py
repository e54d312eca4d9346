"""Where results go, and what is said about the run that made them."""

import platform
import re
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
    """Options, versions, device and wall time."""
    return {
        "options": {name: str(value) if isinstance(value, Path) else value for name, value in options.items() if name != "out"},
        "versions": {name: version(name) for name in ("jaxaudit", "jax", "jaxlib", "flax", "optax", "numpy")},
        "python": platform.python_version(),
        "device": f"{len(jax.devices())} x {jax.devices()[0].device_kind}",
        "seconds": round(seconds, 1),
    }

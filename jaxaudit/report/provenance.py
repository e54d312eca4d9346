"""What must be known to repeat a run."""

import os
import platform
from importlib.metadata import version
from typing import Any

import jax

from jaxaudit.data import Examples
from jaxaudit.version import __version__

_PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "numpy", "scipy"),
    *("scikit-learn", "pillow", "matplotlib", "tensorflow-datasets", "pyarrow"),
)
_VARIABLES = ("XLA_FLAGS", "CUDA_VISIBLE_DEVICES")


def describe_machine() -> dict[str, Any]:
    """Versions, devices, and what else decides the rounding of a number."""
    devices = jax.local_devices()
    return {
        "jaxaudit": __version__,
        "versions": {name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "device": f"{devices[0].platform}: {devices[0].device_kind}",
        "devices": len(devices),
        "cores": os.cpu_count() or 1,
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name in _VARIABLES or name.startswith("JAX_")
        },
    }


def describe_examples(examples: Examples) -> dict[str, Any]:
    """A data set by name, size and content hash."""
    return {
        "name": examples.name,
        "records": len(examples),
        "shape": list(examples.inputs.shape[1:]),
        "classes": len(examples.class_names),
        "content_hash": examples.content_hash,
    }

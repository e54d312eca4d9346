"""The facts needed to repeat a run."""

import os
import platform
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import msgspec

from jaxaudit.data import Examples
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.records import Records
from jaxaudit.data.scores.table import ScoreTable
from jaxaudit.data.texts import SETS
from jaxaudit.errors import without_folders
from jaxaudit.shadow_models import ShadowModels
from jaxaudit.version import __version__

_PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "numpy", "scipy"),
    *("scikit-learn", "pillow", "matplotlib", "tensorflow-datasets", "pyarrow"),
)
_OF_PYTORCH = ("torch", "torchax", "transformers")
"""Libraries of a run whose network is a PyTorch module: they draw its initial weights, convert it to JAX, and build it
from a configuration."""
_VARIABLES = frozenset(
    {
        *("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "JAX_ENABLE_X64", "JAX_DEFAULT_DTYPE_BITS", "JAX_DISABLE_JIT"),
        *("JAX_DEFAULT_MATMUL_PRECISION", "JAX_NUMPY_DTYPE_PROMOTION", "JAX_DEFAULT_PRNG_IMPL"),
        *("JAX_THREEFRY_PARTITIONABLE", "JAX_RANDOM_SEED_OFFSET", "JAX_LEGACY_PRNG_KEY", "NVIDIA_TF32_OVERRIDE"),
    }
)
"""Settings that affect a number. Other settings only locate files and logs."""


def describe_machine() -> dict[str, Any]:
    """Versions, devices, and everything else that affects the rounding of a number."""
    devices = jax.local_devices()
    # Of XLA's flags those that name no file or folder.
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "/" not in flag and "\\" not in flag]
    settings = {name: os.environ[name] for name in sorted(_VARIABLES & set(os.environ))}
    of_pytorch = [name for name in _OF_PYTORCH if name in sys.modules] if "torchax" in sys.modules else []
    return {
        "jaxaudit": __version__,
        "versions": {name: version(name) for name in (*_PACKAGES, *of_pytorch)},
        "python": platform.python_version(),
        "device": f"{devices[0].platform}: {devices[0].device_kind}",
        "devices": len(devices),
        "cores": os.cpu_count() or 1,
        "environment": settings | ({"XLA_FLAGS": " ".join(flags)} if flags else {}),
    }


def describe_examples(examples: Examples | Records) -> dict[str, Any]:
    """A data set, of one or several arrays, by name, size and content hash."""
    facts = {"name": examples.name, "records": len(examples), "shape": list(examples.inputs.shape[1:])}
    if isinstance(examples, Examples):
        facts["classes"] = len(examples.class_names)
    else:
        facts["arrays"] = {field.name: list(field.shape) for field in examples.parts}
        facts["labels"] = list(examples.labels.shape[1:])
    return {**facts, "content_hash": examples.content_hash}


def describe_bank(path: Path, bank: Bank, models: ShadowModels, names: Mapping[str, str]) -> dict[str, Any]:
    """Facts of each set of a bank by role, with its name if it is known, and of the shadow models in use."""
    description = bank.description
    sets = {
        role: {
            "name": names.get(role, f"{role} of {path.resolve().name}"),
            "records": count,
            "classes": description.classes,
            "content_hash": getattr(description.hashes, role) or "unknown",
        }
        for role, count in msgspec.structs.asdict(description.sizes).items()
        if count
    }
    shadows = {
        "name": without_folders(str(path)),
        "models": len(models),
        "planned": len(bank),
        "outputs": description.outputs,
        "dropped": int(bank.dropped.sum()),
        "recipe": description.recipe,
        "seed": "not dealt by jaxaudit" if description.seed is None else description.seed,
        "content_hash": models.content_hash,
    }
    return {**sets, "shadows": shadows}


def describe_scores(table: ScoreTable) -> dict[str, Any]:
    """A table of scores by its sets, its models and its content hash."""
    sets = {set_name: len(table.rows(set_name)) for set_name in SETS}
    return {
        **{role: {"name": table.name, "records": count} for role, count in sets.items() if count},
        "scores": {
            "name": table.name,
            "models": dict(Counter(model.role for model in table.models)),
            "scores": dict(table.directions),
            "covariates": list(table.covariates),
            "content_hash": table.content_hash,
        },
    }

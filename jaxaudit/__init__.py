"""jaxaudit: what does a trained classifier still remember?

The public names, imported when first used, so that `import jaxaudit` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxaudit.errors import InputError
from jaxaudit.version import __version__

if TYPE_CHECKING:
    from jaxaudit import models
    from jaxaudit.audits.ks import audit_ks
    from jaxaudit.audits.ks_result import KSAudit, TargetResult
    from jaxaudit.audits.pool import Part, SimulatedTarget
    from jaxaudit.data import Examples, load, prepare_images
    from jaxaudit.data.outputs import load_outputs
    from jaxaudit.ensemble import fit_many
    from jaxaudit.kernels import ks_distance
    from jaxaudit.learners import network

_HOMES = {
    "Examples": "jaxaudit.data",
    "KSAudit": "jaxaudit.audits.ks_result",
    "Part": "jaxaudit.audits.pool",
    "SimulatedTarget": "jaxaudit.audits.pool",
    "TargetResult": "jaxaudit.audits.ks_result",
    "audit_ks": "jaxaudit.audits.ks",
    "fit_many": "jaxaudit.ensemble",
    "ks_distance": "jaxaudit.kernels",
    "load": "jaxaudit.data",
    "load_outputs": "jaxaudit.data.outputs",
    "network": "jaxaudit.learners",
    "prepare_images": "jaxaudit.data",
}

__all__ = [
    "Examples",
    "InputError",
    "KSAudit",
    "Part",
    "SimulatedTarget",
    "TargetResult",
    "__version__",
    "audit_ks",
    "fit_many",
    "ks_distance",
    "load",
    "load_outputs",
    "models",
    "network",
    "prepare_images",
]


def __getattr__(name: str) -> Any:
    if name == "models":
        return import_module("jaxaudit.models")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'jaxaudit' has no attribute {name!r}")

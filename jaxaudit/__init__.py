"""jaxaudit: what does a trained classifier still remember?

The public names, imported when first used, so that `import jaxaudit` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxaudit.errors import InputError
from jaxaudit.version import __version__

if TYPE_CHECKING:
    from jaxaudit import models
    from jaxaudit.audits.attack import audit_attack
    from jaxaudit.audits.attack_plan import Attacks
    from jaxaudit.audits.attack_result import AttackAudit
    from jaxaudit.audits.ks import audit_ks
    from jaxaudit.audits.ks_result import KSAudit, TargetResult
    from jaxaudit.audits.pdtp import PDTPAudit, audit_pdtp, reduce_pdtp
    from jaxaudit.audits.pool import Part, SimulatedTarget
    from jaxaudit.data import Examples, Table, binary, category_counts, coded, load, load_table, prepare_images
    from jaxaudit.data.outputs import load_outputs
    from jaxaudit.ensemble import fit_many
    from jaxaudit.kernels import ks_distance
    from jaxaudit.learners import logistic_regression, naive_bayes, nearest_neighbours, network, random_trees

_HOMES = {
    "AttackAudit": "jaxaudit.audits.attack_result",
    "Attacks": "jaxaudit.audits.attack_plan",
    "Examples": "jaxaudit.data",
    "KSAudit": "jaxaudit.audits.ks_result",
    "PDTPAudit": "jaxaudit.audits.pdtp",
    "Part": "jaxaudit.audits.pool",
    "SimulatedTarget": "jaxaudit.audits.pool",
    "Table": "jaxaudit.data",
    "TargetResult": "jaxaudit.audits.ks_result",
    "audit_attack": "jaxaudit.audits.attack",
    "audit_ks": "jaxaudit.audits.ks",
    "audit_pdtp": "jaxaudit.audits.pdtp",
    "binary": "jaxaudit.data",
    "category_counts": "jaxaudit.data",
    "coded": "jaxaudit.data",
    "fit_many": "jaxaudit.ensemble",
    "ks_distance": "jaxaudit.kernels",
    "load": "jaxaudit.data",
    "load_outputs": "jaxaudit.data.outputs",
    "load_table": "jaxaudit.data",
    "logistic_regression": "jaxaudit.learners",
    "naive_bayes": "jaxaudit.learners",
    "nearest_neighbours": "jaxaudit.learners",
    "network": "jaxaudit.learners",
    "prepare_images": "jaxaudit.data",
    "random_trees": "jaxaudit.learners",
    "reduce_pdtp": "jaxaudit.audits.pdtp",
}

__all__ = [
    "AttackAudit",
    "Attacks",
    "Examples",
    "InputError",
    "KSAudit",
    "PDTPAudit",
    "Part",
    "SimulatedTarget",
    "Table",
    "TargetResult",
    "__version__",
    "audit_attack",
    "audit_ks",
    "audit_pdtp",
    "binary",
    "category_counts",
    "coded",
    "fit_many",
    "ks_distance",
    "load",
    "load_outputs",
    "load_table",
    "logistic_regression",
    "models",
    "naive_bayes",
    "nearest_neighbours",
    "network",
    "prepare_images",
    "random_trees",
    "reduce_pdtp",
]


def __getattr__(name: str) -> Any:
    if name == "models":
        return import_module("jaxaudit.models")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'jaxaudit' has no attribute {name!r}")

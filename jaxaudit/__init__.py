"""jaxaudit: what does a trained classifier still remember?

The public names, imported when first used, so that `import jaxaudit` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxaudit.errors import InputError
from jaxaudit.version import __version__

if TYPE_CHECKING:
    from jaxaudit import models
    from jaxaudit.audits.attack.audit import audit_attack
    from jaxaudit.audits.attack.plan import Attacks
    from jaxaudit.audits.attack.result import AttackAudit
    from jaxaudit.audits.efficacy.audit import EfficacyAudit, NamedWeights, audit_efficacy
    from jaxaudit.audits.ks.audit import audit_ks
    from jaxaudit.audits.ks.models import Shadows
    from jaxaudit.audits.ks.result import KSAudit, TargetResult
    from jaxaudit.audits.pdtp.audit import PDTPAudit, audit_pdtp, reduce_pdtp
    from jaxaudit.audits.pool import Part, SimulatedTarget
    from jaxaudit.audits.power.audit import audit_power
    from jaxaudit.audits.unlearn.audit import audit_unlearn
    from jaxaudit.audits.unlearn.result import UnlearnAudit
    from jaxaudit.data import Examples, Table, binary, category_counts, coded, load, load_table, prepare_images
    from jaxaudit.data.outputs.outputs import load_outputs
    from jaxaudit.data.weights.weights import read_weights
    from jaxaudit.ensemble import fit_many
    from jaxaudit.kernels import ks_distance
    from jaxaudit.kernels.gradient_norms import squared_grad_norms
    from jaxaudit.learners import logistic_regression, naive_bayes, nearest_neighbours, network, random_trees
    from jaxaudit.metrics.efficacy import measure_efficacy
    from jaxaudit.models.restore import fit_weights

_HOMES = {
    "AttackAudit": "jaxaudit.audits.attack.result",
    "Attacks": "jaxaudit.audits.attack.plan",
    "EfficacyAudit": "jaxaudit.audits.efficacy.audit",
    "Examples": "jaxaudit.data",
    "KSAudit": "jaxaudit.audits.ks.result",
    "NamedWeights": "jaxaudit.audits.efficacy.audit",
    "PDTPAudit": "jaxaudit.audits.pdtp.audit",
    "Part": "jaxaudit.audits.pool",
    "Shadows": "jaxaudit.audits.ks.models",
    "SimulatedTarget": "jaxaudit.audits.pool",
    "Table": "jaxaudit.data",
    "TargetResult": "jaxaudit.audits.ks.result",
    "UnlearnAudit": "jaxaudit.audits.unlearn.result",
    "audit_attack": "jaxaudit.audits.attack.audit",
    "audit_efficacy": "jaxaudit.audits.efficacy.audit",
    "audit_ks": "jaxaudit.audits.ks.audit",
    "audit_pdtp": "jaxaudit.audits.pdtp.audit",
    "audit_power": "jaxaudit.audits.power.audit",
    "audit_unlearn": "jaxaudit.audits.unlearn.audit",
    "binary": "jaxaudit.data",
    "category_counts": "jaxaudit.data",
    "coded": "jaxaudit.data",
    "fit_many": "jaxaudit.ensemble",
    "fit_weights": "jaxaudit.models.restore",
    "ks_distance": "jaxaudit.kernels",
    "load": "jaxaudit.data",
    "load_outputs": "jaxaudit.data.outputs.outputs",
    "load_table": "jaxaudit.data",
    "logistic_regression": "jaxaudit.learners",
    "measure_efficacy": "jaxaudit.metrics.efficacy",
    "naive_bayes": "jaxaudit.learners",
    "nearest_neighbours": "jaxaudit.learners",
    "network": "jaxaudit.learners",
    "prepare_images": "jaxaudit.data",
    "random_trees": "jaxaudit.learners",
    "read_weights": "jaxaudit.data.weights.weights",
    "reduce_pdtp": "jaxaudit.audits.pdtp.audit",
    "squared_grad_norms": "jaxaudit.kernels.gradient_norms",
}

__all__ = [
    "AttackAudit",
    "Attacks",
    "EfficacyAudit",
    "Examples",
    "InputError",
    "KSAudit",
    "NamedWeights",
    "PDTPAudit",
    "Part",
    "Shadows",
    "SimulatedTarget",
    "Table",
    "TargetResult",
    "UnlearnAudit",
    "__version__",
    "audit_attack",
    "audit_efficacy",
    "audit_ks",
    "audit_pdtp",
    "audit_power",
    "audit_unlearn",
    "binary",
    "category_counts",
    "coded",
    "fit_many",
    "fit_weights",
    "ks_distance",
    "load",
    "load_outputs",
    "load_table",
    "logistic_regression",
    "measure_efficacy",
    "models",
    "naive_bayes",
    "nearest_neighbours",
    "network",
    "prepare_images",
    "random_trees",
    "read_weights",
    "reduce_pdtp",
    "squared_grad_norms",
]


def __getattr__(name: str) -> Any:
    if name == "models":
        return import_module("jaxaudit.models")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'jaxaudit' has no attribute {name!r}")

"""A small `efficacy` audit and its run: weights beside a reference that fits the records perfectly."""

from typing import Any

import numpy as np

from jaxaudit.audits import EfficacyAudit, EfficacyResult, Measured, audit_of_weights
from jaxaudit.kernels import Categorical, SequenceLikelihood
from jaxaudit.metrics import EfficacyByLayer, efficacy
from jaxaudit.report import Run, recorded
from support.saved_runs.provenance import provenance

CLASSES = Categorical()
CONTRACTED = {"dense/kernel": "contracted"}


def weights(name: str, norms: list[float], paths: dict[str, str] = CONTRACTED, *, short: bool = False) -> Measured:
    """Weights whose squared gradient norm on each record is given."""
    values = np.array(norms)
    found = efficacy(values, float(values.min()))
    return Measured(name, EfficacyByLayer(values, {"dense": found}, found, paths, short), 0.5, -1.0)


def efficacy_audit(
    *models: Measured,
    draws: bool = False,
    class_names: tuple[str, ...] = ("a", "b", "c"),
    notes: tuple[str, ...] = (),
    likelihood: Categorical | SequenceLikelihood = CLASSES,
) -> EfficacyAudit:
    """An audit of these weights, the first in question; record i is of class i of 3."""
    models = models or (weights("mine", [0.5, 0.1, 0.15]), weights("retrained", [0.0, 0.0, 0.0]))
    labels = np.arange(len(models[0].by_layer.per_example))
    return audit_of_weights(models, labels, class_names, 3, likelihood=likelihood, draws=draws, notes=notes)


def efficacy_run(
    name: str = "people.csv", audit: EfficacyAudit | None = None, notes: tuple[str, ...] = ()
) -> Run[EfficacyResult]:
    """A run of `efficacy` on weights, of classes and of data of this name."""
    if audit is None:
        mine, other = weights(name, [0.5, 0.1, 0.15]), weights("retrained", [0.0, 0.0, 0.0])
        audit = efficacy_audit(mine, other, class_names=(name, "b", "c"), notes=notes)
    data: dict[str, Any] = {"name": name, "records": 3, "content_hash": "blake2b:aa"}
    result = recorded("efficacy", audit.result, ["Becker & Liebig 2022"], provenance("efficacy", name, data))
    return Run("d run", "efficacy", result, {})

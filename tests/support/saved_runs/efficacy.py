"""A small `efficacy` audit and its run: weights beside a reference that fits the records perfectly."""

from typing import Any

import msgspec
import numpy as np

from jaxaudit.audits import EfficacyAudit, EfficacyResult, WeightsExposure, audit_of_weights
from jaxaudit.kernels import Categorical, SequenceLikelihood
from jaxaudit.metrics import EfficacyByLayer, efficacy
from jaxaudit.report import Run, recorded
from support.saved_runs.provenance import provenance

CLASSES = Categorical()
CONTRACTED = {"dense/kernel": "contracted"}


Weights = tuple[WeightsExposure, EfficacyByLayer]


def weights(
    name: str,
    norms: list[float],
    paths: dict[str, str] = CONTRACTED,
    *,
    short: bool = False,
    accuracy: float | None = 0.5,
) -> Weights:
    """Weights whose squared gradient norm on each record is given."""
    values = np.array(norms)
    found = efficacy(values, float(values.min()))
    numbers = msgspec.structs.asdict(found)
    layers = {"dense": found}
    exposure = WeightsExposure(**numbers, name=name, accuracy=accuracy, mean_log_probability=-1.0, layers=layers)
    return exposure, EfficacyByLayer(values, layers, found, paths, short)


def efficacy_audit(
    *models: Weights,
    draws: bool = False,
    class_names: tuple[str, ...] = ("a", "b", "c"),
    notes: tuple[str, ...] = (),
    likelihood: Categorical | SequenceLikelihood = CLASSES,
) -> EfficacyAudit:
    """An audit of these weights, the first in question; record i is of class i of 3."""
    models = models or (weights("mine", [0.5, 0.1, 0.15]), weights("retrained", [0.0, 0.0, 0.0]))
    exposures, measured = zip(*models, strict=True)
    labels = np.arange(len(measured[0].per_example))
    how: Any = {"likelihood": likelihood, "draws": draws, "notes": notes}
    return audit_of_weights(exposures, measured, labels, class_names, 3, **how)


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

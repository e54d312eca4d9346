"""A small `efficacy` audit and its run: weights beside a reference that fits the records perfectly."""

from typing import Any

import numpy as np

from jaxaudit.audits.efficacy.result import EfficacyAudit, JudgedWeights
from jaxaudit.metrics.efficacy import MeasuredEfficacy, efficacy
from jaxaudit.report.efficacy.record import EfficacyRecord, efficacy_record
from jaxaudit.report.run import Run
from support.saved_runs.provenance import provenance

CONTRACTED = {"dense/kernel": "contracted"}


def weights(name: str, norms: list[float], paths: dict[str, str] = CONTRACTED, *, short: bool = False) -> JudgedWeights:
    """Weights whose squared gradient norm on each record is given."""
    values = np.array(norms)
    found = efficacy(values, float(values.min()))
    return JudgedWeights(name, MeasuredEfficacy(values, {"dense": found}, found, paths, short), 0.5, -1.0)


def efficacy_audit(*models: JudgedWeights, draws: bool = False) -> EfficacyAudit:
    """An audit of these weights, the first in question; record i is of class i of 3."""
    models = models or (weights("mine", [0.5, 0.1, 0.15]), weights("retrained", [0.0, 0.0, 0.0]))
    labels = np.arange(len(models[0].measured.per_example))
    return EfficacyAudit(models[0], tuple(models[1:]), labels, 3, draws)


def efficacy_run(
    name: str = "people.csv", audit: EfficacyAudit | None = None, notes: tuple[str, ...] = ()
) -> Run[EfficacyRecord]:
    """A run of `efficacy` on weights, of classes and of data of this name."""
    if audit is None:
        audit = efficacy_audit(weights(name, [0.5, 0.1, 0.15]), weights("retrained", [0.0, 0.0, 0.0]))
    data: dict[str, Any] = {"name": name, "records": 3, "content_hash": "blake2b:aa"}
    result = efficacy_record(audit, (name, "b", "c"), notes, provenance("efficacy", name, data))
    return Run("d run", "efficacy", result, {})

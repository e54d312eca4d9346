"""A small run of `unlearn --outputs`: a method that remembers, and one of too few models."""

from functools import cache
from typing import Any

import jax
import numpy as np

from jaxaudit.audits import UnlearnOutputsAudit, UnlearnOutputsResult, score_unlearning
from jaxaudit.report import Run, recorded
from support.saved_runs.provenance import provenance

LABELS = np.arange(12) % 3


def outputs_of(models: int, own: float, seed: int) -> dict[str, np.ndarray]:
    """Outputs of models that are this much surer of each record's class, in nats."""
    forget = np.random.default_rng(seed).normal(size=(models, 12, 3)) + own * (np.arange(3) == LABELS[:, None])
    shares = np.linspace(0.8, 0.9, models)
    return {"forget": forget, "retain": shares, "test": shares}


@cache
def unlearn_outputs_audit(
    name: str, models: int = 6, retrained: int = 12, own: float = 9.0, original: float | None = 12.0
) -> UnlearnOutputsAudit:
    """An audit of a method of this name, which remembers as much as `own`, and of `few`."""
    methods = {name: outputs_of(models, own, 2), "few": outputs_of(3, 0.0, 3)}
    originals = None if original is None else outputs_of(models, original, 4)
    return score_unlearning(jax.random.key(1), methods, outputs_of(retrained, 0.0, 1), LABELS, original=originals)


def unlearn_outputs_run(name: str = "mine.npz", audit: UnlearnOutputsAudit | None = None) -> Run[UnlearnOutputsResult]:
    """A run of `unlearn --outputs`."""
    audit = audit or unlearn_outputs_audit(name)
    data: dict[str, Any] = {"name": name, "models": 6, "records": 12, "content_hash": "blake2b:aa"}
    described = provenance("unlearn", name, {name: data, "retrained": data})
    return Run("o run", "unlearn_outputs", recorded("unlearn_outputs", audit.result, audit.sources, described), {})

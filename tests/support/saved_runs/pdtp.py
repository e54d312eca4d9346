"""A small run of `pdtp` to make reports of, without training anything."""

from typing import Any

import numpy as np

from jaxaudit.audits import PDTPAudit, PDTPResult
from jaxaudit.metrics import SeedFloor
from jaxaudit.report import Run, recorded
from support.saved_runs.provenance import provenance


def audit_of(values: Any, **known: Any) -> PDTPAudit:
    """An audit of every record with these values, of which nothing else stands out but what is given."""
    values = np.asarray(values, np.float64)
    count = len(values)
    facts: dict[str, Any] = {
        "records": np.arange(count),
        "values": values,
        "exact": values,
        "dtp_bound": None,
        "classes": np.arange(count) % 2,
        "directions": np.ones(count, int),
        "floor": SeedFloor(np.full(count, 0.01), np.full(count, 0.02)),
        "duplicates": np.ones(count, int),
        "only_member": np.zeros(count, bool),
        "measurements": values[None],
        "class_names": ("yes", "no"),
        "model": "naive Bayes",
        "same_outputs": False,
        "train_accuracy": 0.9,
        "examples": count,
        "bins": 100,
        "seeded": True,
    }
    return PDTPAudit(**(facts | known))


def pdtp_audit(name: str = "people.csv") -> PDTPAudit:
    """Forty records, two of them above 1, one of those infinitely."""
    rng = np.random.default_rng(1)
    values = np.round(rng.gamma(0.3, 0.2, 40), 4)
    values[[3, 7]] = 1.4, np.inf
    floor = SeedFloor(rng.uniform(0, 0.1, 40), rng.uniform(0.1, 0.3, 40))
    return audit_of(values, floor=floor, class_names=(name, "no"))


def run_of(audit: PDTPAudit, name: str = "people.csv") -> Run[PDTPResult]:
    """A run that found this."""
    data = {"name": name, "records": 40, "columns": [name], "classes": [name, "no"], "content_hash": "blake2b:aa"}
    return Run(
        "b run",
        "pdtp",
        recorded("pdtp", audit.result, ["Long, Bindschaedler & Gunter 2017"], provenance("pdtp", name, data)),
        {},
    )


def pdtp_run(name: str = "people.csv") -> Run[PDTPResult]:
    """A run of `pdtp`."""
    return run_of(pdtp_audit(name), name)

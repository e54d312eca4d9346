"""What every run in the tests says of itself."""

from typing import Any

from jaxaudit.report import Provenance


def provenance(kind: str, name: str, data: dict[str, Any]) -> Provenance:
    """The provenance of a run of `kind` on data called `name`."""
    return Provenance(
        jaxaudit="0.1.0",
        versions={"jax": "0.10.2", "numpy": "2.4.6"},
        python="3.11.7",
        device="cpu: cpu",
        devices=1,
        cores=2,
        environment={},
        command=["jaxaudit", kind, "--data", name, "--seed", "7"],
        seed=7,
        options={"data": name, "level": 0.95, "learner": "nn", "width": None, "gray": True},
        data=data,
        started="2026-01-02T03:04:05+00:00",
        seconds=12.5,
    )

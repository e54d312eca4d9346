"""A small `power` audit and its run, from a separation that is known."""

from typing import Any

from msgspec.structs import replace

from jaxaudit import HoldoutTest, MembersTest
from jaxaudit.audits import PowerAudit, PowerResult
from jaxaudit.audits.power.audit import audit_of
from jaxaudit.metrics import Memory, Separation
from jaxaudit.report import Run, recorded
from support.saved_runs.provenance import provenance

KNOWN = Separation(0.5, 0.04, 0.04, 0.0, 31)
"""10% use is detected with 95% probability by 447 query records, and as many in the holdout."""


def power_audit(
    fraction: float = 0.1, query: int = 500, holdout: int = 500, measured: Separation = KNOWN
) -> PowerAudit:
    """What a measured separation says of sizes and of a fraction asked about."""
    memory = Memory(replace(measured, outside=0.2), replace(measured, stretch=1.1))
    return audit_of(measured, memory, (query, holdout, query), fraction, "training")


def power_run(name: str = "people.csv", audit: PowerAudit | None = None) -> Run[PowerResult]:
    """A run of `power` on data of this name."""
    data: dict[str, Any] = {"name": name, "records": 500, "content_hash": "blake2b:aa"}
    said = provenance("power", name, {"query": data, "calibration": data})
    sources = (HoldoutTest.source, MembersTest.source)
    return Run("f run", "power", recorded("power", (audit or power_audit()).result, sources, said), {})

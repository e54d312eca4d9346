"""A small `power` audit and its run, from a separation that is known."""

from typing import Any

from msgspec.structs import replace

from jaxaudit import HoldoutTest, MembersTest
from jaxaudit.audits import (
    FRACTIONS,
    UNDECIDED,
    PowerAudit,
    PowerResult,
    Size,
    conclusions,
    power_finding,
)
from jaxaudit.metrics import Memory, Separation, detection_probability, min_detectable_fraction, records_needed
from jaxaudit.report import Run, recorded
from support.saved_runs.provenance import provenance

KNOWN = Separation(0.5, 0.04, 0.04, 0.0, 31)
"""10% use is detected with 95% probability by 447 query records, and as many in the holdout."""


def power_audit(
    fraction: float = 0.1, query: int = 500, holdout: int = 500, measured: Separation = KNOWN
) -> PowerAudit:
    """What a measured separation says of sizes and of a fraction asked about."""
    models, memory = measured.models, Memory(replace(measured, outside=0.2), replace(measured, stretch=1.1))
    numbers = [(query // 2, holdout // 2), (query, holdout), (2 * query, 2 * holdout)]
    sizes, holdouts = (
        tuple(
            Size(
                n,
                m,
                (n, m) == (query, holdout),
                tuple(detection_probability(measured, n, m, each) for each in FRACTIONS),
                min_detectable_fraction(measured, n, m, models),
                conclusions(measured, memory, n, m, n) if some is numbers else (),
            )
            for n, m in some
        )
        for some in (numbers, [(query, times * query) for times in (1, 2)])
    )
    result = PowerResult(
        finding=UNDECIDED,
        separation=measured,
        sizes=sizes,
        holdouts=holdouts,
        fraction=fraction,
        records_needed=records_needed(measured, fraction),
        memory=memory,
        fractions=FRACTIONS,
    )
    return PowerAudit(replace(result, finding=power_finding(result, "training")), 8)


def power_run(name: str = "people.csv", audit: PowerAudit | None = None) -> Run[PowerResult]:
    """A run of `power` on data of this name."""
    data: dict[str, Any] = {"name": name, "records": 500, "content_hash": "blake2b:aa"}
    said = provenance("power", name, {"query": data, "calibration": data})
    sources = (HoldoutTest.source, MembersTest.source)
    return Run("f run", "power", recorded("power", (audit or power_audit()).result, sources, said), {})

"""A small `power` audit and its run, from a separation that is known."""

from typing import Any

from jaxaudit.audits.power.conclusions import conclusions
from jaxaudit.audits.power.result import FRACTIONS, Power, Size
from jaxaudit.metrics.power import Separation, detection_probability, min_detectable_fraction, records_needed
from jaxaudit.metrics.power_members import Memory
from jaxaudit.report.power.record import PowerRecord, power_record
from jaxaudit.report.run import Run
from support.saved_runs.provenance import provenance

KNOWN = Separation(0.5, 0.04, 0.04, 0.0, 31)
"""10% use is detected with 95% probability by 447 query records, and as many in the holdout."""


def power_audit(fraction: float = 0.1, query: int = 500, holdout: int = 500, measured: Separation = KNOWN) -> Power:
    """What a measured separation says of sizes and of a fraction asked about."""
    models = measured.models
    numbers = [(query // 2, holdout // 2), (query, holdout), (2 * query, 2 * holdout)]
    sizes, holdouts = (
        tuple(
            Size(
                n,
                m,
                tuple(detection_probability(measured, n, m, each) for each in FRACTIONS),
                min_detectable_fraction(measured, n, m, models),
            )
            for n, m in some
        )
        for some in (numbers, [(query, times * query) for times in (1, 2)])
    )
    by_models = tuple((count, min_detectable_fraction(measured, query, holdout, count)) for count in (19, 64))
    memory = Memory(measured._replace(outside=0.2), measured._replace(stretch=1.1))
    return Power(
        *(measured, sizes, 1, holdouts, by_models, fraction, records_needed(measured, fraction), 8, memory),
        conclusions(measured, memory, [(n, m, n) for n, m in numbers]),
    )


def power_run(name: str = "people.csv", audit: Power | None = None) -> Run[PowerRecord]:
    """A run of `power` on data of this name."""
    data: dict[str, Any] = {"name": name, "records": 500, "content_hash": "blake2b:aa"}
    said = provenance("power", name, {"query": data, "calibration": data})
    return Run("f run", "power", power_record(audit or power_audit(), said), {})

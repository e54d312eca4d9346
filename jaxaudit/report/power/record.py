"""The `power` answer as one JSON object; its shape is fixed by `power.schema.json` beside this file."""

from importlib.resources import files
from typing import Any

from jaxaudit.audits.power.audit import FRACTIONS, Power

SCHEMA = "jaxaudit.power/1"


def power_json(power: Power, provenance: dict[str, Any]) -> dict[str, Any]:
    """The object `jaxaudit power --json` prints."""
    return {
        "schema": SCHEMA,
        "separation": power.told._asdict(),
        "sizes": [
            {
                "query": row.query,
                "holdout": row.holdout,
                "given": index == power.given,
                "chances": [
                    {"fraction": f, "chance_noticed": chance} for f, chance in zip(FRACTIONS, row.chances, strict=True)
                ],
                "least_noticed": row.least,
            }
            for index, row in enumerate(power.rows)
        ],
        "shadow_models": [{"models": models, "least_noticed": least} for models, least in power.by_models],
        "fraction": power.fraction,
        "records_needed": power.needed,
        "provenance": provenance,
    }


def power_schema() -> str:
    """The JSON Schema of that object, as text."""
    return (files("jaxaudit.report.power") / "schema.json").read_text(encoding="utf-8")

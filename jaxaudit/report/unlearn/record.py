"""The `unlearn` answer as one JSON object; its shape is fixed by `unlearn.schema.json` beside this file."""

import math
from importlib.resources import files
from typing import Any

import numpy as np

from jaxaudit.audits.unlearn.result import COMPARED, REFERENCES, MethodResult, Scores, UnlearnAudit
from jaxaudit.metrics.retrained_band import Place

SCHEMA = "jaxaudit.unlearn/1"


def unlearn_json(
    audit: UnlearnAudit, forgotten: str, notes: tuple[str, ...], provenance: dict[str, Any]
) -> dict[str, Any]:
    """The object `jaxaudit unlearn --json` prints, about the one set of `audit`.

    Numbers JSON cannot hold: an infinite efficacy is `infinity`, a score that was not measured is null.

    Args:
        audit: what was found.
        forgotten: what was to be forgotten, in words.
        notes: further sentences.
        provenance: what repeats the run.
    """
    return {
        "schema": SCHEMA,
        "forgotten": forgotten,
        "protocol": {
            "training_records": audit.examples,
            "forgotten_records": int(audit.forgotten[0]),
            "test_records": audit.test_examples,
            "attack_nonmembers": audit.nonmembers,
            "seeds": audit.seeds,
            "level": audit.level,
            "p_value_threshold": audit.threshold,
            "enough_seeds": audit.enough_seeds,
            "members_share": audit.members_share if audit.nonmembers else None,
        },
        "methods": [_method(audit, method) for method in audit.methods],
        "caveats": list(caveats(audit, notes)),
        "provenance": provenance,
    }


def unlearn_schema() -> str:
    """The JSON Schema of that object, as text."""
    return (files("jaxaudit.report.unlearn") / "schema.json").read_text(encoding="utf-8")


def caveats(audit: UnlearnAudit, notes: tuple[str, ...]) -> tuple[str, ...]:
    """What a reader should keep in mind, in sentences."""
    said = []
    if not audit.enough_seeds:
        least = math.ceil(1 - math.log2(audit.threshold))
        said.append(
            f"{audit.seeds} seeds can show no difference from retraining: the smallest p-value there is, "
            f"{2.0 ** (1 - audit.seeds):.2g}, is above {audit.threshold:.2g}; it takes at least {least} seeds"
        )
    blind = [name.replace("_", " ") for name in audit.blind()]
    if blind and audit.enough_seeds:
        said.append(
            f"by {' and '.join(filter(None, (', '.join(blind[:-1]), blind[-1])))} not even the original, which forgot "
            "nothing, is told apart from retraining: that a method is not, says nothing of it"
        )
    if audit.nonmembers:
        said.append(
            f"attack: the mean probability of membership that a learned attack gives the forgotten records; one who "
            f"knows nothing says {audit.members_share:.2f}"
        )
    return (
        *said,
        "not told apart from retraining is no proof of forgetting: another score may tell",
        *notes,
    )


def _method(audit: UnlearnAudit, method: MethodResult) -> dict[str, Any]:
    return {
        "name": method.name,
        "scores": {name: _spread(getattr(method.scores, name)[0]) for name in Scores._fields},
        "places": {name: _place(audit, method.places[name][0]) for name in COMPARED if name in method.places},
        "conclusion": None if method.name in REFERENCES else audit.conclusion(method.name),
    }


def _spread(values: np.ndarray) -> dict[str, Any] | None:
    if np.isnan(values).any():
        return None
    return {
        "median": _number(median(values)),
        "low": _number(values.min()),
        "high": _number(values.max()),
        "mean": _number(values.mean()),
        "values": [_number(value) for value in values],
    }


def median(values: np.ndarray) -> float:
    """The median, of an even number the mean of the two in the middle; infinite where either is."""
    ordered = np.sort(values)
    low, high = ordered[(len(values) - 1) // 2], ordered[len(values) // 2]
    return float(low) if low == high else float(low / 2 + high / 2)


def _place(audit: UnlearnAudit, place: Place) -> dict[str, Any]:
    return {
        "verdict": audit.verdict(place),
        "p_value": place.p_value,
        "retrained_low": _number(place.low),
        "retrained_high": _number(place.high),
        "share_below": place.below,
        "share_above": place.above,
    }


def _number(value: Any) -> float | str:
    return "infinity" if math.isinf(value) else float(value)

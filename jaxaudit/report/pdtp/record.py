"""The `pdtp` answer as one JSON object; its shape is fixed by `pdtp.schema.json` beside this file."""

import math
from importlib.resources import files
from typing import Any

import numpy as np

from jaxaudit.audits.pdtp.audit import PDTPAudit, Reduction

SCHEMA = "jaxaudit.pdtp/1"
MOST_RECORDS = 100_000
QUANTILES = (0.5, 0.9, 0.99)


def verdict(audit: PDTPAudit) -> str:
    """`publish`, `do not publish`, or `inconclusive`, by the DTP-1 rule."""
    return {True: "publish", False: "do not publish", None: "inconclusive"}[audit.publish]


def because(audit: PDTPAudit) -> str:
    """Why, in a sentence."""
    measured = f"{len(audit.records):,} of {audit.examples:,} records"
    risky = int((audit.values > 1).sum())
    if audit.publish is False:
        plural = "record has a PDTP" if risky == 1 else "records have a PDTP"
        return f"{risky:,} {plural} above 1 (DTP-1 rule)"
    if audit.publish is None:
        return f"no PDTP is above 1, but only {measured} were measured"
    if audit.dtp_bound is not None and audit.dtp_bound.max() <= 1:
        return "no record has a PDTP above 1 (DTP-1 rule), nor a DTP: none moves an output that far on any input"
    return "no record has a PDTP above 1 (DTP-1 rule); a record may still show in outputs on other inputs"


def pdtp_json(
    audit: PDTPAudit,
    reduction: Reduction | None,
    class_names: tuple[str, ...],
    provenance: dict[str, Any],
    bound: float | None,
) -> dict[str, Any]:
    """The object `jaxaudit pdtp --json` prints; an infinite PDTP, which JSON cannot hold, is the text `infinity`.

    `records` is in the order of the table and complete up to `MOST_RECORDS`, beyond that the riskiest so many.
    """
    whole = audit
    if len(audit.records) > MOST_RECORDS:
        audit = _riskiest(audit)
    columns = zip(
        audit.records.tolist(),
        audit.values.tolist(),
        audit.exact.tolist(),
        [None] * len(audit.records) if audit.dtp_bound is None else map(_number, audit.dtp_bound.tolist()),
        audit.floor.mean.tolist(),
        audit.floor.largest.tolist(),
        audit.classes.tolist(),
        audit.directions.tolist(),
        audit.duplicates.tolist(),
        audit.only_member.tolist(),
        strict=True,
    )
    return {
        "schema": SCHEMA,
        "max_pdtp": _number(whole.max_pdtp),
        "publish": whole.publish,
        "verdict": verdict(whole),
        "because": because(whole),
        "bound": bound,
        "dtp_bound": None if whole.dtp_bound is None else _number(whole.dtp_bound.max()),
        "seed_floor": {
            "seeded": whole.seeded,
            "mean": _number(np.mean(whole.floor.mean)),
            "max": _number(np.max(whole.floor.largest)),
            "above": whole.above_floor,
        },
        "quantiles": {
            f"{share:g}": _number(np.quantile(whole.values, share, method="inverted_cdf")) for share in QUANTILES
        },
        "above_1": int((whole.values > 1).sum()),
        "above_1_without_bins": int((whole.exact > 1).sum()),
        "records_measured": len(whole.records),
        "train_accuracy": whole.train_accuracy,
        "records": [
            {
                "index": index,
                "pdtp": _number(value),
                "exact_pdtp": _number(exact),
                "dtp_bound": dtp_bound,
                "seed_floor": _number(floor),
                "seed_floor_max": _number(floor_max),
                "class": class_names[place],
                "direction": direction,
                "duplicates": copies,
                "only_member_of_its_class": alone,
            }
            for index, value, exact, dtp_bound, floor, floor_max, place, direction, copies, alone in columns
        ],
        "reduction": reduction
        and {"removed": reduction.removed.tolist(), "max_pdtp": [_number(value) for value in reduction.max_pdtp]},
        "provenance": provenance,
    }


def pdtp_columns(audit: PDTPAudit, class_names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The same of every measured record for `record_files`; NaN where there is no number."""
    return {
        "index": audit.records.astype(np.int64),
        "pdtp": audit.values,
        "exact_pdtp": audit.exact,
        "dtp_bound": np.full(len(audit.records), np.nan) if audit.dtp_bound is None else audit.dtp_bound,
        "seed_floor": audit.floor.mean,
        "seed_floor_max": audit.floor.largest,
        "class": np.array(class_names)[audit.classes],
        "direction": audit.directions.astype(np.int8),
        "duplicates": audit.duplicates.astype(np.int64),
        "only_member_of_its_class": audit.only_member,
    }


def _riskiest(audit: PDTPAudit) -> PDTPAudit:
    kept = np.sort(np.argsort(-audit.values, kind="stable")[:MOST_RECORDS])
    rows = {name: getattr(audit, name)[kept] for name in ("records", "values", "exact", "classes", "directions")}
    rows |= {name: getattr(audit, name)[kept] for name in ("duplicates", "only_member")}
    rows["dtp_bound"] = None if audit.dtp_bound is None else audit.dtp_bound[kept]
    return audit._replace(**rows, floor=type(audit.floor)(*(values[kept] for values in audit.floor)))


def pdtp_schema() -> str:
    """The JSON Schema of that object, as text."""
    return (files("jaxaudit.report.pdtp") / "schema.json").read_text(encoding="utf-8")


def _number(value: Any) -> float | str:
    return "infinity" if math.isinf(value) else float(value)

"""The `ks` answer as one JSON object; its shape is fixed by `ks.schema.json` beside this file."""

import math
from importlib.resources import files
from typing import Any

import numpy as np

from jaxaudit.audits.ks.result import KSAudit, TargetResult
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ema import EMA, ema_rule
from jaxaudit.metrics.ks import Rho
from jaxaudit.metrics.usage import Usage, used_share

SCHEMA = "jaxaudit.ks/1"


def ks_json(audit: KSAudit, provenance: dict[str, Any]) -> dict[str, Any]:
    """The object `jaxaudit ks --json` prints: numbers JSON cannot hold (no interval, no ratio) are null."""
    return {
        "schema": SCHEMA,
        "targets": [_target(target) for target in audit.targets],
        "noise_floor": {
            "median": _number(np.median(audit.noise_floor)) if len(audit.noise_floor) else None,
            "max": _number(np.max(audit.noise_floor)) if len(audit.noise_floor) else None,
            "values": _numbers(audit.noise_floor),
        },
        "provenance": provenance,
    }


def ks_schema() -> str:
    """The JSON Schema of that object, as text."""
    return (files("jaxaudit.report.ks") / "schema.json").read_text(encoding="utf-8")


def _target(target: TargetResult) -> dict[str, Any]:
    truth = target.truth
    return {
        "name": target.name,
        "truth": truth
        and {"used_fraction": truth.used_fraction, "training_records": truth.records, "expected": truth.expected},
        "rho": _rho(target.rho),
        "ks": {"target": _numbers(target.rho.distances), "calibration": _numbers(target.rho.calibration_distances)},
        "verdict": target.verdict,
        "because": target.because,
        "paper_rule": target.paper_rule,
        "checks": [_check(check) for check in target.checks],
        "controls": [_rho(control) for control in target.controls],
        "method": target.method,
        "rho_verdict": target.rho_verdict,
        "usage": [_usage(usage) for usage in target.usage],
        "ema": _ema(target.ema),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    share = used_share(usage)
    numbers = {name: _number(getattr(usage, name)) for name in ("fraction_low", "fraction_high")}
    return {**usage._asdict(), "fraction": share and share.value, **numbers, "reasons": list(usage.reasons)}


def _ema(emas: tuple[EMA, ...]) -> dict[str, Any] | None:
    if not emas:
        return None
    p_values = np.array([each.p_value for each in emas])
    shares = np.array([each.member_share for each in emas])
    return {
        "p_value": _number(np.median(p_values)),
        "member_share": _number(np.median(shares)),
        "p_values": _numbers(p_values),
        "member_shares": _numbers(shares),
        "rule": ema_rule(float(np.median(p_values))),
    }


def _rho(rho: Rho) -> dict[str, Any]:
    return {
        "median": _number(rho.median),
        "low": _number(rho.low),
        "high": _number(rho.high),
        "values": _numbers(rho.values),
    }


def _check(check: Check) -> dict[str, Any]:
    return {**check._asdict(), "value": _number(check.value), "threshold": _number(check.threshold)}


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _numbers(values: np.ndarray) -> list[float | None]:
    return [_number(value) for value in values]

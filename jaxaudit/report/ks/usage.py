"""How much of the query set a target used, where a run's verdict rests on a test of use or on EMA."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxaudit.errors import visible
from jaxaudit.metrics.usage import Share, Usage, used_share
from jaxaudit.report.numbers import NONE, nats, number, precise, span
from jaxaudit.report.page import Cells

TESTS = ("holdout", "shadow")
UNKNOWN = "unknown"


class Measured(NamedTuple):
    """The number a verdict rests on: what it is called, how it is shown, and its interval, empty where none is."""

    name: str
    shown: str
    between: str


def measured(target: Mapping[str, Any]) -> Measured:
    """The number that the verdict's own method rests on."""
    method = target.get("method", "rho")
    if method in TESTS:
        share = share_of(target["usage"][0])
        between = f"{_percent(share.low)} to {_percent(share.high)}" if share else ""
        return Measured("share of the query set that looks used", _percent(share.value) if share else UNKNOWN, between)
    if method == "ema":
        return Measured("share of query records that look used (EMA)", _percent(target["ema"]["member_share"]), "")
    return Measured("rho", number(target["rho"]["median"], 2), span(target["rho"]))


def share_of(usage: Mapping[str, Any]) -> Share | None:
    """The used share by a test of use as a result holds it; None where it is unknown."""
    numbers = {name: nats(usage[name]) for name in ("fraction", "fraction_low", "fraction_high")}
    return used_share(Usage(**{**usage, **numbers, "reasons": tuple(usage["reasons"])}))


def least_noticed(target: Mapping[str, Any]) -> str:
    """The least share of the query set whose use the verdict's own test would have noticed, in percent."""
    usage = target.get("usage") or ()
    return _percent(usage[0]["detectable"]) if usage else NONE


def usage_facts(target: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Name and value of what belongs beside the verdict."""
    facts = []
    for place, usage in enumerate(target.get("usage") or ()):
        name = f"{usage['method']} test"
        if place:
            facts.append((f"By the {name}", f"{usage['verdict']}, used share {_fraction(usage)}"))
        facts.append((f"If it was never used ({name})", f"p = {precise(usage['p_never'])}"))
        least = usage["detectable"]
        noticed = "not even the use of all" if least is None else _percent(least)
        facts.append((f"Least use that would have shown ({name})", noticed))
    if target.get("method", "rho") != "rho":
        rho = target["rho"]
        between = span(rho)
        facts.append(("rho", number(rho["median"], 2) + (f" ({between})" if between else "")))
        facts.append(("By rho and its checks", target["rho_verdict"]))
    return tuple(facts)


def usage_cells(targets: Sequence[Mapping[str, Any]]) -> tuple[Cells, ...]:
    """One table of all targets' tests of use; none where there is no such test."""
    rows = [
        (
            visible(target["name"]),
            usage["method"],
            usage["verdict"],
            _fraction(usage),
            precise(usage["detectable"]),
            precise(usage["p_never"]),
            precise(usage["p_fully"]),
            "; ".join(visible(reason) for reason in usage["reasons"]) or "-",
        )
        for target in targets
        for usage in target.get("usage") or ()
    ]
    rows += [
        (
            visible(target["name"]),
            "EMA",
            target["ema"]["rule"],
            f"{_percent(target['ema']['member_share'])} flagged",
            *("-", "-"),
            precise(target["ema"]["p_value"]),
            "-",
        )
        for target in targets
        if target.get("ema")
    ]
    if not rows:
        return ()
    numbers = ("detectable fraction", "p never used", "p all used")
    return (
        Cells(
            "How much of the query set was used",
            ("target", "test", "verdict", "used fraction", *numbers, "why"),
            tuple(rows),
            numbers,
        ),
    )


def _fraction(usage: Mapping[str, Any]) -> str:
    share = share_of(usage)
    return f"{_percent(share.value)} ({_percent(share.low)} to {_percent(share.high)})" if share else UNKNOWN


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.0f}%" if value >= 0.1 or value == 0 else f"{100 * value:.1f}%"

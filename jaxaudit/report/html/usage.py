"""How much of the query set a target used, where a run's verdict rests on a test of use or on EMA."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxaudit.errors import visible
from jaxaudit.report.html.numbers import NONE, number, precise, span
from jaxaudit.report.html.page import Cells

TESTS = ("holdout", "shadow")


class Measured(NamedTuple):
    """The number a verdict rests on: what it is called, how it is shown, and its interval, empty where none is."""

    name: str
    shown: str
    between: str


def measured(target: Mapping[str, Any]) -> Measured:
    """The number that the verdict's own method rests on."""
    method = target.get("method", "rho")
    if method in TESTS:
        usage = target["usage"][0]
        low, high = usage["fraction_low"], usage["fraction_high"]
        between = "" if low is None or high is None else f"{_percent(low)} to {_percent(high)}"
        return Measured("share of the query set that looks used", _percent(usage["fraction"]), between)
    if method == "ema":
        return Measured("share of query records that look used (EMA)", _percent(target["ema"]["member_share"]), "")
    return Measured("rho", number(target["rho"]["median"], 2), span(target["rho"]))


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
            facts.append((f"By the {name}", f"{usage['verdict']}, used {_fraction(usage)}"))
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
    value, low, high = (usage[f"fraction{end}"] for end in ("", "_low", "_high"))
    return _percent(value) + ("" if low is None or high is None else f" ({_percent(low)} to {_percent(high)})")


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.0f}%" if value >= 0.1 or value == 0 else f"{100 * value:.1f}%"

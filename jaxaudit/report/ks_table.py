"""The `ks` answer for a person at a terminal."""

import math

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxaudit.audits.ks_result import KSAudit, TargetResult

_STYLE = {"forgotten": "bold green", "not forgotten": "bold red", "inconclusive": "bold yellow"}


def ks_table(audit: KSAudit) -> RenderableType:
    """A row a target, why where it is not plain, and what the checks found."""
    table = Table(
        title="Has the target forgotten the query set?",
        title_justify="left",
        title_style="bold",
        box=SIMPLE,
        pad_edge=False,
    )
    known = any(target.truth for target in audit.targets)
    table.add_column(
        "target trained on" if all(target.truth for target in audit.targets) else "target", overflow="fold"
    )
    if known:
        table.add_column("query used", justify="right", no_wrap=True)
    table.add_column("rho", justify="right")
    table.add_column("interval", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("paper's rule", no_wrap=True)
    for target in audit.targets:
        truth = [_truth(target)] if known else []
        table.add_row(
            escape(target.name),
            *truth,
            _decimal(target.rho.median),
            f"{target.rho.low:.2f}-{target.rho.high:.2f}" if math.isfinite(target.rho.low) else "none",
            Text(target.verdict, _STYLE[target.verdict]),
            target.paper_rule,
        )
    return Group(table, *_reasons(audit), *_checks(audit))


def _truth(target: TargetResult) -> str:
    if target.truth is None:
        return "unknown"
    used = target.truth.used_fraction
    return "none" if used == 0 else f"{used:.0%}" if used >= 0.01 else "under 1%"


def _reasons(audit: KSAudit) -> list[RenderableType]:
    return [
        Padding(Text.assemble((f"{target.name}: ", "bold"), target.because), (0, 0, 0, 1))
        for target in audit.targets
        if target.verdict == "inconclusive"
    ]


def _checks(audit: KSAudit) -> list[RenderableType]:
    """Every check once, the failed ones in full."""
    lines: list[RenderableType] = []
    seen = {}
    for target in audit.targets:
        for check in target.checks:
            seen.setdefault((check.name, check.message), check)
    failed = [check for check in seen.values() if not check.passed]
    passed = list(dict.fromkeys(check.name for check in seen.values() if check.passed))
    for check in failed:
        label = "FAILED " if check.decisive else "warning "
        lines.append(
            Padding(Text.assemble((label, "bold red"), (f"{check.name}: ", "bold"), check.message), (0, 0, 0, 1))
        )
    if passed:
        lines.append(Padding(Text(f"checks passed: {', '.join(passed)}", "dim"), (0, 0, 0, 1)))
    floor = audit.noise_floor
    if len(floor):
        words = (
            f"noise floor: query models of different seeds are {_median(floor):.3f} apart (at most {max(floor):.3f})"
        )
        lines.append(Padding(Text(words, "dim"), (0, 0, 0, 1)))
    return lines


def _median(values: "list[float]") -> float:
    ordered = sorted(float(value) for value in values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _decimal(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "none"

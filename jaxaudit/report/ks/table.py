"""The `ks` answer for a person at a terminal."""

import math
from decimal import Decimal
from statistics import median

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxaudit.audits.ks.result import KSAudit, TargetResult
from jaxaudit.audits.ks.settle import concerned, percent, rests_on
from jaxaudit.errors import visible
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.usage import used_share
from jaxaudit.report.ks.usage_table import (
    ASSUMPTIONS,
    MEANING,
    STYLE,
    WHY_UNKNOWN,
    narrow_table,
    truth_text,
    usage_table,
)


def ks_table(audit: KSAudit, level: float) -> RenderableType:
    """A row a target, with intervals at this level, why it is inconclusive, and what the checks found."""
    if not all(target.usage for target in audit.targets):
        return Group(_rho_table(audit, level), Text(), *_emas(audit), *_reasons(audit), *_checks(audit))
    return Group(usage_table(audit, level), Text(), *_reasons(audit), *_assumptions(audit), *_checks(audit))


def _rho_table(audit: KSAudit, level: float) -> Table:
    table = narrow_table()
    known = any(target.truth for target in audit.targets)
    table.add_column(
        "target trained on" if all(target.truth for target in audit.targets) else "target", overflow="fold"
    )
    if known:
        table.add_column("query\nused", justify="right", no_wrap=True)
    table.add_column("rho", justify="right")
    table.add_column(f"{_percent(level)}\ninterval", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("paper's rule", no_wrap=True)
    for target in audit.targets:
        truth = [truth_text(target)] if known else []
        table.add_row(
            Text(visible(target.name)),
            *truth,
            _decimal(target.rho.median),
            f"{target.rho.low:.2f}-{target.rho.high:.2f}" if math.isfinite(target.rho.low) else "none",
            Text(target.verdict, STYLE[target.verdict]),
            target.paper_rule,
        )
    return table


def _emas(audit: KSAudit) -> list[RenderableType]:
    """EMA's numbers, where its verdict does not say them below."""
    return [
        _line((f"{visible(target.name)}: ", "bold"), target.because)
        for target in audit.targets
        if target.method == "ema" and target.verdict != "inconclusive"
    ]


def _assumptions(audit: KSAudit) -> list[RenderableType]:
    """What the tests take for granted, and what the other columns mean."""
    methods = dict.fromkeys(usage.method for target in audit.targets for usage in target.usage)
    lines = [_line(ASSUMPTIONS[method]) for method in methods]
    forgotten = [target for target in audit.targets if target.verdict == "forgotten" and target.usage]
    if forgotten:
        most = max(target.usage[0].detectable or 1.0 for target in forgotten)
        lines.append(
            _line(
                ("`forgotten` ", "bold"),
                f"is said of used shares from the least seen up (at most {percent(most)} here): the use of less cannot "
                "be excluded",
            )
        )
    if not all(used_share(usage) for target in audit.targets for usage in target.usage):
        lines.append(_line((WHY_UNKNOWN, "dim")))
    return [*lines, _line((MEANING, "dim"))]


def _reasons(audit: KSAudit) -> list[RenderableType]:
    """Why there is no verdict, said once for all targets it holds for."""
    unsettled = [target for target in audit.targets if target.verdict == "inconclusive"]
    reasons = dict.fromkeys(target.because for target in unsettled)
    return [
        _line((f"{_names([t for t in unsettled if t.because == because], audit)}: ", "bold"), because)
        for because in reasons
    ]


def _checks(audit: KSAudit) -> list[RenderableType]:
    """Every check once, those that failed in full, unless they are a verdict's reason already.

    Of one that failed for rho alone the first outcome stands for all.
    """
    held_by: dict[Check, list[TargetResult]] = {}
    aside: dict[str, Check] = {}
    for target in audit.targets:
        for check in target.checks:
            alone = check.decisive and not check.passed and not rests_on(target.method, check)
            held_by.setdefault(aside.setdefault(check.name, check) if alone else check, []).append(target)
    reasons = {target.because for target in audit.targets}
    lines: list[RenderableType] = []
    for check, targets in held_by.items():
        if not check.passed and f"{check.name}: {check.message}" not in reasons:
            rests = any(rests_on(target.method, check) for target in targets)
            failing = "FAILED " if rests else f"for {concerned(check)} alone, failed "
            label = failing if check.decisive else "warning "
            whose = "" if len(targets) == len(audit.targets) else f" ({_names(targets, audit)})"
            lines.append(_line((label, "bold red"), (f"{check.name}{whose}: ", "bold"), check.message))
    failed = {check.name for check in held_by if not check.passed}
    passed = [name for name in dict.fromkeys(check.name for check in held_by) if name not in failed]
    if passed:
        lines.append(_line((f"checks passed: {', '.join(passed)}", "dim")))
    floor = audit.noise_floor.tolist()
    if floor:
        words = f"noise floor: query models of different seeds are {median(floor):.3f} apart (at most {max(floor):.3f})"
        lines.append(_line((words, "dim")))
    return lines


def _names(targets: list[TargetResult], audit: KSAudit) -> str:
    """The targets a line is about, where it is not about all of several."""
    if len(targets) == len(audit.targets) > 1:
        return "all targets"
    return ", ".join(target.name for target in targets)


def _line(*parts: str | tuple[str, str]) -> RenderableType:
    safe = [visible(part) if isinstance(part, str) else (visible(part[0]), part[1]) for part in parts]
    return Padding(Text.assemble(*safe), (0, 0, 0, 1))


def _percent(share: float) -> str:
    """All of its decimals, as they were given: 0.9999999 is not 100%."""
    return f"{(100 * Decimal(str(share))).normalize():f}%"


def _decimal(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "none"

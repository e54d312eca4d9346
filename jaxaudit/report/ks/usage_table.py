"""The answers of the tests of use in a table, a row a target and test."""

import math
from statistics import median

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from jaxaudit.audits.ks.result import KSAudit, TargetResult
from jaxaudit.audits.ks.settle import percent
from jaxaudit.errors import visible
from jaxaudit.metrics.ema import ema_rule
from jaxaudit.metrics.usage import Usage, used_share

STYLE = {"forgotten": "bold green", "not forgotten": "bold red", "inconclusive": "bold yellow"}
NAMES = {"holdout": "holdout test", "shadow": "shadow test", "ema": "EMA", "rho": "rho"}
MEANING = (
    "p never, p all: p-values of `it never used the query set` and `it used all of it`; used, of it: the share used, "
    "in percent; least seen: the smallest share whose use would have been noticed 19 times of 20; rho: Liu & "
    "Tsaftaris's ratio, by whose rule 1 or more is `forgotten`"
)
UNKNOWN = "unknown"
WHY_UNKNOWN = f"{UNKNOWN}: the interval of the used share is from 0 to 100%, or a p-value contradicts its estimate"
ASSUMPTIONS = {
    "holdout": (
        "holdout test: p never is exact if the provider drew query set and holdout alike and kept the holdout to "
        "itself; the other numbers suppose shadow models built and trained like the target, too, and where its other "
        "data are not the calibration set, p all comes out too small"
    ),
    "shadow": (
        "shadow test: all numbers suppose that shadow models are built and trained like the target, and that its other "
        "data are like the calibration set. Training on other records just like the query set looks like use of it, "
        "and where a part was used the rest of it can look used too: the share may be overstated. Where these "
        "assumptions nearly hold it still errs more often than its p-values say (README, `How often is it wrong?`): "
        "use a holdout where you can"
    ),
}


def usage_table(audit: KSAudit, level: float) -> Table:
    """The verdict and what it rests on; further tests that were made stand below, by their names."""
    known = all(target.truth for target in audit.targets)
    table = narrow_table()
    table.add_column("target trained on" if known else "target", overflow="fold")
    if any(target.truth for target in audit.targets):
        table.add_column("truly\nused", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("p\nnever", justify="right", no_wrap=True)
    table.add_column("p\nall", justify="right", no_wrap=True)
    table.add_column(f"used, of it\n({100 * level:g}%)", justify="right", no_wrap=True)
    table.add_column("least\nseen", justify="right", no_wrap=True)
    table.add_column("rho", justify="right", no_wrap=True)
    for target in audit.targets:
        first, *others = target.usage
        truth = [truth_text(target)] if any(each.truth for each in audit.targets) else []
        rho = f"{target.rho.median:.2f}" if math.isfinite(target.rho.median) else "none"
        table.add_row(
            Text(visible(target.name)), *truth, Text(target.verdict, STYLE[target.verdict]), *_numbers(first), rho
        )
        blank = [""] * len(truth)
        for usage in others:
            table.add_row(f"  by the {NAMES[usage.method]}", *blank, usage.verdict, *_numbers(usage), "")
        if target.ema:
            p_value = median(each.p_value for each in target.ema)
            share = median(each.member_share for each in target.ema)
            flagged = f"{percent(share)} flagged"
            table.add_row("  by EMA", *blank, ema_rule(p_value), "", p_text(p_value), flagged, "", "")
        if target.ema or others:
            table.add_row("  by rho", *blank, target.rho_verdict, "", "", "", "", "")
    return table


def narrow_table() -> Table:
    """A table below the command's question, so close that names of targets have room in 80 columns."""
    return Table(
        title="Has the target forgotten the query set?\n",
        title_justify="left",
        title_style="bold",
        box=SIMPLE,
        pad_edge=False,
        show_edge=False,
        padding=0,
    )


def truth_text(target: TargetResult) -> str:
    """How much of the query set a simulated target was trained on."""
    if target.truth is None:
        return "unknown"
    used = target.truth.used_fraction
    return "none" if used == 0 else f"{used:.0%}" if used >= 0.01 else "under 1%"


def p_text(value: float) -> str:
    """A p-value in a column.

    >>> p_text(0.00049), p_text(0.025), p_text(0.3), p_text(1.0)
    ('<.001', '.025', '.30', '1')
    """
    if value < 0.001:
        return "<.001"
    return f"{value:.3f}"[1:] if value < 0.0995 else f"{value:.2f}"[1:] if value < 0.995 else "1"


def _numbers(usage: Usage) -> list[str]:
    share = used_share(usage)
    return [
        p_text(usage.p_never),
        "none" if usage.p_fully is None else p_text(usage.p_fully),
        f"{100 * share.value:.0f}% ({100 * share.low:.0f}-{100 * share.high:.0f})" if share else UNKNOWN,
        "none" if usage.detectable is None else percent(usage.detectable),
    ]

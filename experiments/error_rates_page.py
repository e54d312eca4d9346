"""The page and the picture of `error_rates`."""

from typing import Any

import numpy as np

from experiments.error_rates_judge import ALONE, HALVES
from experiments.error_rates_recipes import RECIPES
from experiments.error_rates_targets import EPOCHS, FAMILY, FRACTIONS, GUESSED, SIZES
from experiments.error_rates_worlds import COPIES, KINDS
from experiments.figures import COLORS, panels
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.metrics.usage import STATED_FRACTION

METHODS = {
    "holdout": "holdout test",
    "reference": "reference test",
    "shadow": "shadow test",
    "rho": "rho, the paper's rule",
    "ema": "EMA",
}
TESTS = {name: METHODS[name] for name in ("holdout", "reference", "shadow")}
COMPARED = {**TESTS, "guess": f"holdout test, {GUESSED['halves']} models of the guessed design"}
NAMES = {"digits": "digits", "adult": "Adult", "location": "Location", "copies": f"digits by {COPIES} near-copies"}
REST_NAMES = {
    "calibration": "calibration domain, fresh records",
    "own": "the provider's other records",
    "both": "half of each",
    "other": "another domain",
}
OVERALL = {
    "false alarms": 'never used: "not forgotten" (wrong)',
    "forgotten, never used": 'never used: "forgotten" (right)',
    "wrong forgotten": '5% to all used: "forgotten" (wrong)',
    "wrong forgotten, all used": 'all used: "forgotten" (wrong)',
    "found, all used, large": 'all used, n >= 1,000: "not forgotten" (right)',
    "inconclusive": 'all targets: "inconclusive"',
}
PROTOCOL = (
    "Digits, with and without near-copies that are dealt together: the provider is MNIST, the calibration domain USPS, "
    "Semeion and MNIST-M, another domain CIFAR-10, all at 14x14. Adult: women, men, men with every column shuffled. "
    "Location: provider and calibration domain are one distribution split in two, so no target has the provider's "
    "other records.",
    "A target is trained on 2,000 other records (4,000 at n = 3,000 and more; Location 680) and on the stated fraction "
    "of the query set; never on the holdout, which has n records too. The guessed design: one hidden layer of 64, "
    f"Adam, {EPOCHS['digits']} / {EPOCHS['adult']} / {EPOCHS['location']} epochs. Targets have it, or another: 256 "
    f"wide, two layers, tanh, SGD with momentum, half or twice as long; or are {', '.join(RECIPES)}.",
    f"Shadow models of {len(FAMILY)} designs ({', '.join(FAMILY)}): {HALVES} for the holdout test; {ALONE['none']}, "
    f"{ALONE['half']} and {ALONE['full']} with none, half and all of the query set for the reference and the shadow "
    f"test; {GUESSED['query_only']} query and {GUESSED['calibration_only']} calibration models for rho, one of the "
    "latter for EMA. The reference is the calibration set. The three tests say "
    f'"forgotten" only where the upper limit of the used fraction is {STATED_FRACTION:.0%} or less.',
    "Targets of one world share its query set and shadow models, so the intervals of all rates but the holdout test's "
    "false alarms are somewhat too narrow; for those, query and holdout were dealt anew for each target.",
)


def shown(found: dict[str, Any]) -> str:
    """A share, its interval and its count."""
    if found["share"] is None:
        return "-"
    return f"{found['share']:.1%} ({found['low']:.1%} to {found['high']:.1%}; {found['count']} of {found['of']})"


def short(found: dict[str, Any]) -> str:
    """A share and its interval."""
    return "-" if found["share"] is None else f"{found['share']:.0%} ({found['low']:.0%}-{found['high']:.0%})"


def share(found: dict[str, Any]) -> str:
    return "-" if found["share"] is None else f"{found['share']:.0%}"


def lines(record: dict[str, Any]) -> list[str]:
    """The page beside the figure."""
    found = record["rates"]
    return [
        "# How often is it wrong?",
        "",
        f"{found['targets']:,} targets of known truth in {found['worlds']} worlds, on {record['device']}. In brackets: "
        "Clopper & Pearson's 95% intervals.",
        "",
        *(f"- {words}" for words in record["sentences"]),
        "",
        "## All targets",
        "",
        *table(
            ["", *METHODS.values()],
            [[title, *(short(found["overall"][m][name]) for m in METHODS)] for name, title in OVERALL.items()],
        ),
        "",
        '## Never used, and called "not forgotten"',
        "",
        *table(
            ["data", "n", *METHODS.values()],
            [[*place(c), *(short(at(found, m, c, 0.0)) for m in METHODS)] for c in found["cells"]],
        ),
        *[line for method in METHODS for line in power_table(found, method)],
        "",
        "## By the target's other training data, and its design",
        "",
        'Never used and called "not forgotten" / used, 5% to all, and called "forgotten" / all used and found.',
        "",
        *table(
            ["other data", "design", *METHODS.values()],
            [
                [
                    REST_NAMES[cell["rest"]],
                    cell["design"],
                    *(_three(found["by making"][m][index]) for m in METHODS),
                ]
                for index, cell in enumerate(found["by making"]["holdout"])
            ],
        ),
        "",
        "## What interval and test of full use promise, and keep",
        "",
        *table(
            ["", "targets like the shadow models (promised)", "all others"],
            [
                [f"{COMPARED[m]}: {title}", shown(found[name][m]["like"]), shown(found[name][m]["unlike"])]
                for name, title in (
                    ("interval covers", "95% interval holds the used fraction"),
                    ("full use rejected, all used", "full use rejected at 5% though all was used"),
                )
                for m in COMPARED
            ],
        ),
        "",
        "## How it was done",
        "",
        *[line for paragraph in PROTOCOL for line in (paragraph, "")][:-1],
    ]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def place(cell: dict[str, Any]) -> list[str]:
    return [NAMES[cell["kind"]], f"{cell['size']:,}"]


def at(found: dict[str, Any], method: str, cell: dict[str, Any], fraction: float) -> dict[str, Any]:
    """The rate of "not forgotten" in one cell."""
    wanted = (cell["kind"], cell["size"], fraction)
    return next(p for p in found["power"][method] if (p["kind"], p["size"], p["fraction"]) == wanted)


def power_table(found: dict[str, Any], method: str) -> list[str]:
    """How often a method says "not forgotten", by the fraction used."""
    last = ["median detectable"] if method == "holdout" else []
    rows = []
    for cell in found["cells"]:
        least = ["none" if cell["detectable"] is None else f"{cell['detectable']:.0%}"] if last else []
        rows.append([*place(cell), *(share(at(found, method, cell, fraction)) for fraction in FRACTIONS), *least])
    head = ["data", "n", *(f"{fraction:.0%}" for fraction in FRACTIONS), *last]
    return ["", f'## {METHODS[method]}: called "not forgotten", by the fraction used', "", *table(head, rows)]


def _three(cell: dict[str, Any]) -> str:
    return " / ".join(share(cell[name]) for name in ("false alarms", "wrong forgotten", "found, all used"))


def drawing(found: dict[str, Any]) -> Any:
    """Above: the holdout test, a panel a kind of data. Below: all methods at n = 1,000."""
    figure, axes = panels(2, len(KINDS), width=12, height=5.2, sharey=True)
    for column, kind in enumerate(KINDS):
        above, below = axes[column], axes[len(KINDS) + column]
        for color, size in zip(COLORS, SIZES, strict=False):
            _curve(above, found["power"]["holdout"], kind, size, color, f"n = {size:,}")
        for color, (method, name) in zip(COLORS, METHODS.items(), strict=False):
            _curve(below, found["power"][method], kind, 1000, color, name)
        above.set_title(f"{NAMES[kind]}: the holdout test")
        below.set_title(f"{NAMES[kind]}, n = 1,000: all methods")
        below.set_xlabel("fraction of the query set used")
    for axis in axes:
        axis.axhline(ALPHA, color="#999999", linestyle="--", linewidth=0.8)
        axis.set_xticks(np.arange(len(FRACTIONS)), [f"{fraction:.0%}" for fraction in FRACTIONS])
        axis.set_ylim(-0.03, 1.03)
    for first in (0, len(KINDS)):
        axes[first].set_ylabel('called "not forgotten"')
        axes[first].legend(fontsize=7.5)
    return figure


def _curve(axis: Any, power: list[dict[str, Any]], kind: str, size: int, color: str, label: str) -> None:
    points = [p for p in power if (p["kind"], p["size"]) == (kind, size) and p["share"] is not None]
    if not points:
        return
    places = [FRACTIONS.index(p["fraction"]) for p in points]
    axis.plot(places, [p["share"] for p in points], color=color, marker="o", markersize=3, label=label)
    low, high = ([p[end] for p in points] for end in ("low", "high"))
    axis.fill_between(places, low, high, color=color, alpha=0.1, linewidth=0)

"""The page and the picture of `error_rates`."""

from typing import Any

import numpy as np

from experiments.error_rates_judge import ALONE, HALVES
from experiments.error_rates_recipes import RECIPES
from experiments.error_rates_targets import EPOCHS, FAMILY, FRACTIONS, GUESSED
from experiments.error_rates_worlds import COPIES
from experiments.figures import panels
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
SHOWN = (0.0, 0.25, 0.5, 1.0)
USED = {0.0: "never used", 0.25: "a quarter used", 0.5: "half used", 1.0: "all used"}
OWN = {
    False: "no other records of this provider",
    True: "other records of this provider, too",
}
VERDICTS = {"forgotten": "#8ecae6", "inconclusive": "#e0e0e0", "not forgotten": "#f4a261"}
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
        *_in_short(found),
        "",
        "## In detail",
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
        "## What `jaxaudit power` promised, and what the holdout test found",
        "",
        "Networks of seven designs. Promised before there was a target, from query and calibration set alone.",
        "",
        *table(
            ["other data", "n", "used", "promised", "found"],
            [
                [
                    OWN[cell["own"]],
                    "1,000 and more" if cell["large"] else "below 1,000",
                    f"{cell['fraction']:.0%}",
                    f"{cell['promised']:.0%}",
                    short(cell),
                ]
                for cell in found["promised power"]
            ],
        ),
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


def _in_short(found: dict[str, Any]) -> list[str]:
    """For a reader who decides, and has not read the papers."""

    def said(method: str, verdict: str, fraction: float, *owns: bool) -> str:
        cells = [
            c for c in found["verdicts"][method] if c["fraction"] == fraction and c["own"] in (owns or (False, True))
        ]
        count, total = sum(c[verdict] for c in cells), sum(c["of"] for c in cells)
        return f"{count} of {total} ({count / max(total, 1):.0%})"

    wrong, missed = "not forgotten", "forgotten"
    return [
        f"We trained {found['targets']:,} models of which we know what they were trained on, and asked jaxaudit. It "
        "answers `forgotten`, `not forgotten` or `inconclusive`. The last is no verdict: it says what is missing.",
        "",
        "**With a holdout** (records dealt at random from the same source and kept from the model):",
        "",
        f"- A model that never used the data was called `{wrong}`: {said('holdout', wrong, 0.0)}. The test is built "
        "to do this at most 5 times in 100, whatever the model is.",
        f"- A model that used all of it was called `{missed}`: {said('holdout', missed, 1.0)}; half of it: "
        f"{said('holdout', missed, 0.5)}.",
        f"- A model that used all of it was found: {said('holdout', wrong, 1.0)}. With few records, or where a model "
        "remembers little, it is `inconclusive`.",
        "",
        "**With outputs on a reference** (other data that the model is known not to have used), where the model has no "
        "other records of the same provider:",
        "",
        f"- Never used, called `{wrong}`: {said('reference', wrong, 0.0, False)}; all used, called `{missed}`: "
        f"{said('reference', missed, 1.0, False)}; all used, found: {said('reference', wrong, 1.0, False)}.",
        f"- If the model has other records of the same provider, this test takes them for use: "
        f"{said('reference', wrong, 0.0, True)} were called `{wrong}`. Only a holdout tells the two apart.",
        "",
        "**With neither**, by shadow models alone:",
        "",
        f"- Never used, called `{wrong}`: {said('shadow', wrong, 0.0, False)}, and with other records of the same "
        f"provider {said('shadow', wrong, 0.0, True)}; all used, found: {said('shadow', wrong, 1.0)}. A hint, no more.",
        "",
        "What to do: deal a holdout before training (`jaxaudit deal`), and ask `jaxaudit power` how large it must be.",
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
    """What each test said, by how much of the query set was used: a panel a test and kind of target."""
    figure, axes = panels(len(TESTS), 2, width=10, height=6.6, sharey=True)
    for row, (method, name) in enumerate(TESTS.items()):
        for own in (False, True):
            axis = axes[2 * row + own]
            bars = [each for each in found["verdicts"][method] if each["own"] == own]
            places = np.arange(len(bars))[::-1]
            left = np.zeros(len(bars))
            for verdict, color in VERDICTS.items():
                shares = np.array([100 * each[verdict] / max(each["of"], 1) for each in bars])
                axis.barh(places, shares, left=left, color=color, label=verdict, height=0.72)
                for place, start, width in zip(places, left, shares, strict=True):
                    if width >= 6:
                        axis.text(start + width / 2, place, f"{width:.0f}%", ha="center", va="center", fontsize=8)
                left += shares
            axis.set_yticks(places, [USED[each["fraction"]] for each in bars])
            axis.set_xlim(0, 100)
            axis.set_title(f"{name}, {OWN[own]}", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-2:]:
        axis.set_xlabel("of 100 models")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure

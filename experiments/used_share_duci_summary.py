"""What `used_share_duci` says of itself: sentences, page, picture and its row in `experiments/README.md`."""

from typing import Any

import numpy as np

from experiments.figures import panels
from experiments.summary import Row
from jaxaudit.metrics.over_models import clopper_pearson

COUNTS = {"one": (1, 2, 4, 8, 42), "five": (8, 42)}
"""Numbers of shadow models, of one design and of five."""
SHARES = tuple(tenth / 10 for tenth in range(11))
CHOICES = ("random", "classes", "easiest")
RECIPES = ("same", "other")
OURS, BESIDE, DUCI = "ours, holdout", "ours, no holdout", "DUCI"
RIVALS = (DUCI, "EMQ", "DyS")
DRAWN = (DUCI, "EMQ", "DyS", BESIDE, OURS)
PRINTED = (
    "Printed by Tong et al. (2025) for CIFAR-100: DUCI's largest error is .087 with 1 reference model and .034 with "
    "42; where the used records are no random sample, .062 becomes .109."
)
Cells = list[dict[str, Any]]


def cell(rows: Cells, bank: str, recipe: str, choice: str, shadows: int, method: str) -> dict[str, Any]:
    """The one row of these."""
    wanted = {"bank": bank, "recipe": recipe, "choice": choice, "shadows": shadows, "method": method}
    return next(row for row in rows if wanted.items() <= row.items())


def cells() -> list[tuple[str, str, str, int]]:
    """Bank, recipe, choice and number of shadow models, in the order of the page."""
    kinds = [(bank, recipe, choice) for bank in COUNTS for recipe in RECIPES for choice in CHOICES]
    return [(*kind, count) for kind in kinds for count in COUNTS[kind[0]]]


def compared(rows: Cells, recipe: str, bank: str | None = None) -> tuple[list[str], int]:
    """Where ours with a holdout has a larger mean error than the best of the others, and in how many cells it is."""
    worse, asked = [], 0
    for kind in cells():
        ours = cell(rows, *kind, OURS)
        if kind[1] != recipe or (bank or kind[0]) != kind[0] or not ours["worlds"]:
            continue
        others = [cell(rows, *kind, name) for name in RIVALS]
        best = min((row for row in others if row["worlds"]), key=lambda row: row["mean"])
        asked += 1
        if ours["mean"] > best["mean"]:
            worse.append(f"{kind[2]}, {kind[3]} ({ours['mean']:.3f}; {best['method']} {best['mean']:.3f})")
    return worse, asked


def sentences(rows: Cells) -> list[str]:
    """Ours beside the best other method, by bank and recipe, with the cells where it is worse; and its coverage."""
    found = []
    for bank in COUNTS:
        for recipe in RECIPES:
            worse, asked = compared(rows, recipe, bank)
            kept = [cell(rows, *kind, OURS) for kind in cells() if kind[:2] == (bank, recipe)]
            covers, intervals = (sum(row.get(name, 0) for row in kept) for name in ("covers", "intervals"))
            found.append(
                f"Shadow models of {bank} design{'s' * (bank != 'one')}, targets of the {recipe} recipe: ours with a "
                f"holdout has a larger mean error than the best of {', '.join(RIVALS)} in {len(worse)} of {asked} "
                f"cells{': ' * bool(worse)}{'; '.join(worse)}. Its 95% interval covers {covers / intervals:.0%} of "
                f"{intervals}."
            )
    return found


def _entry(row: dict[str, Any], which: str = "") -> str:
    if not row["worlds"]:
        return "-"
    unknown = f" ({row['unknown']} unknown)" if row["unknown"] else ""
    return f"{row['mean' + which]:.3f} / {row['largest' + which]:.3f}{unknown}"


def lines(record: dict[str, Any]) -> list[str]:
    """The page below the picture."""
    rows, sizes = record["rows"], record["sizes"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    targets = record["worlds"] * len(SHARES)
    page = [
        f"# How much of a set was used: {record['set']}",
        "",
        f"{sizes['query']} query records, {sizes['holdout']} held out, {sizes['calibration']} of calibration, "
        f"{record['worlds']} deals of them. Shadow models: {record['recipes'][0]}, accuracy "
        f"{record['train_accuracy'][0]:.1%} on their own records, {record['test_accuracy'][0]:.1%} on others. Targets: "
        f"the same recipe, and {record['recipes'][1]}. {record['device']}, {record['seconds'] / 60:.1f} minutes; QuaPy "
        f"{record['versions']['quapy']}.",
        "",
        *(f"- {sentence}" for sentence in record["sentences"]),
        f"- {PRINTED} These are other data and networks.",
        "",
        f"Mean / largest absolute error over shares 0, .1, ..., 1: {targets} targets a cell, the same for all methods. "
        "All estimates are cut to [0, 1]. With 1 shadow model none is left to score it, so RMIA cannot be made: DUCI, "
        "EMQ and DyS (QuaPy's) then see the log-odds, else RMIA. Ours needs 4 shadow models (2 without a "
        "holdout); `-`: cannot be made; unknown: targets without an estimate. *Ties not called*: as in Privacy Meter's "
        "code. *z of the bank*: RMIA ranks among query set and holdout, not among records that no model was trained "
        "on. *Ours, no holdout*: the linear estimate of the reference and shadow tests, without what these take off.",
        "",
        f"| designs | targets' recipe | used records | shadow models | {' | '.join(methods)} |",
        f"|---|---|---|---|{'---|' * len(methods)}",
    ]
    for kind in cells():
        entries = [_entry(cell(rows, *kind, name)) for name in methods]
        page.append(f"| {' | '.join(map(str, kind))} | {' | '.join(entries)} |")
    page += ["", *_uncut(rows), "", *_coverage(rows)]
    return page


def _uncut(rows: Cells) -> list[str]:
    kept = [cell(rows, "one", "same", "random", shadows, DUCI) for shadows in COUNTS["one"]]
    each = [f"{row['shadows']}: {_entry(row, '_uncut')}" for row in kept]
    return [f"DUCI's estimates as they are, not cut (same recipe, random), by shadow models: {', '.join(each)}."]


def _coverage(rows: Cells) -> list[str]:
    found = [
        "The 95% interval of ours with a holdout; the other methods have none. In brackets Clopper & Pearson's "
        "interval of the coverage, as if targets were independent; those of one deal share their shadow models.",
        "",
        "| designs | targets' recipe | used records | shadow models | covers | mean width |",
        "|---|---|---|---|---|---|",
    ]
    for kind in cells():
        row = cell(rows, *kind, OURS)
        if row["worlds"]:
            share = clopper_pearson(row["covers"], row["intervals"], 0.95)
            covers = f"{row['covers']} of {row['intervals']} ({share.low:.0%} to {share.high:.0%})"
            found.append(f"| {' | '.join(map(str, kind))} | {covers} | {row['width']:.2f} |")
    return found


def drawing(record: dict[str, Any]) -> Any:
    """The mean error by number of shadow models of one design, a panel a recipe and choice."""
    figure, axes = panels(len(RECIPES), len(CHOICES), width=9.0, height=5.2, sharex=True, sharey=True)
    counts = COUNTS["one"]
    across = np.arange(len(counts))
    for place, axis in enumerate(axes):
        recipe, choice = RECIPES[place // len(CHOICES)], CHOICES[place % len(CHOICES)]
        for number, name in enumerate(DRAWN):
            found = [cell(record["rows"], "one", recipe, choice, shadows, name) for shadows in counts]
            up = [row["mean"] if row["worlds"] else np.nan for row in found]
            axis.plot(across, up, "o^sDv"[number] + "-", label=name, markersize=4, linewidth=1.4)
        axis.set_title(f"{recipe} recipe, used records: {choice}")
        axis.set_xticks(across, [str(each) for each in counts])
        if place % len(CHOICES) == 0:
            axis.set_ylabel("mean absolute error")
        if place >= len(CHOICES):
            axis.set_xlabel("shadow models")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(fontsize=7.5)
    return figure


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    rows = result["rows"]

    def words(bank: str, recipe: str, shadows: int) -> str:
        kept = [cell(rows, bank, recipe, "random", shadows, name) for name in (*RIVALS, OURS)]
        return ", ".join(f"{row['method']} {_entry(row)}" for row in kept)

    same, other = (compared(rows, recipe) for recipe in RECIPES)
    return [
        Row(
            "tong2025",
            f"Share of a set that was used, {result['set']}",
            "mean / largest error over shares 0 to 1, random records, 42 shadow models",
            "CIFAR-100, largest: .087 with 1 reference model, .034 with 42",
            f"same recipe: {words('one', 'same', 42)}; another recipe, one design: {words('one', 'other', 42)}; five "
            f"designs: {words('five', 'other', 42)}",
            "Other data and networks. Ours with a holdout has a larger mean error than the best of the others in "
            f"{len(same[0])} of {same[1]} cells of the same recipe and {len(other[0])} of {other[1]} of another.",
            f"--set {result['set']} --worlds {result['worlds']}",
        )
    ]

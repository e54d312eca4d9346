"""Writes `experiments/README.md`, and the pages of error rates, from the committed results.

python -m experiments.readme
"""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from experiments import (
    deletion_rates,
    deletion_rules,
    error_rates,
    holdout_rates,
    memory_rates,
    score_rates,
    score_rates_adapters,
)
from experiments.record import RESULTS, Row

RATES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "error_rates": error_rates.lines,
    "memory_rates": lambda result: memory_rates.lines(result["rates"]),
    "holdout_rates": lambda result: holdout_rates.lines(result["rates"]),
    "deletion_rates": lambda result: deletion_rates.lines(result["rates"]),
    "deletion_rules": lambda result: deletion_rules.lines(result["rates"]),
    "score_rates": lambda result: score_rates.lines(result["rates"]),
    "score_rates_adapters": lambda result: score_rates_adapters.adapter_lines(result["rates"]),
}
"""What each writes of its result."""


class Item(NamedTuple):
    """A table or figure.

    Attributes:
        name: `Table 1`, as `record.Row.item` names it.
        shows: what it shows.
        without: why there is no result, where none is committed.
    """

    name: str
    shows: str
    without: str = "its experiment has no committed result yet"


DRAWING = "a drawing without numbers"
PAPERS = {
    "liu2020": "Liu & Tsaftaris (2020)",
    "becker2022": "Becker & Liebig (2022)",
    "long2017": "Long, Bindschaedler & Gunter (2017)",
    "tong2025": "Tong et al. (2025)",
    "maini2024": "Maini, Jia, Papernot & Dziedzic (2024)",
    "tofu2024": "Maini, Feng et al. (2024)",
    "none": "none",
}
ITEMS = {
    "liu2020": (
        Item("Figure 1", "the question, drawn", DRAWING),
        Item("Table 1", "rho for eight targets; query MNIST, calibration SVHN"),
        Item("Figure 2", "example images of ACDC", "pictures of patients, without numbers"),
        Item(
            "Table 2",
            "rho for seven targets; query ACDC 3T, calibration ACDC 1.5T",
            "ACDC is given to those who register, and was not at hand; with its slices as arrays: "
            "`jaxaudit ks --query acdc_3t.npz --calibration acdc_1.5t.npz --images none --model net.py:Net`",
        ),
    ),
    "becker2022": (
        Item("Table 1", "accuracy of every method, MNIST"),
        Item("Figure 1", "efficacy and its bound, MNIST"),
        Item("Figure 2", "efficacy of the whole class before and after, MNIST"),
        Item("Figure 3", "attack probability, MNIST"),
        Item("Figure 4", "efficacy against attack probability, MNIST"),
        Item("Table 2", "accuracy of every method, CIFAR-10"),
        Item("Figure 5", "efficacy and its bound, CIFAR-10"),
        Item("Figure 6", "efficacy of the whole class before and after, CIFAR-10"),
        Item("Figure 7", "attack probability, CIFAR-10"),
        Item("Figure 8", "efficacy against attack probability, CIFAR-10"),
    ),
    "long2017": (
        Item("Table 1", "three attacks on a network, Purchase"),
        Item("Figure 1", "accuracy of each attack against PDTP, record by record"),
        Item("Figure 2", "best of three attacks against PDTP"),
        Item("Figure 3", "correlation with PDTP by the number of measurements"),
        Item("Table 2", "the distance-based attack on six classifiers"),
        Item("Figure 4", "the same, record by record, Purchase"),
        Item("Figure 5", "the same, record by record, Adult"),
        Item(
            "Table 3",
            "which learners are training stable",
            "proofs, no numbers; by brute force over small sets some fail: see `jaxaudit/kernels/dtp.py`",
        ),
        Item("Figure 6", "the largest DTP while the riskiest records are removed"),
        Item("Figure 7", "one record's prediction over initialisations"),
        Item("Figure 8", "one record's prediction over training samples"),
    ),
}


README = Path(__file__).parent / "README.md"
CROSSCHECKS = Path(__file__).parent / "crosscheck" / "results"
HEAD = """# Experiments

`python -m experiments.readme` writes this page from the committed results; change neither by hand.

A file a table or figure; what it judges may stand in a file beside it (`NAME_worlds.py`, `NAME_targets.py`), and what
several share in `rates.py`, `worlds.py` and `figures.py`. A docstring says what is done, what the paper says, and what
is reduced. Commands read their data from the folder `JAXAUDIT_DATA` and write JSON and a page to `results/`, with the
device in their names.
"""
CHECKS = """## Cross-checks by other tools

`python -m experiments.crosscheck NAME` compares numbers of jaxaudit with those of another public tool, and fails where
a difference is above its tolerance. Differences are in the unit of what is compared. What SciPy and scikit-learn have,
too, the tests compare.
"""
SEVERAL = {"long2017_fig7": "long2017_fig7_8", "long2017_fig8": "long2017_fig7_8"}
"""Modules that write more than one result; others have the result's name."""
Cells = Sequence[str]


def page() -> str:
    """The text of `experiments/README.md`."""
    found = rows()
    known = {(paper, item.name) for paper, items in ITEMS.items() for item in items}
    header = ("paper", "table or figure", "command", "the paper's", "ours", "device, time", "where they differ")
    lines = []
    for paper, items in ITEMS.items():
        for item in items:
            done = [cells for row, cells in found if (row.paper, row.item) == (paper, item.name)]
            none = [(PAPERS[paper], f"{item.name}: {item.shows}", "", "", "", "", f"not run: {item.without}")]
            lines += done or none
    beyond = [cells for row, cells in found if (row.paper, row.item) not in known]
    parts = [HEAD, "## Every table and figure of the three papers\n", *table(header, lines), ""]
    if beyond:
        parts += ["## Beyond the papers' tables\n", *table(header, beyond), ""]
    return "\n".join([*parts, CHECKS, *crosschecks(), ""])


def rows(directory: Path = RESULTS) -> list[tuple[Row, Cells]]:
    """What every result says of itself, with its cells in the table."""
    found = []
    for path in sorted(directory.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        experiment: str = result["experiment"]
        name = SEVERAL.get(experiment, experiment)
        for row in import_module(f"experiments.{name}").summary(result):
            command = f"`python -m experiments.{name}{' ' if row.arguments else ''}{row.arguments}`"
            where = f"[{result['device']}](results/{path.with_suffix('.md').name}), {duration(result.get('seconds'))}"
            what = f"{row.item}: {row.quantity}"
            found.append((row, (PAPERS[row.paper], what, command, row.theirs, row.ours, where, row.sentence)))
    return found


def crosschecks(directory: Path = CROSSCHECKS) -> list[str]:
    """A row a check."""
    lines = []
    for path in sorted(directory.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
        for one in result["checks"]:
            size, most = f"{one['difference']:.1e}", f"{one['tolerance']:.1e} ({one['because']})"
            holds = "yes" if one["holds"] else "**no**"
            cells = (f"`{one['ours']}`", one["theirs"], one["what"], size, most, holds)
            lines.append((f"`{result['crosscheck']}`", *cells, versions, duration(result["seconds"])))
    header = ("NAME", "ours", "theirs", "what", "largest difference", "tolerance", "holds", "versions", "time")
    return table(header, lines)


def table(header: Cells, lines: Sequence[Cells]) -> list[str]:
    """The lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *lines]]


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "not timed"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def rates_pages(directory: Path = RESULTS) -> dict[Path, str]:
    """The page of each result that has error rates and no picture."""
    pages = {}
    for name, write_lines in RATES.items():
        for path in sorted(directory.glob(f"{name}-*.json")):
            lines = write_lines(json.loads(path.read_text(encoding="utf-8")))
            pages[path.with_suffix(".md")] = "\n".join(lines) + "\n"
    return pages


def main() -> None:
    README.write_text(page(), encoding="utf-8")
    for path, text in rates_pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

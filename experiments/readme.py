"""Writes `experiments/README.md` from the committed results: `python -m experiments.readme`."""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.crosscheck.record import RESULTS as CROSSCHECKS
from experiments.papers import ITEMS, PAPERS
from experiments.record import RESULTS
from experiments.summary import Row

README = Path(__file__).parent / "README.md"
HEAD = """# Experiments

`python -m experiments.readme` writes this page from the committed results; change neither by hand.

A module a table or figure: its docstring says what it does, what the paper says, and what is reduced. Commands read
their data from the folder `JAXAUDIT_DATA` and write JSON and a page to `results/`, with the device in their names.
"""
CHECKS = """## Cross-checks by other tools

`python -m experiments.crosscheck.NAME` compares numbers of jaxaudit with those of another public tool, and fails where
a difference is above its tolerance. Differences are in the unit of what is compared.
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
        for row in summary_of(name)(result):
            command = f"`python -m experiments.{name}{' ' if row.arguments else ''}{row.arguments}`"
            where = f"[{result['device']}](results/{path.with_suffix('.md').name}), {duration(result.get('seconds'))}"
            what = f"{row.item}: {row.quantity}"
            found.append((row, (PAPERS[row.paper], what, command, row.theirs, row.ours, where, row.sentence)))
    return found


def summary_of(name: str) -> Callable[[dict[str, Any]], list[Row]]:
    """An experiment's `summary`; where its file is long enough as it is, that stands in `NAME_summary.py`."""
    beside = Path(__file__).parent / f"{name}_summary.py"
    return import_module(f"experiments.{beside.stem if beside.exists() else name}").summary


def crosschecks(directory: Path = CROSSCHECKS) -> list[str]:
    """A row a check."""
    lines = []
    for path in sorted(directory.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        result = result if "checks" in result else of_fisher_trace(result)
        versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
        for one in result["checks"]:
            size, most = f"{one['difference']:.1e}", f"{one['tolerance']:.1e} ({one['because']})"
            holds = "yes" if one["holds"] else "**no**"
            cells = (f"`{one['ours']}`", one["theirs"], one["what"], size, most, holds)
            lines.append((f"`{result['crosscheck']}`", *cells, versions, duration(result["seconds"])))
    header = ("NAME", "ours", "theirs", "what", "largest difference", "tolerance", "holds", "versions", "time")
    return table(header, lines)


def of_fisher_trace(result: dict[str, Any]) -> dict[str, Any]:
    """Its own file has a row a network; here only the worst."""
    sides = {"loop": "a PyTorch loop of backward passes, float64", "BackPACK": "BackPACK's BatchL2Grad"}
    checks = []
    for name, worst in result["worst"].items():
        precision, _, side = name.partition(" against ")
        what = f"squared gradient norms of single examples, {precision}, {worst['networks']} networks: relative"
        largest, promised = worst["largest relative difference"], worst["promised"]
        checks.append(
            {
                "ours": "kernels.gradient_norms.squared_grad_norms",
                "theirs": sides.get(side, side),
                "what": what,
                "difference": largest,
                "tolerance": promised,
                "because": "promised",
                "holds": largest <= promised,
            }
        )
    return {"crosscheck": "fisher_trace", "checks": checks, **result["run"]}


def table(header: Cells, lines: Sequence[Cells]) -> list[str]:
    """The lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *lines]]


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "not timed"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def main() -> None:
    README.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Writes `bench/README.md` from the committed results: `python -m bench.readme`."""

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.device.pieces import PIECES
from bench.device.results import REDUCED, is_current
from bench.harness import RESULTS

README = Path(__file__).parent / "README.md"
HEAD = """# Measurements

`python -m bench.readme` writes this page from the files in `results/`; change neither by hand.

A module a claim of speed: `pip install -e ".[bench]"`, then `python -m bench.NAME` prints its tables and writes
`results/NAME-DEVICE.json`. Contenders take turns in every round, in another order each time. A ratio is formed within
a round; its median over the rounds decides, its lowest and highest are given in brackets. Run nothing else meanwhile:
on two cores another busy process costs PyTorch far more than it costs jaxaudit, which flatters the ratios.

`python -m bench.device` measures all that concerns the device at hand, a GPU for one, in pieces and with what is
installed, and writes `results/device-DEVICE/PIECE.json`.
"""


def page(directory: Path = RESULTS) -> str:
    """The text of `bench/README.md`."""
    parts = [section(result) for result in read(directory)]
    folders = sorted(path for path in directory.glob("device-*") if path.is_dir() and not path.name.endswith(REDUCED))
    return "\n".join([HEAD, *parts, *map(device_section, folders)])


def read(directory: Path) -> list[dict[str, Any]]:
    """The results in files of a folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]


def section(result: dict[str, Any]) -> str:
    """One result file: what was done, the machine, the promises, all times, and the notes."""
    return "\n".join(
        [
            f"## {result['bench']}: {machine_of(result)}\n",
            f"{description(result['bench'] + '.py')}\n",
            *measured(result),
            *(f"- {note}" for note in result["notes"]),
            "",
        ]
    )


def device_section(folder: Path) -> str:
    """All pieces of `bench.device` that were measured on one device, in the order in which they run."""
    order = [piece.name for piece in PIECES]
    results = read(folder)
    results.sort(key=lambda result: order.index(result["piece"]) if result["piece"] in order else len(order))
    parts = [f"## device: {machine_of(results[0])}\n", f"{description('device/__init__.py')}\n"]
    for result in results:
        parts += [f"### {result['piece']}\n", *measured(result)]
        for title, (header, *rows) in result["tables"].items():
            parts += [f"{title}:\n", *table(header, rows), ""]
        left_out = [f"left out: {line}" for line in result["left_out"]]
        ended = [] if result["finished"] else [f"this piece did not end: {result['error']}"]
        older = [f"older than a change: {result['older_than']}"] if result.get("older_than") else []
        parts += [*(f"- {note}" for note in (*result["notes"], *left_out, *ended, *older)), ""]
    return "\n".join([*parts, *still_open(results)])


def still_open(results: Sequence[dict[str, Any]]) -> list[str]:
    """The pieces that this device has no result of, or one that is older than a change, and how to measure them."""
    current = {result["piece"] for result in results if is_current(result)}
    lacking = [piece for piece in PIECES if piece.name not in current]
    if not lacking:
        return []
    on_cpu = any(result["machine"]["platform"] == "cpu" for result in results)
    seconds = sum(piece.seconds.cpu if on_cpu else piece.seconds.gpu for piece in lacking)
    older = {result["piece"] for result in results if result.get("older_than")}
    names = [f"{piece.name} (again)" if piece.name in older else piece.name for piece in lacking]
    return [
        "### Still open\n",
        f"{', '.join(names)}. `python -m bench.device` on such a device measures these, nine minutes a call, about "
        f"{seconds / 60:.0f} minutes in all.\n",
    ]


def measured(result: dict[str, Any]) -> list[str]:
    """The versions, the promises and all times."""
    about = result["machine"]
    versions = ", ".join(f"{package} {number}" for package, number in about["versions"].items())
    lines = [
        f"{about['system']}, Python {about['python']}, {versions}.",
        f"Load {about['load']} at the end of the run, the bench's own included.\n",
    ]
    promises = [
        [claim["claim"], spread(claim["ratio"], 1), claim["promised"], "yes" if claim["holds"] else "**no**"]
        for claim in result["claims"]
    ]
    if promises:
        lines += [*table(["ratio", "measured", "promised", "holds"], promises), ""]
    if result["timings"]:
        lines += ["Times in milliseconds:\n", *times(result["timings"]), ""]
    return lines


def machine_of(result: dict[str, Any]) -> str:
    """The accelerator, where there is one, and the processor."""
    about = result["machine"]
    device = "" if about["platform"] == "cpu" else f"{about['device']} (of {about['devices']}), "
    return f"{device}{about['cpu']}, {about['cores']} cores"


def description(file: str) -> str:
    """The docstring of the bench's module."""
    source = (Path(__file__).parent / file).read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""


def times(timings: Sequence[dict[str, Any]]) -> list[str]:
    """A row a contender and a column a case where every case has the same many contenders; else a row for both."""
    cases = list(dict.fromkeys(timing["case"] for timing in timings))
    contenders = list(dict.fromkeys(timing["contender"] for timing in timings))
    cells = {(timing["case"], timing["contender"]): spread(timing["seconds"], 1000) for timing in timings}
    if len(contenders) > len(cases) and len(cells) == len(cases) * len(contenders):
        return table(["", *cases], [[name, *(cells[case, name] for case in cases)] for name in contenders])
    return table(["case", "contender", "time"], [[case, name, cell] for (case, name), cell in cells.items()])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows]]


def spread(values: dict[str, float], factor: float) -> str:
    """`median (low to high)`, three digits each; of one round, its value."""
    median, low, high = (_digits(factor * values[part]) for part in ("median", "low", "high"))
    return median if values["low"] == values["high"] else f"{median} ({low} to {high})"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def main() -> None:
    README.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

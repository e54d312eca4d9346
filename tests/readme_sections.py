"""The parts of README.md and docs/command_line.md that programs write: `python tests/readme_sections.py` does.

Or only some: `python tests/readme_sections.py "ks session" "error rates"`.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
COMMAND_LINE = ROOT / "docs" / "command_line.md"
"""The help of every command."""


COMMANDS = ("ks", "power", "pdtp", "attack", "efficacy", "unlearn")
OTHERS = (
    "deal",
    "shadows plan",
    "shadows train",
    "shadows add",
    "shadows import",
    "shadows show",
    "report",
    "cite",
    "doctor",
    "cluster check",
)
"""The commands that do not audit."""


def help_section(command: str) -> str:
    """What `jaxaudit COMMAND --help` prints on a terminal of 100 columns."""
    return f"```text\n{_run([*command.split(), '--help'])}\n```"


def session_section(*words: str) -> str:
    """What `jaxaudit WORDS` prints, on stdout, on this machine."""
    return f"```text\n$ jaxaudit {' '.join(words)}\n{_run(list(words))}\n```"


def headline_section() -> str:
    """The promised ratios of every bench, and what the paper's table came to, from the committed results."""
    lines = ["| `bench`: claim | measured: median (lowest to highest round) | promised | device |", "|---|---|---|---|"]
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        bench = json.loads(path.read_text())
        device = bench["machine"]["cpu"] + f", {bench['machine']['cores']} cores"
        if bench["machine"]["device"] != "cpu":
            device = bench["machine"]["device"]
        for claim in bench["claims"]:
            ratio = claim["ratio"]
            spread = f"{ratio['median']:.3g} ({ratio['low']:.3g} to {ratio['high']:.3g})"
            short = "" if claim["holds"] else ", **not reached**"
            lines.append(f"| `{bench['bench']}`: {claim['claim']} | {spread} | {claim['promised']}{short} | {device} |")
    for path in sorted((ROOT / "experiments" / "results").glob("liu2020_table1-*.json")):
        lines += ["", json.loads(path.read_text())["sentence"]]
    return "\n".join(lines)


ERROR_METHODS = {
    "holdout": "holdout test",
    "reference": "reference test",
    "shadow": "shadow test",
    "rho": "the paper's rule on rho",
    "ema": "EMA",
}
ERROR_ROWS = {
    "false alarms": "never used, called `not forgotten`: wrong",
    "wrong forgotten": "5% to all of it used, called `forgotten`: wrong",
    "wrong forgotten, all used": "all of it used, called `forgotten`: wrong",
    "found, all used, large": "all of 1,000 or more used, called `not forgotten`: right",
    "forgotten, never used": "never used, called `forgotten`: right",
    "inconclusive": "all targets, called `inconclusive`",
}
ERROR_HEADING, ERROR_BEFORE = "## How often is it wrong?", "## How fast, how right"


def error_rate_results() -> list[Path]:
    """The committed results of `experiments.error_rates`."""
    return sorted((ROOT / "experiments" / "results").glob("error_rates-*.json"))


def error_rates_section() -> str:
    """How often each method was wrong on targets of known truth, from the committed results."""
    lines = []
    for path in error_rate_results():
        record = json.loads(path.read_text(encoding="utf-8"))
        rates = record["rates"]
        lines += [
            f"{rates['targets']:,} targets of known truth in {rates['worlds']} worlds of digits, census records and "
            "locations; with 95% intervals:",
            "",
            f"| | {' | '.join(ERROR_METHODS.values())} |",
            "|---" * (1 + len(ERROR_METHODS)) + "|",
        ]
        for name, title in ERROR_ROWS.items():
            cells = [_rate(rates["overall"][method][name]) for method in ERROR_METHODS]
            lines.append(f"| {title} | {' | '.join(cells)} |")
        page = path.with_suffix(".md").relative_to(ROOT).as_posix()
        lines += [
            "",
            *(f"- {words}" for words in record["sentences"]),
            "",
            f"By data, size and design: [the page]({page}).",
            "",
        ]
    return "\n".join(lines).rstrip("\n")


def _rate(found: dict[str, Any]) -> str:
    if found["share"] is None:
        return "-"
    return f"{found['share']:.1%} ({found['low']:.1%}-{found['high']:.1%})"


def _run(arguments: list[str]) -> str:
    environment = {**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    environment.pop("JAXAUDIT_DATA", None)
    command = [sys.executable, "-m", "jaxaudit", *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    return "\n".join(line.rstrip() for line in shown.stdout.strip("\n").splitlines())


def section(text: str, name: str) -> str:
    """What stands between the markers `<!-- name -->` and `<!-- /name -->`."""
    found = re.search(f"<!-- {name} -->\n(.*?)\n?<!-- /{name} -->", text, re.DOTALL)
    assert found, f"there is no section {name}"
    return found[1]


def main(names: list[str]) -> None:
    """Writes the sections of these names anew, or every section."""
    helps = {f"{command} help": partial(help_section, command) for command in (*COMMANDS, *OTHERS)}
    _rewrite(COMMAND_LINE, COMMAND_LINE.read_text(encoding="utf-8"), helps, names)
    text = README.read_text(encoding="utf-8")
    sections: dict[str, Callable[[], str]] = {
        f"{command} session": partial(session_section, command) for command in COMMANDS
    }
    sections["headline"] = headline_section
    if error_rate_results():
        sections["error rates"] = error_rates_section
        if ERROR_HEADING not in text:
            empty = f"{ERROR_HEADING}\n\n<!-- error rates -->\n<!-- /error rates -->\n\n"
            text = text.replace(ERROR_BEFORE, empty + ERROR_BEFORE, 1)
    _rewrite(README, text, sections, names)


def _rewrite(page: Path, text: str, sections: Mapping[str, Callable[[], str]], names: list[str]) -> None:
    for name, write in sections.items():
        if names and name not in names:
            continue
        old, new = section(text, name), write()
        between = f"<!-- {name} -->\n{old}\n" if old else f"<!-- {name} -->\n"
        text = text.replace(f"{between}<!-- /{name} -->", f"<!-- {name} -->\n{new}\n<!-- /{name} -->")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

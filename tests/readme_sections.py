"""The parts of README.md that programs write. Run `python tests/readme_sections.py` to bring them up to date."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


COMMANDS = ("ks", "pdtp", "attack", "efficacy", "unlearn")


def help_section(command: str) -> str:
    """What `jaxaudit COMMAND --help` prints on a terminal of 100 columns."""
    return f"```text\n{_run([command, '--help'])}\n```"


def session_section(*words: str) -> str:
    """What `jaxaudit WORDS` prints, on stdout, on this machine."""
    return f"```text\n$ jaxaudit {' '.join(words)}\n{_run(list(words))}\n```"


def headline_section() -> str:
    """The promised ratios of every bench, and what the paper's table came to, from the committed results."""
    lines = ["| claim | measured: median (lowest to highest round) | promised | device |", "|---|---|---|---|"]
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        bench = json.loads(path.read_text())
        device = bench["machine"]["cpu"] + f", {bench['machine']['cores']} cores"
        if bench["machine"]["device"] != "cpu":
            device = bench["machine"]["device"]
        for claim in bench["claims"]:
            ratio = claim["ratio"]
            spread = f"{ratio['median']:.2g} ({ratio['low']:.2g} to {ratio['high']:.2g})"
            short = "" if claim["holds"] else ", **not reached**"
            lines.append(f"| {claim['claim']} | {spread} | {claim['promised']}{short} | {device} |")
    for path in sorted((ROOT / "experiments" / "results").glob("liu2020_table1-*.json")):
        lines += ["", json.loads(path.read_text())["sentence"]]
    return "\n".join(lines)


def _run(arguments: list[str]) -> str:
    environment = {**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    environment.pop("JAXAUDIT_DATA", None)
    command = [sys.executable, "-m", "jaxaudit", *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    return "\n".join(line.rstrip() for line in shown.stdout.strip("\n").splitlines())


def section(text: str, name: str) -> str:
    """What stands between the markers `<!-- name -->` and `<!-- /name -->`."""
    found = re.search(f"<!-- {name} -->\n(.*?)\n?<!-- /{name} -->", text, re.DOTALL)
    assert found, f"README.md has no section {name}"
    return found[1]


def main() -> None:
    """Writes every section anew."""
    text = README.read_text(encoding="utf-8")
    sections = {f"{command} help": partial(help_section, command) for command in (*COMMANDS, "report")}
    sections |= {f"{command} session": partial(session_section, command) for command in COMMANDS}
    for name, write in {**sections, "headline": headline_section}.items():
        old, new = section(text, name), write()
        between = f"<!-- {name} -->\n{old}\n" if old else f"<!-- {name} -->\n"
        text = text.replace(f"{between}<!-- /{name} -->", f"<!-- {name} -->\n{new}\n<!-- /{name} -->")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""What every command prints and leaves, and what `jaxaudit report` makes of that, say the same."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli_runs import QUICK, SETS, content, jaxaudit, write_sets
from support.html_pages import Parsed

PEOPLE = ("--csv", "people.csv", "--label", "class", "--model", "nb")
FEW = (*SETS, "--hidden", "8", "--epochs", "2", "--models-per-batch", "19")
COMMANDS = {
    "ks": (*QUICK, "--target-data", "query.npz"),
    "power": (*FEW, "--effort", "full", "--holdout-shadow-models", "19"),
    "pdtp": PEOPLE,
    "attack": (*PEOPLE, "--iterations", "2", "--targets", "4", "--shadow-pairs", "2", "--attacks", "distance"),
    "unlearn": (
        *("--data", "query.npz", "--class", "1", "--per-class", "20", "--hidden", "8", "--epochs", "2", "--seeds", "2"),
        *("--nonmembers", "0", "--methods", "retraining", "--models-per-batch", "2"),
    ),
    "efficacy": ("--model", "mlp", "--hidden", "8", "--params", "unlearn/original-00.safetensors"),
}
"""Unlearning comes before efficacy, which judges its weights."""


pytestmark = pytest.mark.outer


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each command printed, in a folder with a run directory of each, and pages of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("runs"))
        patch.setenv("COLUMNS", "80")
        write_sets(Path())
        rows = [f"{row % 9},{row * 7 % 5},{'ny'[row % 9 > 3]}" for row in range(40)]
        Path("people.csv").write_text("\n".join(["a,b,class", *rows, ""]))
        found = {}
        for command, words in COMMANDS.items():
            data = ("--data", "unlearn/forget.npz") if command == "efficacy" else ()
            done = jaxaudit(command, *words, *data, "--out", command, "--report", f"{command}/own.html", "--details")
            assert done.code == 0, done.err
            found[command] = done.out
        yield found


def in_one_line(text: str) -> str:
    """As a person reads it: without the breaks of lines."""
    return " ".join(text.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_says_the_same_wherever_it_is_shown_again(printed: dict[str, str], command: str, tmp_path: Path):
    """Its table is printed again, its page is that of the command itself, and sentences stand word for word."""
    before = content(Path())
    again = jaxaudit("report", command, "--text")
    assert (again.code, again.out, again.err) == (0, printed[command], "")
    assert max(map(len, again.out.splitlines())) <= 80
    markdown = jaxaudit("report", command, "--markdown")
    page = jaxaudit("report", command, "--out", str(tmp_path / "page.html"))
    assert (markdown.code, page.code, page.out) == (0, 0, "")
    assert content(Path()) == before
    assert os.listdir(tmp_path) == ["page.html"]
    assert (tmp_path / "page.html").read_text() == Path(command, "own.html").read_text()
    result = json.loads(Path(command, "result.json").read_text())
    findings = [target["finding"] for target in result["targets"]] if command == "ks" else [result["finding"]]
    if command == "unlearn":
        # The run's own finding sums up those of its methods, which are shown one by one, too.
        findings += [method["finding"] for method in result["methods"] if method["finding"]]
    shown = in_one_line(Parsed((tmp_path / "page.html").read_text("utf-8")).text)
    for finding in findings:
        sentence = in_one_line(finding["sentence"])
        assert finding["verdict"]
        assert sentence in in_one_line(again.out)
        assert sentence in shown
        assert sentence in in_one_line(re.sub(r"\\(.)", r"\1", markdown.out))


def test_private_values_are_in_no_file(printed: dict[str, str], tmp_path: Path):
    """Those of the riskiest records are shown on the terminal alone, and only when asked for."""
    amounts = [str(900_001 + row) for row in range(40)]
    lines = (f"{row % 9},{amount},{'ny'[row % 2]}" for row, amount in enumerate(amounts))
    Path("secret.csv").write_text("\n".join(["a,amount,class", *lines, ""]))
    words = ("pdtp", "--csv", "secret.csv", *PEOPLE[2:], "--show-values", "--out", str(tmp_path / "run"))
    done = jaxaudit(*words, "--report", str(tmp_path / "run" / "page.html"))
    assert done.code == 0, done.err
    assert sum(amount in done.out for amount in amounts) == 10
    files = {name: data for name, data in content(tmp_path).items() if data is not None}
    assert {"run/result.json", "run/table.txt", "run/records.csv", "run/page.html"} <= files.keys()
    assert not [name for name, data in files.items() if any(amount.encode() in data for amount in amounts)]

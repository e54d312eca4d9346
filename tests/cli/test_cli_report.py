"""`jaxaudit report` on what every command leaves."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli_runs import QUICK, SETS, content, jaxaudit, write_sets

PEOPLE = ("--csv", "people.csv", "--label", "class", "--model", "nb")
FEW = (*SETS, "--hidden", "8", "--epochs", "2", "--models-per-batch", "19")
COMMANDS = {
    "ks": (*QUICK, "--target-data", "query.npz"),
    "power": (*FEW, "--budget", "none", "--holdout-shadow-models", "19"),
    "pdtp": PEOPLE,
    "attack": (*PEOPLE, "--iterations", "2", "--targets", "4", "--shadow-pairs", "2", "--attacks", "distance"),
    "unlearn": (
        *("--data", "query.npz", "--class", "1", "--per-class", "20", "--hidden", "8", "--epochs", "2", "--seeds", "2"),
        *("--nonmembers", "0", "--methods", "retraining", "--models-per-batch", "2"),
    ),
    "efficacy": ("--model", "mlp", "--hidden", "8", "--params", "unlearn/original-00.safetensors"),
}
"""Unlearning comes before efficacy, which judges its weights."""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each command printed, in a folder with a run directory of each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("runs"))
        patch.setenv("COLUMNS", "80")
        write_sets(Path())
        rows = [f"{row % 9},{row * 7 % 5},{'ny'[row % 9 > 3]}" for row in range(40)]
        Path("people.csv").write_text("\n".join(["a,b,class", *rows, ""]))
        found = {}
        for command, words in COMMANDS.items():
            data = ("--data", "unlearn/forget.npz") if command == "efficacy" else ()
            done = jaxaudit(command, *words, *data, "--out", command)
            assert done.code == 0, done.err
            found[command] = done.out
        yield found


@pytest.mark.parametrize("command", COMMANDS)
def test_the_table_is_printed_again(printed: dict[str, str], command: str):
    before = content(Path())
    again = jaxaudit("report", command, "--text")
    assert (again.code, again.err) == (0, "")
    assert again.out == printed[command]
    assert max(map(len, again.out.splitlines())) <= 80
    assert content(Path()) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_of_it_says_the_verdict(printed: dict[str, str], command: str, tmp_path: Path):
    done = jaxaudit("report", command, "--out", str(tmp_path / "page.html"))
    assert (done.code, done.out) == (0, "")
    page = (tmp_path / "page.html").read_text()
    # The verdict stands behind the name of what it is about, if it is about one of several.
    verdict = printed[command].splitlines()[1].partition(". ")[0].rpartition(": ")[2].strip()
    assert verdict in page
    assert os.listdir(tmp_path) == ["page.html"]


def test_all_of_them_on_one_page_and_as_pictures(printed: dict[str, str], tmp_path: Path):
    out, charts = tmp_path / "page.html", tmp_path / "charts"
    done = jaxaudit("report", *COMMANDS, "--out", str(out), "--figures", str(charts), "--format", "png")
    assert done.code == 0, done.err
    assert {path.suffix for path in charts.iterdir()} == {".png"}
    assert len(list(charts.iterdir())) >= len(COMMANDS)
    text = jaxaudit("report", *COMMANDS, "--text")
    assert [name for name in COMMANDS if f"{name}:\n" not in text.out] == []


def test_the_page_of_the_command_itself_is_that_of_its_run(printed: dict[str, str], tmp_path: Path):
    words = (
        "power",
        *COMMANDS["power"],
        "--out",
        str(tmp_path / "run"),
        "--report",
        str(tmp_path / "run" / "own.html"),
    )
    assert jaxaudit(*words).code == 0
    assert jaxaudit("report", str(tmp_path / "run"), "--out", str(tmp_path / "later.html")).code == 0
    assert (tmp_path / "run" / "own.html").read_text() == (tmp_path / "later.html").read_text()


def test_what_json_printed_is_a_run_too(printed: dict[str, str], tmp_path: Path):
    done = jaxaudit("pdtp", *PEOPLE, "--json")
    (tmp_path / "run.json").write_text(done.out)
    assert jaxaudit("report", str(tmp_path / "run.json"), "--out", str(tmp_path / "page.html")).code == 0
    refused = jaxaudit("report", str(tmp_path / "run.json"), "--text")
    assert (refused.code, refused.out) == (2, "")
    assert "run.json" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone",), "gone"),
        (("query.npz",), "query.npz"),
        (("pdtp", "--out", "people.csv"), "people.csv"),
        (("pdtp", "--text", "--figures", "charts"), "--figures"),
        (("pdtp", "--out", "x.html", "--figures", "x.html"), "--figures x.html"),
        (("pdtp", "--format", "gif"), "--format"),
        ((), "RUN"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_written(printed: dict[str, str], words: tuple[str, ...], said: str):
    before = content(Path())
    done = jaxaudit("report", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert content(Path()) == before


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

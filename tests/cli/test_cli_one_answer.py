"""What a command prints, what it writes, and what `report` makes of that say the same, for all commands."""

import html
import json
import re
from pathlib import Path

import pytest
from support.cli_runs import Done, jaxaudit

SETS = ("--query", "query.npz", "--calibration", "calibration.npz", "--hidden", "16", "--epochs", "2")
COMMANDS = {
    "ks": (*SETS, "--tests", "rho", "--replicates", "2", "--budget", "none"),
    "power": ("--budget", "none", *SETS, "--holdout-size", "50", "--holdout-shadow-models", "19"),
    "pdtp": (
        "--model",
        "nb",
    ),
    "attack": ("--model", "nb", "--attacks", "distance,frequency", "--iterations", "2", "--targets", "6"),
    "efficacy": (),
    "unlearn": ("--seeds", "2", "--epochs", "2", "--attack-epochs", "1", "--methods", "retraining,amnesiac"),
}


def plain(text: str) -> str:
    """As a person reads it: without the breaks of lines."""
    return " ".join(text.split())


def page_text(page: Path) -> str:
    """What a browser shows."""
    without_style = re.sub(r"<(style|svg).*?</\1>", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return plain(html.unescape(re.sub(r"<[^>]+>", " ", without_style)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_sentence_stands_word_for_word_wherever_it_stands(command: str, sets: Path):
    done = jaxaudit(command, *COMMANDS[command], "--out", "run", "--report", "page.html")
    assert done.code == 0, done.err
    result = json.loads(Path("run/result.json").read_text())
    findings = [target["finding"] for target in result["targets"]] if command == "ks" else [result["finding"]]
    text: Done = jaxaudit("report", "run", "--text")
    markdown = jaxaudit("report", "run", "--markdown")
    again = jaxaudit("report", "run", "--out", "again.html")
    assert (text.code, markdown.code, again.code) == (0, 0, 0), (text.err, markdown.err, again.err)
    assert text.out == done.out
    if command == "unlearn":
        # The run's own finding sums up those of its methods, which are shown one by one, too.
        findings += [method["finding"] for method in result["methods"] if method["finding"]]
    for finding in findings:
        assert finding["verdict"]
        assert plain(finding["sentence"]) in plain(done.out)
        for page in ("page.html", "again.html"):
            assert plain(finding["sentence"]) in page_text(Path(page))
        assert plain(finding["sentence"]) in plain(re.sub(r"\\(.)", r"\1", markdown.out))


def test_a_run_of_version_1_is_refused_in_words(tmp_path: Path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "result.json").write_text(json.dumps({"schema": "jaxaudit.ks/1", "targets": []}))
    done = jaxaudit("report", str(tmp_path / "old"), "--out", str(tmp_path / "page.html"))
    assert done.code == 2
    assert "jaxaudit.ks/1" in done.err
    assert not (tmp_path / "page.html").exists()


def test_verdicts_to_fail_on_are_those_of_the_findings(sets: Path):
    done = jaxaudit("power", *COMMANDS["power"], "--fail-on", "insufficient", "--json")
    assert done.code == (3 if done.result["finding"]["verdict"] == "insufficient" else 0)

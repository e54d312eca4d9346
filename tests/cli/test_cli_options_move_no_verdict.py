"""Options that are declared to decide nothing, and levels of intervals: the verdict is the same for two values of each.

Of every command where a run takes seconds, by its JSON.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.banks import HOLDOUT, QUERY, RECORDS, planned, target, train
from support.cli_runs import jaxaudit
from support.people import PEOPLE, write_people

from jaxaudit.cli.app import COMMANDS
from jaxaudit.cli.options import fields_of
from jaxaudit.data.bank.bank import load_bank

MODELS = 20
ATTACK = ("attack", "--shadows", "bank", "--attacks", "lira", "--target", "half.npy")
KS = ("ks", "--shadows", "bank", "--target", "half_query.npy", "--holdout-target", "half_holdout.npy")
RUNS: dict[str, tuple[str, ...]] = {
    "attack": ATTACK,
    "ks": KS,
    "power": ("power", "--shadows", "bank"),
    "pdtp": ("pdtp", *PEOPLE, "--model", "nb"),
}
SAID: dict[str, tuple[str, ...]] = {
    "--level": ("--level", "0.2"),
    "--top": ("--top", "1"),
    "--show-values": ("--show-values", "--out", "run"),
    "--out": ("--out", "run"),
    "--report": ("--report", "page.html"),
    "--leave-one-out": ("--leave-one-out",),
}
ELSEWHERE = {
    "--json": "every run here has it; words against JSON: tests/report/test_one_verdict.py",
    "--dry-run": "prints no verdict",
    "--workers": "who trains changes no bit: tests/cli/test_cli_workers.py",
    "--cluster": "who trains changes no bit: tests/cli/test_cli_workers.py",
}
TRAINED = {
    "unlearn": "its threshold has no level: tests/cli/test_cli_no_option_turns_a_verdict.py",
    "efficacy": "it has no verdict",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People, a bank, and a target that used some of its query set: near enough to the edge of every verdict."""
    folder = tmp_path_factory.mktemp("made")
    write_people(folder)
    train(load_bank(planned(folder / "bank", MODELS, 0, holdout=True)), range(MODELS), 4.0)
    used = np.isin(np.arange(RECORDS), np.arange(QUERY // 2))
    np.save(folder / "half.npy", target(folder / "bank", "half", used, 4.0))
    assert np.load(folder / "half_holdout.npy").shape[0] == HOLDOUT
    return folder


def verdicts_of(result: dict[str, Any]) -> list[str]:
    """Every verdict, of the run and of its targets; a command has one of the two at least."""
    found = [result["finding"]["verdict"]] if "finding" in result else []
    return found + [verdict for each in result.get("targets", ()) for verdict in verdicts_of(each)]


@pytest.fixture(scope="module")
def plain(made: Path) -> dict[str, list[str]]:
    """The verdicts without any of these options."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        return {name: verdicts_of(jaxaudit(*words, "--json").result) for name, words in RUNS.items()}


def measured() -> list[tuple[str, str, tuple[str, ...]]]:
    """Each command, an option of it, and the words that say another value than the default."""
    declared = []
    for command in COMMANDS:
        for field in fields_of(command.options()):
            nothing = not field.declared.decides or field.flag in ("--level", "--leave-one-out")
            if nothing and field.flag not in ELSEWHERE and command.name not in TRAINED:
                on = ("--fail-on", (field.declared.choices or ("",))[0])
                declared.append((command.name, field.flag, on if field.flag == "--fail-on" else SAID[field.flag]))
    return declared


@pytest.mark.parametrize(("command", "words"), [pytest.param(c, w, id=f"{c}{f}") for c, f, w in measured()])
def test_it_moves_no_verdict(
    command: str,
    words: tuple[str, ...],
    made: Path,
    plain: dict[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    for each in made.iterdir():
        (tmp_path / each.name).symlink_to(each)
    monkeypatch.chdir(tmp_path)
    # Values of people are shown beside words alone.
    in_words = "--show-values" in words
    done = jaxaudit(*RUNS[command], *words, *([] if in_words else ["--json"]))
    result = json.loads(Path("run/result.json").read_text()) if in_words else done.result
    assert verdicts_of(result) == plain[command]
    assert plain[command]

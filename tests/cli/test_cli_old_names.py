"""The names of options of the version before: each still works, says its new name, and gives the same result."""

import json
from pathlib import Path

import pytest
from support.cli_runs import QUICK, jaxaudit
from test_cli_options import parsed

from jaxaudit.cli.app import COMMANDS
from jaxaudit.cli.options import fields_of

OLD = {
    "ks": {
        "--width": ("--models-per-batch", "3"),
        "--method": ("--tests", "rho"),
        "--holdout-shadows": ("--holdout-shadow-models", "20"),
        "--records": ("--sample", "50"),
    },
    "power": {"--width": ("--models-per-batch", "3"), "--holdout-shadows": ("--holdout-shadow-models", "20")},
    "pdtp": {
        "--width": ("--models-per-batch", "3"),
        "--learner": ("--model", "nb"),
        "--records": ("--measured-records", "9"),
        "--candidates": ("--sample", "40"),
    },
    "attack": {
        "--width": ("--models-per-batch", "3"),
        "--learner": ("--model", "nb"),
        "--candidates": ("--sample", "40"),
        "--untargeted-shadows": ("--pooled-shadow-models", "2"),
        "--measured": ("--measured-iterations", "1"),
    },
    "unlearn": {"--width": ("--models-per-batch", "3"), "--method": ("--methods", "retraining")},
    "efficacy": {},
}
EVERY = [(command, old, new, value) for command, flags in OLD.items() for old, (new, value) in flags.items()]


def test_every_old_name_is_known_here():
    found = {
        command.name: {old: field.flag for field in fields_of(command.options()) for old in field.declared.formerly}
        for command in COMMANDS
    }
    assert found == {command: {old: new for old, (new, _) in flags.items()} for command, flags in OLD.items()}


@pytest.mark.parametrize(("command", "old", "new", "value"), EVERY)
def test_an_old_name_means_the_new_one_and_says_so(
    command: str, old: str, new: str, value: str, capfd: pytest.CaptureFixture[str]
):
    wanted = parsed(command, new, value)
    assert wanted != parsed(command)
    assert parsed(command, old, value) == parsed(command, f"{old}={value}") == wanted
    done = jaxaudit(command, old, value, "--help")
    (note,) = done.err.splitlines()
    assert old in note.split()
    assert new in note
    assert jaxaudit(command, new, value, "--help").err == ""


def test_an_old_command_line_gives_the_same_result(sets: Path):
    """And JSON stays all of stdout."""
    new = ("--models-per-batch", "9", "--tests", "rho")
    rest = [word for word in QUICK if word not in new]
    done = jaxaudit("ks", *rest, "--width", "9", "--method", "rho", "--records", "120", "--json")
    result = jaxaudit("ks", *rest, *new, "--sample", "120", "--json").result
    assert json.loads(done.out)["targets"] == result["targets"]
    assert [line.split()[0] for line in done.err.splitlines()][:3] == ["--width", "--method", "--records"]
    # What repeats the run is said in new names.
    assert done.result["provenance"]["command"] == result["provenance"]["command"]
    assert done.result["provenance"]["options"] == result["provenance"]["options"]


def test_an_old_name_of_another_command_is_none(sets: Path):
    for words in (("efficacy", "--width", "3"), ("power", "--records", "30"), ("report", "run", "--width", "3")):
        done = jaxaudit(*words)
        assert (done.code, done.out) == (2, "")
        assert words[-2] in done.err

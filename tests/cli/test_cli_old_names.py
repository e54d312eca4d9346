"""The names of options of the version before: each still works, says its new name, and gives the same result."""

from pathlib import Path

import pytest
from support.cli_runs import jaxaudit
from test_cli_options import parsed

from jaxaudit.cli.app import COMMANDS
from jaxaudit.cli.options import fields_of, plain

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


def test_every_old_name_is_known_here():
    found = {
        command.name: {old: field.flag for field in fields_of(command.options()) for old in field.declared.formerly}
        for command in COMMANDS
    }
    assert found == {command: {old: new for old, (new, _) in flags.items()} for command, flags in OLD.items()}


@pytest.mark.parametrize("command", [command for command, flags in OLD.items() if flags])
def test_old_names_mean_the_new_ones_and_say_so(command: str):
    """A command line of old names is that of the new ones: what repeats its run is the same, too."""
    flags = [(old, new, value) for old, (new, value) in OLD[command].items()]
    olds = [word for old, _, value in flags for word in (old, value)]
    news = [word for _, new, value in flags for word in (new, value)]
    wanted = parsed(command, *news)
    assert parsed(command, *olds) == parsed(command, *(f"{old}={value}" for old, _, value in flags)) == wanted
    usual = parsed(command)
    assert all(plain(wanted)[name] != plain(usual)[name] for name in (new[2:].replace("-", "_") for _, new, _ in flags))
    done = jaxaudit(command, *olds, "--help")
    assert [line.split()[0] for line in done.err.splitlines()] == list(OLD[command])
    assert all(new in line for line, (_, new, _) in zip(done.err.splitlines(), flags, strict=True))
    assert jaxaudit(command, *news, "--help").err == ""


def test_an_old_name_of_another_command_is_none(sets: Path):
    for words in (("efficacy", "--width", "3"), ("power", "--records", "30"), ("report", "run", "--width", "3")):
        done = jaxaudit(*words)
        assert (done.code, done.out) == (2, "")
        assert words[-2] in done.err

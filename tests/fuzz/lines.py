"""Command lines: each option with values that people mistype and people with bad intentions try."""

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from support.banks import logits, rows, write_bank
from support.evaluation_logs import tofu_log, write_log
from support.other_tools import write_lira
from support.saved_runs import RUNS, save

from fuzz import names
from fuzz.commands import command, swept
from fuzz.places import Link, Special, Tree
from fuzz.readers import SECRET, Reader
from fuzz.scores import TASKS, write_samples
from jaxaudit.cli.options import OptionField, fields_of

SUFFIX = ".words"
"""Of the file that holds a command's words: nothing else is changed."""
NUMBERS = ("", "-1", "0", "1", "1.5", "nan", "inf", "-inf", "x", "1e308", "1e-320", "0x10", "1_0", "٣", "9" * 5000)
NUMBERS += ("18446744073709551616", "9223372036854775807", "4294967296", "2147483648", "1e400", "-0", " 7", "7 ")
PATHS = ("query.npz", "people.csv", ".", "..", "/dev/null/x", "nowhere/x", "query.npz/x", "-", "new", "deal")
PATHS += ("~/x", "~no-such-user/x", "people.toml", "outputs.npy", "out.csv")
PATHS += ("folder", "pipe", "dangling", "circular", "outside", "query.npz@train[:5]", "tfds:", "acdc:.@1.5")
NO_NUMBER = {"", "nan", "x", "9" * 5000, "18446744073709551616"}
"""What no option of whole numbers with a least value can mean."""
NO_SHARE = {"", "nan", "inf", "-inf", "x", "-1", "1e400"}
"""What none of these can mean:"""
SHARES = {"--level", "--penalty", "--fraction", "--min-accuracy", "--smoothing", "--holdout-share"}
SETTINGS = ("learning-rate", "batch-size", "hidden", "augment", "schedule", "weight-decay", "no-such")
"""Of a recipe. The first can be none of those values, either."""
TRAPS: Tree = {each: Special(each) for each in ("folder", "pipe")}
TRAPS |= {"dangling": Link("nothing"), "circular": Link("itself"), "outside": Link("{outside}/kept")}
LOG = "TOFU_EVAL.json"
SETS = ("--query", "query.npz", "--calibration", "calibration.npz")
SETS += ("--recipe", "hidden=4", "--epochs", "2", "--recipe", "models-per-batch=3")
PEOPLE = ("--csv", "people.csv", "--label", "class", "--epochs", "2", "--recipe", "models-per-batch=3")
USUAL = {
    "ks": (*SETS, "--test-option", "rho.replicates=1", "--tests", "rho", "--effort", "full"),
    "power": (*SETS, "--effort", "full", "--models", "19"),
    "pdtp": PEOPLE,
    "attack": (*PEOPLE, "--iterations", "2", "--targets", "5", "--shadow-pairs", "2"),
    "unlearn": ("--data", "query.npz", "--class", "1", "--per-class", "4", "--epochs", "2", "--seeds", "3"),
    "efficacy": (),
    "deal": ("query.npz", "--out", "dealt", "--groups", "patient"),
    "report": ("run",),
    "shadows plan": (*SETS[:4], "--models", "4", "--out", "new"),
    "shadows add": ("bank", "outputs.npy"),
    "shadows show": ("bank",),
    "shadows import": ("exp", "--out", "new"),
    "scores open-unlearning": (f"a/{LOG}", "--unused", f"b/{LOG}", "--out", "new.csv"),
    "scores lm-eval": (".", "--query", TASKS[0], "--holdout", TASKS[1], "--out", "new.csv"),
}


def prepare(line: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        rng = np.random.default_rng(0)
        for name in ("query", "calibration"):
            arrays = {"x": rng.normal(size=(60, 4)).astype(np.float32), "y": np.arange(60) % 3}
            np.savez(folder / f"{name}.npz", **arrays, patient=np.arange(60) // 4)
        lines = [f"{20 + row},{('red', 'green', SECRET)[row % 3]},{row * 1.5},{'ny'[row % 2]}" for row in range(40)]
        (folder / "people.csv").write_text("\n".join(["age,colour,weight,class", *lines, ""]))
        save(RUNS["efficacy"](), folder / "run")
        write_bank(folder / "bank")
        write_lira(folder / "exp", 4)
        for seed, model in enumerate("ab"):
            write_log(folder / model, tofu_log(seed), LOG)
        write_samples(folder)
        (folder / "people.toml").write_text('learning-rate = 0.1\nhidden = "4"\naugment = ["flip"]\n')
        np.save(folder / "outputs.npy", logits(3, rows()[3]))
        (folder / f"it{SUFFIX}").write_text(json.dumps([*line.split(), *USUAL[line]]))

    return make


def options_of(words: list[str]) -> list[Any]:
    import typer

    from jaxaudit.cli.app import app

    found: Any = typer.main.get_command(app)
    for word in words:
        if word not in getattr(found, "commands", ()):
            break
        found = found.commands[word]
    return found.params


def fields_called(words: list[str]) -> list[OptionField]:
    from jaxaudit.cli.app import COMMANDS
    from jaxaudit.cli.deal import DEAL
    from jaxaudit.cli.scores import SCORES
    from jaxaudit.cli.shadows import SHADOWS

    every = (*COMMANDS, DEAL, *SHADOWS, *SCORES)
    known = [each for each in every if each.name.split() == words[: len(each.name.split())]]
    return [field for each in known for field in fields_of(each.options())]


def mangled(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    words = json.loads(data)
    # A dry run trains for some seconds, to time it.
    option = choose.choice([each for each in options_of(words) if "--dry-run" not in each.opts])
    name = choose.choice(option.opts)
    value = choose.choice(choose.choice((NUMBERS, NUMBERS, PATHS, names.ODD)))
    value = f"{choose.choice(SETTINGS)}={value}" if name == "--recipe" and choose.random() < 0.8 else value
    if option.param_type_name == "argument":
        words[2 if words[0] in ("shadows", "scores") else 1] = value
    elif option.is_flag:
        words.append(name)
    elif choose.random() < 0.1:
        words += [choose.choice((name, value, "--", f"{name}={value}", f"{name[:4]}", "-h", "--help"))]
    elif name in words:
        place = words.index(name) + 1
        words[place : place + 1] = [value]
    else:
        words += [name, value]
    return json.dumps(words).encode(), f"{words}"


def run_line(folder: Path, choose: random.Random) -> object:
    words: list[str] = json.loads((folder / f"it{SUFFIX}").read_bytes())
    with swept(folder):
        ran = command(folder, words)
    if ran.status != 2 and (wrong := meaningless([word.replace("\0", "") for word in words])):
        raise AssertionError(f"{wrong} was not refused")
    return ran


def meaningless(words: list[str]) -> str | None:
    """An option whose value can mean nothing; None without one."""
    if {"-h", "--help"} & set(words):
        return None
    # However many rows are to be shown, there are only so many.
    least = {name for field in fields_called(words) if field.declared.minimum is not None for name in field.flags}
    least -= {"--top"}
    for name, value in pairwise(words):
        setting, _, number = value.partition("=")
        if name == "--recipe" and setting == SETTINGS[0] and number in NO_SHARE:
            return f"{name} {value[:40]!r}"
        if (name in least and value in NO_NUMBER) or (name in SHARES and value in NO_SHARE):
            return f"{name} {value[:40]!r}"
    return None


READERS = [
    Reader(f"line-{name.replace(' ', '-')}", prepare(name), run_line, 3 if name == "ks" else 2) for name in USUAL
]

"""`jaxaudit shadows train`: the models of `ks` with the same seed, whatever stops it; a run's directory is a bank."""

import json
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import CLASSES, Done, content, jaxaudit, recipe, records, refused, stopping
from support.details import details_of

from jaxaudit import load_bank
from jaxaudit.cli.shadows import train as train_module
from jaxaudit.runs import working_in

N = 50
HELD = ("--deal", "deal", "--calibration", "c.npz")
FILES = {"query": "deal/query.npz", "holdout": "deal/holdout.npz", "calibration": "c.npz"}
TRAINED = ("--model", "mlp", "--epochs", "6", "--seed", "5")
TRAINED += recipe("hidden=16", "learning-rate=0.02", "batch-size=20", "models-per-batch=10")
TARGET = ("--target", "target")
AS_SAID = ("--same-recipe", "--json")
IN_KS = ("--effort", "full", "--images", "none", *AS_SAID)
BY_BANK = ("--seed", "5", *AS_SAID)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets of 50 records each, and a target's outputs on two of them."""
    monkeypatch.chdir(tmp_path)
    inputs, labels = records(2, 0.0, 3 * N)
    logits = np.random.default_rng(3).normal(size=(3 * N, CLASSES))
    logits[np.arange(3 * N), labels] += 1 + (np.arange(3 * N) < N)
    Path("deal").mkdir()
    parts = {role: slice(place * N, (place + 1) * N) for place, role in enumerate(FILES)}
    for role, part in parts.items():
        np.savez(FILES[role], x=inputs[part], y=labels[part])
    Path("target").mkdir()
    for role in ("query", "holdout"):
        np.save(f"target/{role}.npy", logits[parts[role]])
    return tmp_path


def train(*words: str, out: str = "bank", models: int = 20) -> Done:
    return jaxaudit("shadows", "train", *TRAINED, *words, "--models", f"{models}", "--out", out)


def good(*words: str) -> dict[str, Any]:
    """The one target's result."""
    (target,) = jaxaudit("ks", *words).result["targets"]
    return target


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two results of one target say the same; shares to 1e-5, as logits that were rounded to float32 determine them.

    But for the holdout test's numbers: a bank has no inputs, so its records teach nothing of their difficulty.
    """
    for mine, theirs in zip(details_of(one), details_of(other), strict=True):
        shares = {name for name, value in mine.items() if isinstance(value, float)}
        if mine["method"] == "holdout":
            assert all(abs(mine[name] - theirs[name]) < 0.25 for name in shares & theirs.keys())
            assert mine["verdict"] == theirs["verdict"]
            continue
        named = mine.keys() - shares - {"reasons"}
        assert {name: mine[name] for name in named} == {name: theirs[name] for name in named}
        assert [mine[name] for name in shares] == pytest.approx([theirs[name] for name in shares], abs=1e-5)
    assert one["finding"]["verdict"] == other["finding"]["verdict"]
    states, others = ([each | {"message": ""} for each in result["checks"]] for result in (one, other))
    assert states == others


def test_a_bank_gives_the_numbers_of_ks_with_the_same_seed(folder: Path):
    """And so does the directory of that run."""
    assert train(*HELD).code == 0
    assert {path.name for path in Path("bank").iterdir()} == {
        *("bank.json", "labels.npy", "membership.npy", "seeds.npy", "outputs")
    }
    trained = good(*HELD, *TARGET, *TRAINED, *IN_KS, "--test-option", "holdout.mixed=20", "--out", "run")
    for bank in ("bank", "run"):
        same(good("--shadows", bank, *TARGET, *BY_BANK), trained)


SIX, TWELVE = 6, 12
KILLED = (*HELD, *TRAINED, "--epochs", "100", "--recipe", "models-per-batch=2", "--out", "bank")
"""Two models at a time: when the first files are there, others are not trained yet."""


def grown(*words: str, models: int) -> Done:
    return jaxaudit("shadows", "train", *KILLED, *words, "--models", f"{models}")


def without_command(bank: str) -> dict[str, Any]:
    """Every file of a bank, but for what was being written at a kill; of its description what names no directory."""
    found = {name: each for name, each in content(Path(bank)).items() if "/.writing-" not in name}
    said = json.loads(found.pop("bank.json") or b"")
    del said["command"]
    return {**found, "said": said}


@pytest.mark.outer
def test_a_killed_run_goes_on_and_a_bank_grows_as_if_it_had_always_been_large(folder: Path):
    """Byte for byte. What was trained before is not written again."""
    whole = jaxaudit("shadows", "train", *KILLED[:-1], "whole", "--models", f"{TWELVE}")
    assert whole.code == 0, whole.err
    command = [sys.executable, "-m", "jaxaudit", "shadows", "train", *KILLED, "--models", f"{SIX}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        deadline = time.monotonic() + 120
        while not list(Path("bank/outputs").glob("0*.npy")):
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
        run.communicate()
    bank = load_bank("bank")
    kept = bank.finished()
    assert 0 < len(kept) < SIX
    times = {model: Path(f"bank/outputs/{model:05}.npy").stat().st_mtime_ns for model in kept}
    assert grown(models=SIX).code == 0
    assert times == {model: Path(f"bank/outputs/{model:05}.npy").stat().st_mtime_ns for model in kept}
    assert load_bank("bank").finished().tolist() == [*range(SIX)]
    Path("swapped").mkdir()
    for role, other in (("query", "holdout"), ("holdout", "query")):
        Path(f"swapped/{role}.npz").symlink_to(folder / FILES[other])
    for words, why in ((("--epochs", "9"), "recipe"), (("--seed", "6"), "seed"), (("--deal", "swapped"), "query set")):
        refused(("shadows", "train", *KILLED, *words, "--models", f"{TWELVE}"), (why,))
    larger = grown(models=TWELVE)
    assert (larger.code, f"{SIX} of them trained; {TWELVE - SIX} to train" in larger.err) == (0, True)
    assert without_command("bank") == without_command("whole")
    assert (grown(models=SIX).code, grown(models=TWELVE).code) == (2, 0)
    assert not Path("bank/unfinished").exists()


@pytest.mark.parametrize("holder", ["at work", "done"])
def test_of_two_commands_on_one_new_bank_the_second_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch, holder: str):
    """The other one made the bank while this one measured its speed."""
    usual, before = train_module.lay, {}

    def late(out: Path, *rest: Any) -> None:
        monkeypatch.setattr(train_module, "lay", usual)
        assert train(*HELD, models=4).code == 0
        before.update(content(folder))
        with working_in(out) if holder == "at work" else nullcontext():
            usual(out, *rest)

    monkeypatch.setattr(train_module, "lay", late)
    done = train(*HELD, models=4)
    why = "in use by another process" if holder == "at work" else "another command made this bank"
    assert (done.code, why in done.err, "other files" in done.err) == (2, True, False), done.err
    assert content(folder) == before


def test_ctrl_c_leaves_the_models_that_are_trained(folder: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxaudit.cli.progress.progress_on_stderr", stopping(0.7))
        done = train(*HELD, *recipe("models-per-batch=4"))
    kept = len(load_bank("bank").finished())
    assert (done.code, done.out, kept < 20) == (130, "", True)
    said = f"Interrupted: {kept} of 20 models are trained; the same command continues from there."
    assert done.err.splitlines()[-1] == said
    assert train(*HELD, *recipe("models-per-batch=4")).code == 0
    assert not Path("bank/unfinished").exists()


def test_a_model_that_diverges_ends_the_training_and_is_not_kept(folder: Path):
    done = train(*HELD, *recipe("optimizer=sgd", "learning-rate=1e9"), models=4)
    assert (done.code, done.out) == (2, "")
    assert load_bank(Path("bank")).missing().tolist() == list(range(4))

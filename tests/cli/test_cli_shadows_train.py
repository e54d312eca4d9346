"""`jaxaudit shadows train`: the models of `ks` with the same seed, whatever stops it; a run's directory is a bank."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import CLASSES, Done, content, jaxaudit, records

from jaxaudit.cli.shadows import train as train_module
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.runs.lock import hold, sign, working_in

N = 50
HELD = ("--query", "q.npz", "--holdout", "h.npz", "--calibration", "c.npz")
PAIR = ("--query", "q.npz", "--calibration", "c.npz")
RECIPE = ("--model", "mlp", "--hidden", "16", "--epochs", "6", "--learning-rate", "0.02", "--batch-size", "20")
TRAINED = (*RECIPE, "--models-per-batch", "10", "--designs", "guess", "--seed", "5")
TWO = ("--designs", "guess,momentum")
TARGET = ("--target", "on_q.npy", "--holdout-target", "on_h.npy")
REFERRED = ("--target", "on_q.npy", "--calibration-target", "on_c.npy")
AS_SAID = ("--same-recipe", "--json")
IN_KS = ("--replicates", "0", "--budget", "none", "--image-size", "none", *AS_SAID)
BY_BANK = ("--seed", "5", *AS_SAID)

LIMITED = """
import resource, sys
from jaxaudit.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (1600, resource.RLIM_INFINITY))
sys.argv = ["jaxaudit", *sys.argv[1:]]
main()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`q.npz`, `h.npz`, `c.npz` of 50 records each, and a target's outputs on them."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    return tmp_path


def write_inputs(folder: Path) -> None:
    inputs, labels = records(2, 0.0, 3 * N)
    logits = np.random.default_rng(3).normal(size=(3 * N, CLASSES))
    logits[np.arange(3 * N), labels] += 1 + (np.arange(3 * N) < N)
    for place, name in enumerate("qhc"):
        part = slice(place * N, (place + 1) * N)
        np.savez(folder / f"{name}.npz", x=inputs[part], y=labels[part])
        np.save(folder / f"on_{name}.npy", logits[part])


def train(*words: str, out: str = "bank", models: int = 20) -> Done:
    return jaxaudit("shadows", "train", *TRAINED, *words, "--models", f"{models}", "--out", out)


def good(*words: str) -> dict[str, Any]:
    """The one target's result."""
    (target,) = jaxaudit("ks", *words).result["targets"]
    return target


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two results of one target say the same; shares to 1e-5, as logits that were rounded to float32 determine them.

    But for the holdout test's p(unused): a bank has no inputs, and so no neighbours of its records. And for advice: of
    models that fit badly, a run says to train longer, a bank to fill another one.
    """
    for mine, theirs in zip(one["usage"], other["usage"], strict=True):
        shares = {name for name, value in mine.items() if isinstance(value, float)}
        if mine["method"] == "holdout":
            shares.remove("p_never")
            assert abs(mine["p_never"] - theirs["p_never"]) < 0.05
        named = mine.keys() - shares - {"p_never", "reasons"}
        assert {name: mine[name] for name in named} == {name: theirs[name] for name in named}
        assert [mine[name] for name in shares] == pytest.approx([theirs[name] for name in shares], abs=1e-5)
    assert one["finding"]["verdict"] == other["finding"]["verdict"]
    states, others = ([each | {"message": ""} for each in result["checks"]] for result in (one, other))
    assert states == others


def test_a_bank_gives_the_numbers_of_ks_with_the_same_seed(folder: Path):
    """And so does the directory of that run."""
    assert train(*HELD, *TWO).code == 0
    assert {path.name for path in Path("bank").iterdir()} == {
        *("bank.json", "labels.npy", "membership.npy", "seeds.npy", "designs.npy", "outputs")
    }
    trained = good(*HELD, *TARGET, *TRAINED, *IN_KS, *TWO, "--holdout-shadow-models", "20", "--out", "run")
    for bank in ("bank", "run"):
        same(good("--shadows", bank, *TARGET, *BY_BANK), trained)


def test_without_a_holdout_too(folder: Path):
    """By the reference test, with the target's outputs on the calibration set, and by the shadow test beside it."""
    assert train(*PAIR, models=76).code == 0
    tests = ("--tests", "reference,shadow")
    trained = good(*PAIR, *REFERRED, *TRAINED, *IN_KS, *tests, "--shadow-models", "38", "--out", "run")
    assert [each["name"] for each in trained["tests"]] == ["reference", "shadow"]
    for bank in ("bank", "run"):
        same(good("--shadows", bank, *REFERRED, *BY_BANK, *tests), trained)


def test_a_run_that_drew_a_sample_is_a_bank_of_whole_sets(folder: Path):
    """What was not drawn has columns, too: the next target's files are those of the sets."""
    trained = good(*HELD, *TARGET, *TRAINED, *IN_KS, "--sample", "40", "--holdout-shadow-models", "20", "--out", "run")
    bank = load_bank("run")
    assert (bank.description.sizes, int(bank.dropped.sum())) == ((N, N, N), 30)
    same(good("--shadows", "run", *TARGET, *BY_BANK), trained)
    with np.load("run/confidences.npz") as kept:
        assert not [name for name in kept.files if "log_odds" in name]


SIX, TWELVE = 6, 12
KILLED = (*HELD, *TRAINED, *TWO, "--epochs", "100", "--models-per-batch", "2", "--out", "bank")
"""A design at a time: when the first files are there, the other design is not trained yet."""


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
    for words, why in ((("--epochs", "9"), "recipe"), (("--seed", "6"), "seed"), (("--query", "h.npz"), "query set")):
        before = content(folder)
        done = grown(*words, models=TWELVE)
        assert (done.code, why in done.err) == (2, True), done.err
        assert content(folder) == before
    before = content(folder)
    planned = grown("--dry-run", models=TWELVE)
    assert (planned.code, f"{SIX} of them trained; {TWELVE - SIX} to train" in planned.out) == (0, True)
    planned = grown("--dry-run", "--workers", "1", models=TWELVE)
    assert (planned.code, f"shadows train: {TWELVE - SIX} models" in planned.out) == (0, True), planned
    assert content(folder) == before
    assert grown(models=TWELVE).code == 0
    assert without_command("bank") == without_command("whole")
    assert (grown(models=SIX).code, grown(models=TWELVE).code) == (2, 0)
    assert not Path("bank/unfinished").exists()


def number_said(text: str) -> str:
    """What the plan says of the records that a model is trained on."""
    (found,) = re.findall(r"to train on (.*?) records each", text)
    return found


SMALL = ("--batch-size", "1", "--epochs", "1")


@pytest.mark.parametrize("words", [HELD, (*HELD, "--coins"), PAIR])
def test_a_plan_states_the_training_sets_that_are_dealt(folder: Path, words: tuple[str, ...]):
    """Steps too: here as many as records. Once some models are trained, of the others."""
    planned = jaxaudit("shadows", "plan", *words, "--seed", "5", "--models", "20", "--out", "planned")
    assert planned.code == 0
    sizes = np.load("planned/membership.npy").sum(axis=1)
    alone = f"{sizes[0]}" if np.ptp(sizes) == 0 else f"{sizes.min()} to {sizes.max()} (on average {sizes.mean():.0f})"
    said = train(*words, *SMALL, "--dry-run").out
    assert (number_said(said), f": {alone} steps of 1 records" in said) == (alone, True), said
    assert train(*words, *SMALL, models=4).code == 0
    assert number_said(train(*words, *SMALL, "--dry-run", models=5).out) == f"{sizes[4]}"


@pytest.mark.parametrize("holder", ["at work", "done"])
def test_of_two_commands_on_one_new_bank_the_second_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch, holder: str):
    """The other one made the bank while this one measured its speed."""
    usual, before = train_module.lay, {}

    def late(out: Path, *rest: Any) -> None:
        monkeypatch.setattr(train_module, "lay", usual)
        assert train(*HELD).code == 0
        before.update(content(folder))
        with working_in(out) if holder == "at work" else nullcontext():
            usual(out, *rest)

    monkeypatch.setattr(train_module, "lay", late)
    done = train(*HELD)
    why = f"in use by another process (pid {os.getpid()})" if holder == "at work" else "another command made this bank"
    assert (done.code, why in done.err, "other files" in done.err) == (2, True, False), done.err
    assert content(folder) == before
    assert train(*HELD).code == 0
    assert content(folder) == before


def test_only_one_command_writes_a_new_bank(folder: Path):
    """While it writes, its lock is in the folder of its drafts."""
    work = Path("bank/unfinished")
    work.mkdir(parents=True)
    lock = hold(work)
    assert lock is not None
    sign(work)
    before = content(folder)
    for command in (("plan", *HELD), ("train", *HELD, *TRAINED)):
        done = jaxaudit("shadows", *command, "--models", "20", "--out", "bank")
        assert (done.code, "--out bank is in use" in done.err) == (2, True), done.err
    assert content(folder) == before
    lock.release()
    assert train(*HELD).code == 0
    assert not work.exists()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_is_said_with_what_is_missing_and_the_command_goes_on(folder: Path):
    """On a file system of its own, which has no room for all outputs, and is then made larger."""
    Path("disk").mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", "disk"]
    if subprocess.run(small, capture_output=True, check=False).returncode:
        pytest.skip("may not mount here")
    try:
        done = train(*HELD, out="disk/bank", models=60)
        found = load_bank("disk/bank").finished().tolist()
        assert (done.code, 0 < len(found) < 60) == (2, True), done.err
        missing = 60 - len(found)
        needed = missing * 4 * 3 * N * CLASSES / 2**20
        for words in ("disk/bank", "the disk is full", f"{missing} models", f"{needed:.1f} MiB", "the same command"):
            assert words in done.err
        kept = {model: Path(f"disk/bank/outputs/{model:05}.npy").stat().st_mtime_ns for model in found}
        subprocess.run(["mount", "-o", "remount,size=8m", "disk"], check=True)
        assert train(*HELD, out="disk/bank", models=60).code == 0
        assert {model: Path(f"disk/bank/outputs/{model:05}.npy").stat().st_mtime_ns for model in found} == kept
        assert train(*HELD, out="whole", models=60).code == 0
        assert without_command("disk/bank") == without_command("whole")
    finally:
        subprocess.run(["umount", "disk"], check=True)


@pytest.mark.outer
@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of files")
def test_a_limit_of_files_is_no_full_disk_and_the_command_goes_on(folder: Path):
    """The bank is there, but for a model whose outputs are longer than a file may be."""
    assert train(*HELD, models=4).code == 0
    before = content(folder)
    Path("bank/outputs/00003.npy").unlink()
    words = ("shadows", "train", *TRAINED, *HELD, "--models", "4", "--out", "bank")
    done = subprocess.run([sys.executable, "-c", LIMITED, *words], capture_output=True, text=True, timeout=300)
    assert (done.returncode, "than this process or that file system allows" in done.stderr) == (2, True), done.stderr
    assert not any(word in done.stderr for word in ("full", "free there"))
    assert "model 3 of 4" in done.stderr
    assert train(*HELD, models=4).code == 0
    assert content(folder) == before


@pytest.mark.parametrize(
    ("number", "words", "free"),
    [
        (errno.ENOSPC, "the disk is full", True),
        (errno.EDQUOT, "your quota there is used up", False),
        (errno.EIO, "it cannot be written (", True),
    ],
)
def test_every_reason_for_a_lack_of_room_has_its_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, free: bool
):
    def fails(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("jaxaudit.audits.ks.bank.train.write_outputs", fails)
    done = train(*HELD)
    assert (done.code, words in done.err, "are free there" in done.err) == (2, True, free), done.err


def test_a_dry_run_writes_nothing(folder: Path):
    before = content(folder)
    done = train(*HELD, "--dry-run")
    assert (done.code, "20 shadow models" in done.out) == (0, True)
    assert content(folder) == before


@pytest.mark.outer
def test_a_dry_run_with_workers_times_them(folder: Path):
    Path("bank").mkdir()
    before = content(folder)
    done = train(*HELD, "--dry-run", "--workers", "1")
    assert (done.code, "of training by 1 worker\n" in done.out, "hours of a worker" in done.out) == (0, True, True), (
        done
    )
    assert content(folder) == before

"""The files of `examples/`: scripts that train shadow models, audits, and what somebody brings of their own."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.banks import QUERY, RECORDS, planned, target, train
from support.cli_runs import jaxaudit

from jaxaudit import load_bank
from jaxaudit.audits import open_bank
from jaxaudit.data import load
from jaxaudit.errors import InputError

EXAMPLES = Path(__file__).parent.parent / "examples"
MODELS, N = 3, 100
SETS = ("--deal", "deal", "--calibration", "c.npz")
FILES = ("deal/query.npz", "deal/holdout.npz", "c.npz")


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A query set, a holdout and a calibration set of images of digits."""
    monkeypatch.chdir(tmp_path)
    whole = load("digits")
    Path("deal").mkdir()
    for place, name in enumerate(FILES):
        part = slice(place * N, (place + 1) * N)
        np.savez(name, x=whole.inputs[part], y=whole.labels[part])
    return tmp_path


def plan(*words: str) -> None:
    done = jaxaudit("shadows", "plan", *SETS, "--models", f"{MODELS}", "--out", "bank", *words)
    assert done.code == 0, done.err


def run(script: str, folder: Path, *words: str) -> str:
    """What it prints, in a process of its own."""
    command = [sys.executable, EXAMPLES / script, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.outer
@pytest.mark.parametrize("script", ["shadows_sklearn.py", "shadows_pytorch.py"])
def test_a_script_trains_what_is_missing(digits: Path, script: str):
    if "pytorch" in script:
        pytest.importorskip("torch")
    plan("--outputs", "probabilities" if "sklearn" in script else "logits")
    out = run(script, digits, "bank", *FILES)
    bank = load_bank("bank")
    assert bank.finished().tolist() == list(range(MODELS))
    assert {path.suffix for path in Path("bank/outputs").iterdir()} == {".npy"}
    accuracy = open_bank(bank).own_accuracy
    assert accuracy.min() > 0.8
    # They say of their own training records what the bank has of theirs.
    assert [f"model {model}: accuracy {each:.1%}" in out for model, each in enumerate(accuracy)] == [True] * MODELS
    # A model's row and seed are all that it depends on.
    first = np.load("bank/outputs/00001.npy")
    Path("bank/outputs/00001.npy").unlink()
    kept = Path("bank/outputs/00002.npy").stat().st_mtime_ns
    assert run(script, digits, "bank", *FILES).count("model") == 1
    np.testing.assert_allclose(np.load("bank/outputs/00001.npy"), first, rtol=1e-4, atol=1e-5)
    assert Path("bank/outputs/00002.npy").stat().st_mtime_ns == kept
    # And what they leave can be added elsewhere.
    Path("bank").rename("other")
    plan("--outputs", bank.description.outputs)
    done = jaxaudit("shadows", "add", "bank", *(f"other/outputs/{model:05}.npy" for model in range(MODELS)))
    assert done.code == 0, done.err
    np.testing.assert_allclose(open_bank("bank").own_accuracy, accuracy)


ANSWERS = {
    "audit_sklearn.py": r"first: not forgotten\..*\nanew: forgotten\.",
    "own_learner.py": r"no record exposed: In models \(your learner NearestMean\) that jaxaudit trained here: No ",
    "own_test.py": "not forgotten: The mean log-odds are",
    "own_attack.py": "(gives records away|gives some away|no better than guessing|inconclusive): ",
    "own_unlearning.py": "(distinguishable|not distinguishable|inconclusive): .*to-uniform: ",
    "language_model.py": r"before: not forgotten\..*\nretrained: forgotten\..*\nonly claimed: not forgotten\.",
    "many_workers.py": "(records exposed|inconclusive): ",
}


@pytest.mark.outer
@pytest.mark.parametrize("script", ANSWERS)
def test_a_script_ends_with_a_verdict(script: str, tmp_path: Path):
    out = run(script, tmp_path)
    assert re.match(ANSWERS[script], out), out


@pytest.mark.outer
def test_the_company_that_did_nothing_is_told_from_the_one_that_trained_again(tmp_path: Path):
    parts = run("deletion_case.py", tmp_path).split("$ jaxaudit ks --deal deal")
    again, nothing = (part.partition("\n  ")[2] for part in parts[1:])
    assert again.startswith("trained_again.csv: forgotten. ")
    assert nothing.startswith("did_nothing.csv: not forgotten. ")


@pytest.mark.outer
def test_an_attack_on_records_ends_with_a_verdict(tmp_path: Path):
    train(load_bank(planned(tmp_path / "bank", 20, 0, holdout=True)), range(20), 4.0)
    assert run("own_record_attack.py", tmp_path, "bank").startswith("gives some away: ")


@pytest.mark.outer
def test_a_method_is_scored_by_the_files_that_the_example_saves(tmp_path: Path):
    """Its own line is what the command says of the same files."""
    out = run("score_my_method.py", tmp_path)
    files = {name: str(tmp_path / f"{name}.npz") for name in ("tuned", "retrained", "original")}
    models = [word for name in ("tuned", "retrained", "original") for word in ("--outputs", f"{name}={files[name]}")]
    result = jaxaudit("unlearn", *models, "--labels", str(tmp_path / "labels.npy"), "--json").result
    assert result["finding"]["verdict"] == "distinguishable"
    assert out == f"{result['finding']['sentence']}\n"


def test_logits_of_a_pytorch_module_become_numpy():
    torch = pytest.importorskip("torch")
    logits = runpy.run_path(str(EXAMPLES / "score_my_method.py"))["logits_of_pytorch"]
    module = torch.nn.Linear(2, 3)
    found = logits(module, torch.ones(4, 2))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, module(torch.ones(4, 2)).detach().numpy())


def test_every_example_is_run_by_a_test():
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    names = [path.name for path in EXAMPLES.iterdir() if path.is_file()]
    assert [name for name in names if f'"{name}"' not in tests] == []


def test_your_own_format_becomes_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    lines = [{"features": [number, number / 2], "class": "odd" if number % 2 else "even"} for number in range(6)]
    Path("records.jsonl").write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr(sys, "argv", ["own_data.py", "records.jsonl", "records.npz"])
    load_lines = runpy.run_path(str(EXAMPLES / "own_data.py"), run_name="__main__")["load_lines"]
    assert capsys.readouterr().out == "6 records of 2 classes\n"
    found = load("./records.npz")
    np.testing.assert_allclose(found.inputs[5], [5, 2.5])
    assert found.class_names == ("even", "odd")
    assert found.labels.tolist() == [0, 1] * 3
    Path("bad.jsonl").write_text('{"features": [1], "class": "a"}\n{"secret": 7}')
    with pytest.raises(InputError, match="line 2") as refused:
        load_lines("bad.jsonl")
    assert "secret" not in str(refused.value)


def environment_with_a_command(folder: Path) -> dict[str, str]:
    """An environment in which `jaxaudit` is this one, as an activated virtual environment in `folder` has it."""
    (command := folder / "bin" / "jaxaudit").parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m jaxaudit "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}


@pytest.mark.outer
@pytest.mark.skipif(shutil.which("bash") is None, reason="a job of SLURM is a script of bash")
@pytest.mark.parametrize("gpus", ["", "2"])
def test_a_job_of_slurm_ends_with_a_verdict(tmp_path: Path, gpus: str):
    """In the environment that SLURM gives to a job on one node, without SLURM."""
    environment = environment_with_a_command(tmp_path)
    (tmp_path / "bin" / "activate").write_text(f'export PATH="{tmp_path / "bin"}:$PATH"\n')
    given = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2", "JAXAUDIT_VENV": str(tmp_path)}
    done = subprocess.run(
        ["bash", EXAMPLES / "jaxaudit.sbatch", "pdtp", "--model", "nb", "--out", "run"],
        cwd=tmp_path,
        env={**environment, **given, **({"SLURM_GPUS_ON_NODE": gpus} if gpus else {})},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("jaxaudit "), "the job does not say what it runs on"
    assert json.loads((tmp_path / "run" / "result.json").read_text())["finding"]["verdict"] == "records exposed"


@pytest.mark.outer
@pytest.mark.skipif(shutil.which("bash") is None, reason="the gate is a script of bash")
def test_the_gate_lets_only_what_was_forgotten_pass(tmp_path: Path):
    train(load_bank(planned(tmp_path / "bank", 20, 0, holdout=True)), range(20), 6.0)
    environment = environment_with_a_command(tmp_path)
    for name, used, code in (("unused", 0, 0), ("used", QUERY, 3)):
        target(tmp_path / "bank", name, np.isin(np.arange(RECORDS), np.arange(used)), 6.0)
        done = subprocess.run(
            ["bash", EXAMPLES / "release_gate.sh", "bank", f"{name}.npz"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert (tmp_path / "forgotten.html").exists()
        (tmp_path / "forgotten.html").unlink()

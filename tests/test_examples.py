"""The scripts of `examples/` train the shadow models of a bank, go on where they were stopped, and use its rows."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.cli_runs import jaxaudit

from jaxaudit.audits.bank_odds import bank_accuracy
from jaxaudit.data import load
from jaxaudit.data.bank.bank import load_bank

EXAMPLES = Path(__file__).parent.parent / "examples"
MODELS, N = 3, 100
FILES = ("q.npz", "h.npz", "c.npz")

pytestmark = pytest.mark.slow


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A query set, a holdout and a calibration set of images of digits."""
    monkeypatch.chdir(tmp_path)
    whole = load("digits")
    for place, name in enumerate(FILES):
        part = slice(place * N, (place + 1) * N)
        np.savez(name, x=whole.inputs[part], y=whole.labels[part])
    return tmp_path


def plan(*words: str) -> None:
    sets = ("--query", FILES[0], "--holdout", FILES[1], "--calibration", FILES[2])
    done = jaxaudit("shadows", "plan", *sets, "--models", f"{MODELS}", "--out", "bank", *words)
    assert done.code == 0, done.err


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / script, "bank", *FILES], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", ["shadows_sklearn.py", "shadows_pytorch.py"])
def test_a_script_trains_what_is_missing(digits: Path, script: str):
    if "pytorch" in script:
        pytest.importorskip("torch")
    plan("--outputs", "probabilities" if "sklearn" in script else "logits")
    out = run(script, digits)
    bank = load_bank("bank")
    assert bank.finished().tolist() == list(range(MODELS))
    assert {path.suffix for path in Path("bank/outputs").iterdir()} == {".npy"}
    accuracy = bank_accuracy(bank)
    assert accuracy.min() > 0.8
    # They say of their own training records what the bank has of theirs.
    assert [f"model {model}: accuracy {each:.1%}" in out for model, each in enumerate(accuracy)] == [True] * MODELS
    # A model's row and seed are all that it depends on.
    first = np.load("bank/outputs/00001.npy")
    Path("bank/outputs/00001.npy").unlink()
    kept = Path("bank/outputs/00002.npy").stat().st_mtime_ns
    assert run(script, digits).count("model") == 1
    np.testing.assert_allclose(np.load("bank/outputs/00001.npy"), first, rtol=1e-4, atol=1e-5)
    assert Path("bank/outputs/00002.npy").stat().st_mtime_ns == kept
    # And what they leave can be added elsewhere.
    Path("bank").rename("other")
    plan("--outputs", bank.description.outputs)
    done = jaxaudit("shadows", "add", "bank", *(f"other/outputs/{model:05}.npy" for model in range(MODELS)))
    assert done.code == 0, done.err
    np.testing.assert_allclose(bank_accuracy(load_bank("bank")), accuracy)

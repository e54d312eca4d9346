"""`jaxaudit attack --shadows BANK --delta`: a bound on epsilon, from a bank that `shadows plan --coins` deals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import cli_runs
from support.banks import train
from support.cli_runs import jaxaudit, records

from jaxaudit import attack, load_bank
from jaxaudit.attacks.records import BASE
from jaxaudit.errors import InputError
from jaxaudit.runs import read_run

N, MODELS = 200, 16
SETS = ("--deal", "deal")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`coins`, `forgetful`: banks dealt by coins, whose models remember much and nothing; `fixed`: another deal."""
    folder = tmp_path_factory.mktemp("made")
    inputs, labels = records(2, 0.0, 2 * N)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("deal").mkdir()
        for place, role in enumerate(("query", "holdout")):
            part = slice(place * N, (place + 1) * N)
            who = place * N + np.arange(N) // 2
            np.savez(f"deal/{role}.npz", x=inputs[part], y=labels[part], who=who)
        for name, words, memory in (("coins", ["--coins"], 12.0), ("forgetful", ["--coins"], 0.0), ("fixed", [], 12.0)):
            done = jaxaudit("shadows", "plan", *SETS, *words, "--models", str(MODELS), "--out", name)
            assert done.code == 0, done.err
            train(load_bank(name), range(MODELS), memory)
    return folder


def attacked(bank: str, *words: str) -> dict[str, Any]:
    pytest.importorskip("jax_privacy.auditing", reason="the extra dp is not installed")
    done = jaxaudit("attack", "--shadows", bank, "--attacks", "base", "--delta", "1e-5", *words, "--json")
    assert done.code == 0, done.err
    return done.result


def refused(*words: str, said: str) -> None:
    cli_runs.refused(("attack", *words, "--delta", "1e-5", "--out", "run"), (said,))


def test_models_that_remember_refute_a_claim(folder: Path):
    found = attacked("coins", "--out", "run", "--report", "page.html")["epsilon"]
    assert found["bound"] > 2
    assert (found["delta"], found["level"], found["attack"]) == (1e-5, 0.95, "base")
    assert (found["references"], found["audited"]) == (8, 8)
    assert found["members"] == load_bank("coins").membership[8:].sum()
    assert found["members"] + found["non_members"] == 8 * 2 * N
    assert f"{found['bound']:.3g}" in found["sentence"]
    assert "proven" in found["sentence"]
    is_said(found, "at least")
    # Nothing else moves by it; the same in Python.
    plain = jaxaudit("attack", "--shadows", "coins", "--attacks", "base", "--json").result
    assert plain["epsilon"] is None
    assert plain["finding"] == attacked("coins")["finding"]
    python = attack(load_bank("coins"), attacks=[BASE()], delta=1e-5).result.epsilon
    assert python is not None
    assert python.bound == found["bound"]


def is_said(epsilon: dict[str, Any], words: str) -> None:
    """On the terminal, on the page, and in the run directory."""
    assert json.loads(Path("run/result.json").read_text())["epsilon"] == epsilon
    assert read_run(Path("run")).result.epsilon.sentence == epsilon["sentence"]  # type: ignore[attr-defined]
    assert " ".join(epsilon["sentence"].split()[:6]) in " ".join(Path("run/table.txt").read_text().split())
    assert words in Path("page.html").read_text()


def test_models_that_remember_nothing_refute_none_and_no_claim_is_called_proven(folder: Path):
    """With this seed; how often such models do is told in tests/metrics/test_epsilon.py."""
    found = attacked("forgetful", "--out", "run", "--report", "page.html")["epsilon"]
    assert found["bound"] == 0
    assert "none is proven" in found["sentence"]
    is_said(found, "no bound above 0")


# What is refused


def test_a_deal_of_fixed_sizes_is_refused(folder: Path):
    with pytest.raises(InputError, match=r"on 200 of 400 records.*`coins`"):
        attack(load_bank("fixed"), attacks=[BASE()], delta=1e-5)
    pytest.importorskip("jax_privacy.auditing", reason="the extra dp is not installed")
    refused("--shadows", "fixed", said="--coins")

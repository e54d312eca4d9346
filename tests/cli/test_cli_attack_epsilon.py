"""`jaxaudit attack --shadows BANK --delta`: a bound on epsilon, from a bank that `shadows plan --coins` deals."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.banks import train
from support.cli_runs import content, jaxaudit, records

from jaxaudit import audit_records
from jaxaudit.attacks.records import BASE
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.errors import InputError
from jaxaudit.metrics.epsilon import refuse_unless_coins
from jaxaudit.runs.saved import read_run

N, MODELS = 200, 16
SETS = ("--query", "q.npz", "--holdout", "h.npz")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`coins`, `forgetful`: banks dealt by coins, whose models remember much and nothing; `fixed`: another deal."""
    folder = tmp_path_factory.mktemp("made")
    inputs, labels = records(2, 0.0, 2 * N)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for place, name in enumerate("qh"):
            part = slice(place * N, (place + 1) * N)
            np.savez(f"{name}.npz", x=inputs[part], y=labels[part])
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


def refused(*words: str) -> str:
    """What the command is refused with; it writes nothing."""
    before = content(Path())
    done = jaxaudit("attack", *words, "--delta", "1e-5", "--out", "run")
    assert (done.code, done.out) == (2, "")
    assert content(Path()) == before
    return done.err


def test_models_that_remember_refute_a_claim(folder: Path):
    found = attacked("coins", "--out", "run")["epsilon"]
    assert found["bound"] > 2
    assert (found["delta"], found["level"], found["attack"]) == (1e-5, 0.95, "base")
    assert (found["references"], found["audited"]) == (8, 8)
    assert found["members"] == load_bank("coins").membership[8:].sum()
    assert found["members"] + found["non_members"] == 8 * 2 * N
    assert f"{found['bound']:.3g}" in found["sentence"]
    assert "proven" in found["sentence"]
    assert json.loads(Path("run/result.json").read_text())["epsilon"] == found
    # Nothing else moves by it; the same in Python.
    plain = jaxaudit("attack", "--shadows", "coins", "--attacks", "base", "--json").result
    assert plain["epsilon"] is None
    assert plain["finding"] == attacked("coins")["finding"]
    python = audit_records(load_bank("coins"), attacks=[BASE()], delta=1e-5).epsilon
    assert python is not None
    assert python.found.bound == found["bound"]


def test_models_that_remember_nothing_refute_none_and_no_claim_is_called_proven(folder: Path):
    """With this seed; how often such models do is told in tests/metrics/test_epsilon.py."""
    found = attacked("forgetful", "--out", "run")["epsilon"]
    assert found["bound"] == 0
    assert "none is proven" in found["sentence"]


@pytest.mark.parametrize(("bank", "words"), [("coins", "at least"), ("forgetful", "no bound above 0")])
def test_terminal_and_page_say_it(bank: str, words: str, folder: Path):
    sentence = attacked(bank, "--out", "run")["epsilon"]["sentence"]
    done = jaxaudit("attack", "--shadows", bank, "--attacks", "base", "--delta", "1e-5", "--report", "page.html")
    assert " ".join(sentence.split()[:6]) in " ".join(done.out.split())
    assert words in Path("page.html").read_text()
    assert read_run(Path("run")).result.epsilon.sentence == sentence  # type: ignore[attr-defined]


def test_the_first_attack_that_is_named_gives_the_bound(folder: Path):
    pytest.importorskip("jax_privacy.auditing", reason="the extra dp is not installed")
    words = ("--attacks", "attack-p,base", "--delta", "1e-5", "--level", "0.9", "--json")
    found = jaxaudit("attack", "--shadows", "coins", *words).result["epsilon"]
    assert (found["attack"], found["level"]) == ("attack-p", 0.9)


def test_models_are_trained_by_coins(folder: Path):
    """Sizes of their training sets vary, whatever tests of ks would take; a plan is the same deal."""
    recipe = ("--model", "mlp", "--hidden", "4", "--epochs", "1", "--models-per-batch", "4", "--designs", "guess")
    query = ("--query", "q.npz", "--coins", "--models", "8")
    done = jaxaudit("shadows", "train", *query, *recipe, "--out", "trained")
    assert done.code == 0, done.err
    bank = load_bank("trained")
    assert len(bank.finished()) == 8
    refuse_unless_coins(np.array(bank.membership))
    assert jaxaudit("shadows", "plan", *query, "--out", "planned").code == 0
    np.testing.assert_array_equal(load_bank("planned").membership, bank.membership)
    assert jaxaudit("shadows", "show", "trained").code == 0


# What is refused


def test_a_deal_of_fixed_sizes_is_refused(folder: Path):
    with pytest.raises(InputError, match=r"on 200 of 400 records.*--coins"):
        audit_records(load_bank("fixed"), attacks=[BASE()], delta=1e-5)
    pytest.importorskip("jax_privacy.auditing", reason="the extra dp is not installed")
    assert "--coins" in refused("--shadows", "fixed")


def test_a_missing_extra_is_named_before_anything_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax_privacy.auditing", None)
    assert "jaxaudit[dp]" in refused("--shadows", "coins")


def test_delta_needs_a_bank(folder: Path):
    assert "--delta" in refused()


def test_coins_and_groups_are_refused_together(folder: Path):
    for place, name in enumerate(("who.npy", "others.npy")):
        np.save(name, place * N + np.arange(N) // 2)
    words = ("--groups", "who.npy", "--holdout-groups", "others.npy", "--coins")
    done = jaxaudit("shadows", "plan", *SETS, *words, "--models", "8", "--out", "new")
    assert (done.code, done.out) == (2, "")
    assert "--coins" in done.err
    assert not Path("new").exists()

"""`jaxaudit shadows train`: several recipes, early stopping, and a learner of one's own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import CLASSES, Done, jaxaudit, own_modules, refused
from support.references import softmax
from test_cli_shadows_train import BY_BANK, HELD, IN_KS, TARGET, TRAINED, N, good, same, train, write_inputs

from jaxaudit.data.bank.bank import load_bank

OWN = """
from dataclasses import dataclass
import jax
import jax.numpy as jnp
import optax
from jaxaudit.learners import network
from jaxaudit.models import MLP

@dataclass(frozen=True)
class Centroid:
    classes: int = 3
    def fit(self, key, inputs, labels, weights):
        member = weights[:, None] * jax.nn.one_hot(labels, self.classes)
        return member.T @ inputs / jnp.maximum(member.sum(axis=0), 1)[:, None]
    def log_probs(self, params, inputs):
        return jax.nn.log_softmax(-jnp.sum((inputs[:, None] - params) ** 2, axis=2))

@dataclass(frozen=True)
class Listed(Centroid):
    sizes: list = None

@dataclass(frozen=True)
class Host(Centroid):
    def fit(self, key, inputs, labels, weights):
        return inputs[labels == 1].mean(axis=0)

learner, four, listed, host, three = Centroid(), Centroid(4), Listed(sizes=[1]), Host(), 3
stepped = network(MLP, (12,), 3, optimizer=optax.adam(1e-2), epochs=5, batch_size=16)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Three sets, a target's outputs, and a file of one's own, which is forgotten afterwards."""
    with own_modules(tmp_path):
        write_inputs(tmp_path)
        Path("mine.py").write_text(OWN)
        yield tmp_path


def learning(learner: str, *words: str, models: int = 4, out: str = "own") -> tuple[str, ...]:
    dealt = ("shadows", "train", *HELD, "--models", f"{models}", "--seed", "5")
    return (*dealt, "--learner", learner, "--out", out, *words)


def learned(learner: str, *words: str, models: int = 4) -> Done:
    return jaxaudit(*learning(learner, *words, models=models))


def outputs(bank: str) -> np.ndarray:
    return np.stack([np.load(path) for path in sorted(Path(bank, "outputs").iterdir())])


def said(bank: str) -> dict[str, Any]:
    return json.loads(Path(bank, "bank.json").read_text())


@pytest.mark.outer
def test_recipes_are_repeatable_and_the_guess_keeps_its_numbers(folder: Path):
    """`--designs`, as before, is another name for the same; and so is a list."""
    short = [*HELD, *TRAINED[: TRAINED.index("--designs")], "--seed", "5", "--models", "6"]
    ways = {
        "one": ("--recipe", "narrower", "--recipe", "guess", "--recipe", "shorter"),
        "list": ("--recipe", "guess,shorter,narrower"),
        "guess": ("--recipe", "guess"),
        "old": ("--designs", "narrower,shorter"),
    }
    for out, words in ways.items():
        done = jaxaudit("shadows", "train", *short, *words, "--out", out)
        assert done.code == 0, done.err
        assert ("--designs" in done.err) == ("--recipe" in done.err) == (out == "old")
    assert said("one")["designs"] == ["guess", "shorter", "narrower"]
    assert jaxaudit(*said("one")["command"][1:], "--out", "again").code == 0
    for other in ("list", "old", "again"):
        assert np.array_equal(outputs("one"), outputs(other))
    designs = np.load("one/designs.npy")
    assert designs.tolist() == [0, 1, 2, 0, 1, 2]
    alone = outputs("guess")
    assert np.array_equal(outputs("one")[designs == 0], alone[designs == 0])
    assert not any(np.array_equal(outputs("one")[model], alone[model]) for model in np.flatnonzero(designs))


def test_options_of_recipes_that_cannot_be_are_refused(folder: Path):
    for words, said in (
        (("--recipe", "augmented"), "augmented"),
        (("--recipe", "narow"), "narow"),
        (("--validation", "0.2"), "--patience"),
        (("--patience", "2", "--validation", "1"), "--validation"),
    ):
        refused(("shadows", "train", *TRAINED, *HELD, *words, "--models", "20", "--out", "bank"), (said,))
    for command in ("pdtp", "attack", "unlearn"):
        assert jaxaudit(command, "--patience", "2").code == 2


@pytest.mark.outer
def test_a_bank_of_models_that_stop_early_gives_the_numbers_of_ks(folder: Path):
    stopping = ("--epochs", "40", "--patience", "3", "--validation", "0.25")
    assert train(*HELD, *stopping).code == 0
    assert "patience 3" in said("bank")["recipe"]
    assert train(*HELD, "--epochs", "40", out="to the end").code == 0
    assert not np.array_equal(outputs("bank"), outputs("to the end"))
    trained = good(*HELD, *TARGET, *TRAINED, *stopping, *IN_KS, "--holdout-shadow-models", "20", "--out", "run")
    for bank in ("bank", "run"):
        same(good("--shadows", bank, *TARGET, *BY_BANK), trained)


def test_ones_own_learner_trains_the_models(folder: Path):
    """Against its formula in NumPy."""
    done = learned("mine.py:learner")
    assert done.code == 0, done.err
    sets = [np.load(f"{name}.npz") for name in "qhc"]
    inputs, labels = (np.concatenate([each[name] for each in sets]) for name in sets[0].files)
    for row, logits in zip(np.load("own/membership.npy"), outputs("own"), strict=True):
        means = np.stack([inputs[row & (labels == each)].mean(axis=0) for each in range(CLASSES)])
        expected = softmax(-((inputs[:, None] - means) ** 2).sum(axis=2).astype(np.float64))
        np.testing.assert_allclose(softmax(logits.astype(np.float64)), expected, atol=1e-4)
    digest = said("own")["recipe"].partition("source of learner ")[2]
    assert digest.startswith("blake2b:")
    before = outputs("own")
    assert learned("mine.py:learner", models=7).code == 0
    assert np.array_equal(outputs("own")[:4], before)
    again = jaxaudit(*said("own")["command"][1:], "--out", "again")
    assert again.code == 0, again.err
    assert np.array_equal(outputs("again"), outputs("own"))
    Path("mine.py").write_text(OWN + "\n")
    other = learned("mine.py:learner", models=9)
    assert (other.code, "recipe" in other.err, len(load_bank("own"))) == (2, True, 7)


@pytest.mark.outer
def test_a_learner_with_steps_is_measured_and_trained(folder: Path):
    planned = learned("mine:stepped", "--dry-run")
    # Half of 100 records and two thirds of 50, 16 a step, 5 epochs.
    assert (planned.code, f"{5 * -(-(N + 33) // 16)} steps of 16" in planned.out) == (0, True), planned.out
    assert learned("mine:stepped", "--models-per-batch", "2").code == 0
    assert np.isfinite(outputs("own")).all()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("mine.py:Centroid",), ("mine.py:Centroid", "class")),
        (("mine.py:three",), ("mine.py:three", "int")),
        (("mine.py:gone",), ("mine.py:gone", "'gone'")),
        (("mine.py",), ("mine.py:learner",)),
        (("mine",), ("--learner mine", "package.module:learner")),
        (("mine.py:four",), ("(8, 4)", "(8, 3)")),
        (("mine.py:listed",), ("hashed",)),
        (("mine.py:host",), ("traced", "(12,)")),
        (("mine.py:learner", "--epochs", "3"), ("--epochs", "--learner")),
        (("mine.py:learner", "--hidden", "3", "--patience", "2"), ("--hidden", "--patience")),
        (("mine.py:learner", "--recipe", "wider"), ("--recipe", "--learner")),
    ],
)
def test_learners_that_are_refused(folder: Path, words: tuple[str, ...], named: tuple[str, ...]):
    refused(learning(*words), named)

"""`jaxaudit efficacy` from its words to what it prints, writes and refuses."""

import csv
import json
import os
import pickle
import shutil
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from flax import serialization
from support.cli_runs import jaxaudit, own_modules, refused

from jaxaudit.data import safetensors_bytes
from jaxaudit.models import MLP, name_weights, pure_module
from jaxaudit.report import schema_of

MINE = """
from flax import nnx
class Net(nnx.Module):
    def __init__(self, input_shape, classes, *, rngs):
        self.first, self.second = nnx.Linear(input_shape[0], 6, rngs=rngs), nnx.Linear(6, classes, rngs=rngs)
        self.norm, self.drop = nnx.BatchNorm(6, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
    def __call__(self, inputs):
        return self.second(self.drop(self.norm(nnx.tanh(self.first(inputs)))))
"""
OURS = ("--model", "mlp", "--recipe", "hidden=6")
USUAL = (*OURS, "--params", "a.safetensors", "--data", "forget.npz")
RECORDS, CLASSES = 12, 4


def inputs() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(RECORDS, 5)).astype(np.float32)


LABELS = np.arange(RECORDS) % CLASSES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """`forget.npz`, and two sets of weights of an MLP 5-6-4; modules are forgotten afterwards."""
    with own_modules(tmp_path):
        sys.path.insert(0, str(tmp_path))
        np.savez("forget.npz", x=inputs(), y=LABELS)
        for seed, name in enumerate("ab"):
            Path(f"{name}.safetensors").write_bytes(safetensors_bytes(weights(seed)))
        Path("mine.py").write_text(MINE)
        yield tmp_path


@cache
def weights(seed: int) -> dict[str, np.ndarray]:
    return name_weights(*pure_module(partial(MLP, hidden=(6,)), (5,), CLASSES).init(jax.random.key(seed)))


def informations(seed: int) -> np.ndarray:
    """Each record's squared gradient norm, the slow way."""
    params = {name: jnp.asarray(values) for name, values in weights(seed).items()}

    def log_prob(params, record, label):
        hidden = jax.nn.relu(record @ params["layers/0/kernel"] + params["layers/0/bias"])
        return jax.nn.log_softmax(hidden @ params["layers/1/kernel"] + params["layers/1/bias"])[label]

    gradients = jax.vmap(jax.grad(log_prob), in_axes=(None, 0, 0))(params, jnp.asarray(inputs()), jnp.asarray(LABELS))
    leaves = map(np.asarray, gradients.values())
    return np.sum([np.square(leaf).reshape(RECORDS, -1).sum(axis=1) for leaf in leaves], axis=0)


def test_the_numbers_are_those_of_one_gradient_a_record():
    """Wherever the weights are; all of them are named by what they hold."""
    Path("folder").mkdir()
    shutil.copy("a.safetensors", "folder/model.safetensors")
    seeds = {"a.safetensors": 0, "other": 1, "saved": 0}
    references = ("--reference", "other=b.safetensors", "--reference", "saved=folder")
    done = jaxaudit("efficacy", *USUAL, *references, "--json")
    jsonschema.validate(done.result, schema_of("efficacy"))
    assert done.err == ""
    assert [model["name"] for model in done.result["models"]] == list(seeds)
    for model, seed in zip(done.result["models"], seeds.values(), strict=True):
        slow = informations(seed)
        assert model["information"] == pytest.approx(slow.mean(), rel=1e-4)
        assert model["efficacy"] == pytest.approx(1 / slow.mean(), rel=1e-4)
        assert model["efficacy"] <= model["bound"]
        assert sum(layer["information"] for layer in model["layers"].values()) == pytest.approx(slow.mean(), rel=1e-4)
        shown = [record["information"][model["name"]] for record in done.result["records"]]
        np.testing.assert_allclose(shown, slow, rtol=1e-3)
    assert [*done.result["models"][0]["layers"]] == ["layers/0", "layers/1"]
    assert set(done.result["paths"]) == set(weights(0))
    assert [record["class"] for record in done.result["records"]] == [str(label) for label in LABELS]
    hashes, own = done.result["provenance"]["reference_hashes"], done.result["provenance"]["weights_hash"]
    assert list(hashes) == ["other", "saved"]
    assert hashes["saved"] == own != hashes["other"]


def test_untrained_weights_follow_from_the_seed_and_make_no_verdict():
    """Weights of key 1 are those that `b.safetensors` holds."""
    words = ("efficacy", *USUAL, "--reference", "untrained", "--reference", "b=b.safetensors", "--json", "--seed")
    first, other = (jaxaudit(*words, seed).result for seed in ("1", "2"))
    assert first["models"][0] == other["models"][0]
    assert first["models"][1]["information"] != other["models"][1]["information"]
    assert first["models"][2]["information"] == pytest.approx(first["models"][1]["information"], rel=1e-5)
    assert first["finding"]["verdict"] == "no verdict"
    assert not any("Compare with the same network untrained" in said for said in first["finding"]["would_change"])
    assert any(said.startswith("untrained: ") for said in first["finding"]["caveats"])


def test_ones_own_nnx_module_with_dropout_and_batch_normalisation():
    import mine  # pyright: ignore[reportMissingImports]

    Path("own.safetensors").write_bytes(
        safetensors_bytes(name_weights(*pure_module(mine.Net, (5,), CLASSES).init(jax.random.key(4))))
    )
    words = ("--model", "mine:Net", "--params", "own.safetensors", "--data", "forget.npz", "--out", "run")
    done = jaxaudit("efficacy", *words, "--json")
    jsonschema.validate(done.result, schema_of("efficacy"))
    assert any("evaluation mode" in said for said in done.result["finding"]["caveats"])
    assert sorted(os.listdir("run")) == ["records.csv", "result.json", "table.txt"]
    assert json.loads(Path("run/result.json").read_text()) == done.result
    with open("run/records.csv") as file:
        rows = [(row["class"], float(row["information of own.safetensors"])) for row in csv.DictReader(file)]
    assert rows == [(each["class"], each["information"]["own.safetensors"]) for each in done.result["records"]]
    assert len(rows) == RECORDS
    again = jaxaudit(*done.result["provenance"]["command"][1:], "--json")
    assert again.result["records"] == done.result["records"]


def test_records_of_one_class_keep_their_label():
    """A file of class 1 alone must not make it class 0; what names, and numbers not from 0, are taken for is said."""
    np.savez("1.npz", x=inputs()[LABELS == 1], y=LABELS[LABELS == 1])
    np.savez("named.npz", x=inputs(), y=np.array(["bee", "ant", "cat", "dog"])[LABELS])
    np.savez("counted.npz", x=inputs(), y=LABELS + 1)
    result = jaxaudit("efficacy", *USUAL, "--data", "1.npz", "--classes", "4", "--json").result
    assert result["models"][0]["information"] == pytest.approx(informations(0)[LABELS == 1].mean(), rel=1e-4)
    assert {record["class"] for record in result["records"]} == {"1"}
    refused(("efficacy", *USUAL, "--data", "1.npz"), ("layers/1/bias", "(4,)", "(2,)"))
    for name, said in (("named", "ant, bee, cat, dog"), ("counted", "1, 2, 3, 4")):
        result = jaxaudit("efficacy", *USUAL, "--data", f"{name}.npz", "--classes", "4", "--json").result
        assert any(said in caveat for caveat in result["finding"]["caveats"])


def write_bad() -> None:
    """Weights and records that cannot be used."""
    names = ("layers/0/bias", "layers/1/bias", "layers/0/kernel")
    bias, _, kernel = (weights(0)[name] for name in names)
    whole = dict(weights(0))
    broken = {"nan": {**whole, names[0]: bias * np.nan}, "shape": {**whole, names[2]: kernel[:4]}}
    broken["missing"] = {name: values for name, values in whole.items() if name != names[1]}
    for name, values in broken.items():
        Path(f"{name}.safetensors").write_bytes(safetensors_bytes(values))
    Path("other.safetensors").write_bytes(serialization.to_bytes(whole))
    Path("evil.pkl").write_bytes(pickle.dumps(1))
    np.savez("text.npz", x=inputs(), y=np.array(["cat", "dog"])[LABELS % 2])
    np.savez("empty.npz", x=inputs()[:0], y=LABELS[:0])


WRONG: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("--params", "a.safetensors"), ("--params", "--model")),
    ((*OURS, "--params", "a.safetensors"), ("--params", "--data")),
    ((*USUAL, "--params", "gone.safetensors"), ("--params gone.safetensors",)),
    (("--model", "gone/", "--data", "forget.npz"), ("--model gone/", "no such folder")),
    ((*USUAL, "--params", "nan.safetensors"), ("6 of the 6", "layers/0/bias", "NaN")),
    ((*USUAL, "--params", "missing.safetensors"), ("missing.safetensors", "mlp", "layers/1/bias")),
    ((*USUAL, "--params", "shape.safetensors"), ("layers/0/kernel", "(4, 6)", "(5, 6)")),
    ((*USUAL, "--params", "other.safetensors"), ("other.safetensors", "safetensors")),
    ((*USUAL, "--params", "evil.pkl"), (".pkl", "pickle")),
    ((*USUAL, "--classes", "3"), ("forget.npz", "record 3", "label 3", "3 outputs")),
    ((*USUAL, "--reference", "a"), ("--reference a", "NAME=PATH", "untrained")),
    ((*USUAL, "--reference", "a.safetensors=b.safetensors"), ("'a.safetensors'",)),
    ((*USUAL, "--model", "mine:Nothing"), ("--model mine:Nothing", "'Nothing'")),
    ((*USUAL, "--data", "text.npz", "--classes", "4"), ("text.npz", "2", "--classes", "4")),
    ((*USUAL, "--data", "empty.npz"), ("empty.npz", "label")),
    ((*USUAL, "--images", "big"), ("--images big", "28x28")),
)


def test_bad_input_is_one_line_and_writes_nothing():
    write_bad()
    for words, said in WRONG:
        refused(("efficacy", *words, "--out", "run"), said)

"""What models leave: outputs and weights; groups of records; challenges; and names that stand for a set."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from support.language_models import write_lora
from support.outputs_files import NAMES, P, table, write_outputs
from support.outputs_files import csv as csv_text

from fuzz.cases import Reader, only
from fuzz.odd import OWN_CODE, SECRET
from jaxaudit import Role, Sets, load_outputs, read_weights
from jaxaudit.data import (
    Key,
    answers_of,
    key_as_json,
    load,
    load_answers,
    load_groups,
    load_table,
    number_sets,
    read_key,
    safetensors_bytes,
)
from jaxaudit.models import read_lora

OUTPUTS = {
    "npy": P.astype(np.float32),
    "npz": {"probabilities": P, "other": np.arange(3)},
    "csv": csv_text(P, "id,ant,bee,cat,dog", 6, index=lambda row: row),
    "parquet": table(P.astype(np.float32)),
}
WEIGHTS = {
    name: np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for name, shape in (("0/kernel", (4, 3)), ("0/bias", (3,)), ("1/kernel", (3, 2)), ("1/bias", (2,)))
}


def read_outputs(folder: Path, choose: random.Random) -> object:
    """As the outputs of 20 records in four classes, named or counted."""
    kind: Any = choose.choice(("auto", "auto", "probabilities", "logits"))
    return load_outputs(only(folder, "out"), choose.choice((NAMES, 4)), 20, kind)


def groups(folder: Path) -> None:
    values = np.array([f"{SECRET} {row // 4}" for row in range(20)])
    np.savez(folder / "g.npz", x=np.zeros((20, 2)), y=np.arange(20) % 2, who=values)
    np.save(folder / "g.npy", values)


def read_groups(folder: Path, choose: random.Random) -> object:
    key, data = choose.choice((("who", str(folder / "g.npz")), (str(folder / "g.npy"), "set")))
    found = load_groups(key, data, 20, "set")
    return number_sets(Sets(query=found[:10], holdout=found[12:]))


def blind(folder: Path) -> None:
    """The key of a challenge, and outputs on it that carry the names of its records."""
    key = Key(salt="ab" * 32, seed=7, groups=False, files={}, rows={Role.QUERY: [4, 0, 2], Role.HOLDOUT: [1, 3, 5]})
    (folder / "key.json").write_bytes(key_as_json(key))
    values = np.random.default_rng(1).random((6, 1)) * [1, -1] + [0, 1]
    np.savez(folder / "outputs.npz", record=np.array(key.names), probabilities=values)
    rows = [f"{name},{first},{second}" for name, (first, second) in zip(key.names, values, strict=True)]
    (folder / "outputs.csv").write_text("\n".join(("record,a,b", *rows, "")))


def answered(folder: Path, choose: random.Random) -> object:
    key = read_key(folder / "key.json")
    answers = load_answers(folder / choose.choice(("outputs.npz", "outputs.csv")), key, 2)
    return [answers_of(answers, key, role).probabilities for role in key.rows]


def one_file(folder: Path) -> None:
    (folder / "w.safetensors").write_bytes(safetensors_bytes(WEIGHTS))


def hub(folder: Path) -> None:
    """What `save_pretrained` leaves of weights in two files; and code of its own."""
    place = folder / "hub"
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"model_type": "bert", "id2label": {"0": "ant", "1": "bee"}}))
    (place / "modeling_own.py").write_text(OWN_CODE)
    placed = {name: f"model-{at % 2 + 1:05}-of-00002.safetensors" for at, name in enumerate(WEIGHTS)}
    for file in {*placed.values()}:
        part = {name: values for name, values in WEIGHTS.items() if placed[name] == file}
        (place / file).write_bytes(safetensors_bytes(part))
    index = {"metadata": {"total_size": sum(each.nbytes for each in WEIGHTS.values())}, "weight_map": placed}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))


def read_any_weights(folder: Path, choose: random.Random) -> object:
    return read_weights(only(folder, "w", "hub"))


def read_adapter(folder: Path, choose: random.Random) -> object:
    return read_lora(only(folder, "adapter")).matrices


def typed(name: str, text: str, read: Callable[[str], object]) -> Reader:
    """Of what a person types."""

    def read_typed(folder: Path, choose: random.Random) -> object:
        return read((folder / "it.name").read_bytes().decode("utf-8", "surrogatepass"))

    return Reader(f"name-{name}", lambda folder: (folder / "it.name").write_text(text), read_typed)


def outputs(kind: str, content: Any) -> Reader:
    return Reader(f"outputs-{kind}", lambda folder: write_outputs(folder, content), read_outputs)


READERS = [
    *(outputs(kind, content) for kind, content in OUTPUTS.items()),
    Reader("groups", groups, read_groups),
    Reader("challenge", blind, answered),
    Reader("safetensors", one_file, read_any_weights),
    Reader("hub", hub, read_any_weights),
    Reader("adapter", lambda folder: write_lora(folder / "adapter", {"layer": (4, 4)}), read_adapter),
    typed("set", "digits@train[:100]", load),
    typed("table", "wine@train[5:50]", load_table),
]

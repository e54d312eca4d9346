"""Readers of what models leave: outputs and weights; and of names that stand for a set."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from support.language_models import write_lora
from support.outputs_files import NAMES, P, table, write_outputs
from support.outputs_files import csv as csv_text

from fuzz import names
from fuzz.language import OWN_CODE
from fuzz.readers import SECRET, Reader, only
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


def outputs(content: Any) -> Callable[[Path], object]:
    return lambda folder: write_outputs(folder, content)


def read_outputs(folder: Path, choose: random.Random) -> object:
    """As the outputs of 20 records in four classes, named or counted."""
    kind: Any = choose.choice(("auto", "auto", "probabilities", "logits"))
    return load_outputs(only(folder, "out"), choose.choice((NAMES, 4)), 20, kind)


def groups(name: str) -> Callable[[Path], object]:
    values = np.array([f"{SECRET} {row // 4}" for row in range(20)])

    def make(folder: Path) -> None:
        if name.endswith(".npz"):
            np.savez(folder / name, x=np.zeros((20, 2)), y=np.arange(20) % 2, who=values)
        elif name.endswith(".npy"):
            np.save(folder / name, values)
        else:
            (folder / name).write_text(
                "\n".join(["id,group", *(f"{row},{each}" for row, each in enumerate(values)), ""])
            )

    return make


def read_groups(folder: Path, choose: random.Random) -> object:
    path = str(only(folder, "g"))
    found = load_groups("who", path, 20, "set") if path.endswith(".npz") else load_groups(path, "set", 20, "set")
    return number_sets(Sets(query=found[:10], holdout=found[12:]))


def adapter(folder: Path) -> None:
    write_lora(folder / "adapter", {"layer": (4, 4)})


def read_adapter(folder: Path, choose: random.Random) -> object:
    return read_lora(only(folder, "adapter")).matrices


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


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"layers/0/kernel": (4, 3), "layers/0/bias": (3,), "layers/1/kernel": (3, 2), "layers/1/bias": (2,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def safetensors(folder: Path) -> None:
    (folder / "w.safetensors").write_bytes(safetensors_bytes(weights()))


def hub(folder: Path) -> None:
    """What `save_pretrained` leaves of weights in two files; and code of its own."""
    place, arrays = folder / "hub", weights()
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"model_type": "bert", "id2label": {"0": "ant", "1": "bee"}}))
    (place / "modeling_own.py").write_text(OWN_CODE)
    placed = {name: f"model-{at % 2 + 1:05}-of-00002.safetensors" for at, name in enumerate(arrays)}
    for file in {*placed.values()}:
        part = {name: values for name, values in arrays.items() if placed[name] == file}
        (place / file).write_bytes(safetensors_bytes(part))
    index = {"metadata": {"total_size": sum(each.nbytes for each in arrays.values())}, "weight_map": placed}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))


def read_any_weights(folder: Path, choose: random.Random) -> object:
    return read_weights(only(folder, "w", "tree", "hub"))


def name(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / f"it{names.SUFFIX}").write_text(text)


def read_name(of: Callable[..., object]) -> Callable[[Path, random.Random], object]:
    def read(folder: Path, choose: random.Random) -> object:
        return of(names.text_of(only(folder).read_bytes()))

    return read


READERS = [
    Reader("outputs-npy", outputs(P.astype(np.float32)), read_outputs),
    Reader("outputs-npz", outputs({"probabilities": P, "other": np.arange(3)}), read_outputs, 3),
    Reader("outputs-csv", outputs(csv_text(P, "id,ant,bee,cat,dog", 6, index=lambda row: row)), read_outputs, 4),
    Reader("outputs-parquet", outputs(table(P.astype(np.float32))), read_outputs, 5),
    *(Reader(f"groups-{name}", groups(f"g.{name}"), read_groups) for name in ("npy", "npz")),
    Reader("challenge", blind, answered),
    Reader("safetensors", safetensors, read_any_weights, 4),
    Reader("hub", hub, read_any_weights, 4),
    Reader("adapter", adapter, read_adapter, 3),
    Reader("name-set", name("digits@train[:100]"), read_name(load), 3),
    Reader("name-table", name("wine@train[5:50]"), read_name(load_table), 2),
]

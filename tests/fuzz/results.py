"""Readers of what models leave: outputs and weights; and of names that stand for a set."""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from support.outputs_files import NAMES, P, table, write_outputs
from support.outputs_files import csv as csv_text

from fuzz import names, trees
from fuzz.readers import SECRET, Reader, only
from jaxaudit.data import load, load_table
from jaxaudit.data.groups import as_groups, load_groups
from jaxaudit.data.outputs.outputs import load_outputs
from jaxaudit.data.weights import read_weights, safetensors_bytes


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
    return as_groups(found[:10], found[12:])


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"layers/0/kernel": (4, 3), "layers/0/bias": (3,), "layers/1/kernel": (3, 2), "layers/1/bias": (2,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def tree() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, values in weights().items():
        _, layer, kind = name.split("/")
        found.setdefault("layers", {}).setdefault(layer, {})[kind] = values
    return found


def safetensors(folder: Path) -> None:
    (folder / "w.safetensors").write_bytes(safetensors_bytes(weights()))


def flax(folder: Path) -> None:
    """Weights as Flax serialises them: in one piece, in several, single numbers and none."""

    def extension(values: np.ndarray) -> msgpack.ExtType:
        return msgpack.ExtType(1, trees.packed((values.shape, values.dtype.name, values.tobytes())))

    whole = {
        name: {kind: {k: extension(v) for k, v in leaf.items()} for kind, leaf in layer.items()}
        for name, layer in tree().items()
    }
    pieces = {str(place): extension(np.ones(2, np.float32)) for place in range(2)}
    split = {"__msgpack_chunked_array__": True, "shape": {"0": 2, "1": 2}, "chunks": pieces}
    scalar = msgpack.ExtType(3, trees.packed(((), "float64", np.float64(2).tobytes())))
    content = {**whole, "big": split, "step": 3, "none": None, "scale": scalar, "list": [1.5, 2]}
    (folder / "w.msgpack").write_bytes(trees.packed(content))


def orbax(**options: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import orbax.checkpoint as ocp

        handler = ocp.PyTreeCheckpointHandler(**options)
        ocp.Checkpointer(handler).save(folder / "tree", {**tree(), "step": 3, "name": "mine"})

    return make


def read_any_weights(folder: Path, choose: random.Random) -> object:
    return read_weights(only(folder, "w", "tree", "runs"))


@cache
def network() -> Any:
    from jaxaudit.models import MLP, pure_module

    return pure_module(lambda shape, classes, rngs: MLP(shape, classes, hidden=(3,), rngs=rngs), (4,), 2)


def read_and_fit(folder: Path, choose: random.Random) -> object:
    from jaxaudit.models.restore import load_weights

    return load_weights(network(), read_weights(only(folder, "w")), "w", "the network")


def name(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / f"it{names.SUFFIX}").write_text(text)


def read_name(of: Callable[..., object]) -> Callable[[Path, random.Random], object]:
    def read(folder: Path, choose: random.Random) -> object:
        return of(names.text_of(only(folder).read_bytes()), data_dir=folder)

    return read


READERS = [
    Reader("outputs-npy", outputs(P.astype(np.float32)), read_outputs),
    Reader("outputs-npz", outputs({"probabilities": P, "other": np.arange(3)}), read_outputs, 3),
    Reader("outputs-csv", outputs(csv_text(P, "id,ant,bee,cat,dog", 6, index=lambda row: row)), read_outputs, 4),
    Reader("outputs-parquet", outputs(table(P.astype(np.float32))), read_outputs, 5),
    *(Reader(f"groups-{name}", groups(f"g.{name}"), read_groups) for name in ("npy", "npz", "csv")),
    Reader("safetensors", safetensors, read_any_weights, 4),
    Reader("safetensors-fit", safetensors, read_and_fit, 1),
    Reader("msgpack", flax, read_any_weights, 6),
    Reader("orbax-zarr", orbax(use_ocdbt=False), read_any_weights, 2, threads=True),
    Reader("orbax-ocdbt", orbax(), read_any_weights, 2, threads=True),
    Reader("name-set", name("digits@train[:10%]"), read_name(load), 3),
    Reader("name-table", name("wine@train[5:50]"), read_name(load_table), 2),
]

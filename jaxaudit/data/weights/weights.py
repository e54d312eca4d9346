"""Reads and writes the weights of a network as named arrays, independently of any module.

Pickles are never loaded, and sizes are checked before memory is allocated.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import ml_dtypes
import msgspec
import numpy as np

from jaxaudit.data.formats.parsing import PICKLES, parsing
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import entries, exists, expanded, file_size, open_data, read_small
from jaxaudit.data.weights.trees import looks_like_msgpack, read_msgpack, read_orbax
from jaxaudit.errors import InputError

Weights = dict[str, np.ndarray]
"""Arrays by name, the path of each in its tree joined by `/`."""

METADATA = {"jaxaudit_weights": "1"}
"""The metadata of a file written here: the version of its names. The order of several entries would be undefined."""

KINDS = (
    "a .safetensors file or a folder of save_pretrained, a Flax .msgpack file, an Orbax directory, or a .keras or "
    ".weights.h5 file of Keras"
)
PYTORCH = ("running_mean", "running_var", "num_batches_tracked")
"""Suffixes of names that only PyTorch uses."""
FROM_PYTORCH = (
    "Flax calls .weight .kernel (.scale in a normalisation, .embedding in an embedding), running_mean mean and "
    "running_var var, and has no num_batches_tracked; kernels of Linear are transposed there (in, out), those of "
    "convolutions are HWIO instead of OIHW, and images are flattened as HWC instead of CHW. Rename and transpose the "
    "arrays and save them as .safetensors; or name the PyTorch module itself (`model`); or, for jaxaudit ks, hand over "
    "the model's outputs instead: it needs no weights"
)
TO_SAFETENSORS = (
    'Of a PyTorch state, where you trust it: python -c "import torch, safetensors.torch as s; '
    "s.save_file(torch.load('FILE', weights_only=True), 'FILE.safetensors')\"; then name the PyTorch module (`model`)"
)
_PICKLED = (
    ": may be a pickle or a PyTorch file, which run code when they are loaded, so it is not; save the weights as "
    f".safetensors. {TO_SAFETENSORS}."
)
MSGPACK = {".msgpack", ".flax"}
SAFETENSORS, WHOLE, INDEX = ".safetensors", "model.safetensors", ".safetensors.index.json"
LONGEST_INDEX = 64 * 2**20
_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BOOL": np.dtype(bool),
    **{f"{kind}{bits}": np.dtype(f"{kind.lower()}{bits // 8}") for kind in "IU" for bits in (8, 16, 32, 64)},
}


def read_weights(path: str | Path, max_bytes: int = MAX_BYTES) -> Weights:
    """The arrays in a file or folder of weights, by name.

    | path | holds |
    |---|---|
    | `.safetensors` | arrays by name |
    | `.msgpack`, `.flax` | what `flax.serialization.to_bytes` made of a tree of arrays |
    | folder | `model.safetensors`, or the files that its index names, as `save_pretrained` writes |
    | any other folder | what an Orbax checkpointer saved, or a step of an Orbax checkpoint manager |
    | any other file | one of the first two, by its content |

    Names are as they were saved, a tree's paths joined by `/`; `jaxaudit.models.restore` fits them to a module.

    Args:
        max_bytes: refuse to read more than this.

    Raises:
        InputError: when there is no such path, it is damaged, is not what its suffix says, could be a pickle, holds
            no array, more than `max_bytes`, or a number that is NaN or infinite (with the array's name).
    """
    path = expanded(path)
    if not exists(path):
        raise InputError(f"{path}: there is no such file or folder; weights are {KINDS}.")
    if path.is_dir():
        saved = _saved_weights(path)
        return _finite(read_orbax(path, max_bytes), path) if saved is None else read_weights(saved, max_bytes)
    if path.name.endswith(INDEX):
        return _finite(_read_sharded(path, max_bytes), path)
    if not path.is_file():
        raise InputError(f"{path}: is neither a file nor a folder; weights are {KINDS}.")
    return _finite(_read_file(path, max_bytes), path)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder that `save_pretrained` wrote."""
    saved = _saved_weights(folder)
    if saved is None:
        raise InputError(f"{folder}: has no weights; name a folder that save_pretrained wrote.")
    names = set(_placed(saved).values()) if saved.name.endswith(INDEX) else [saved.name]
    return [folder / name for name in sorted(names)]


def safetensors_bytes(weights: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of a safetensors file, which `read_weights` restores exactly.

    >>> safetensors_bytes({"layer/kernel": np.ones((2, 3), np.float32)})[8:47]
    b'{"__metadata__":{"jaxaudit_weights":"1"'
    """
    from safetensors.numpy import save

    # Copied in row-major order, which the format requires; `ascontiguousarray` would give a single number an axis.
    return save({name: np.array(values, order="C") for name, values in weights.items()}, METADATA)


def pytorch_names(names: Iterable[str]) -> list[str]:
    """The names that follow PyTorch's naming; empty if any name follows Flax's.

    >>> pytorch_names(["fc.weight", "fc.bias", "bn.num_batches_tracked"]), pytorch_names(["fc.kernel", "fc.bias"])
    (['fc.weight', 'bn.num_batches_tracked'], [])
    """
    last = {name: re.split(r"[./]", name)[-1] for name in names}
    if {"kernel", "scale", "embedding"} & set(last.values()):
        return []
    return [name for name, word in last.items() if word in (*PYTORCH, "weight")]


def _saved_weights(folder: Path) -> Path | None:
    """The file of weights, or their index, in a folder that `save_pretrained` wrote; None for any other folder."""
    whole, index = folder / WHOLE, folder / f"model{INDEX}"
    if exists(whole) or exists(index):
        return whole if exists(whole) else index
    if not exists(folder / "config.json"):
        return None
    pickled = [entry.name for entry in entries(folder) if entry.suffix == ".bin"]
    why = f", and {pickled[0]} may be a pickle, which is never loaded" if pickled else ""
    raise InputError(
        f"{folder}: has config.json, but neither {WHOLE} nor its index{why}; save the model by "
        "save_pretrained(folder), which writes safetensors."
    )


def _read_sharded(index: Path, max_bytes: int) -> Weights:
    placed = _placed(index)
    shards = sorted(set(placed.values()))
    missing = [name for name in shards if not exists(index.parent / name)]
    if missing:
        raise InputError(
            f"{index}: names {missing[0][:80]}, and there is no such file beside it; were all files copied?"
        )
    weights: Weights = {}
    for shard in shards:
        path = index.parent / shard
        arrays = _read_file(path, max_bytes - sum(array.nbytes for array in weights.values()))
        shard_names = {name for name, place in placed.items() if place == shard}
        if arrays.keys() != shard_names:
            name = sorted(arrays.keys() ^ shard_names)[0]
            raise InputError(
                f"{path}: does not hold the arrays that {index.name} says ({name[:80]}); is it another save?"
            )
        weights |= arrays
    return weights


class _Index(msgspec.Struct):
    weight_map: Annotated[dict[str, str], msgspec.Meta(min_length=1)]


def _placed(index: Path) -> dict[str, str]:
    with parsing(f"{index}: is not JSON with a weight_map from arrays to files", "was it written by save_pretrained?"):
        placed = msgspec.json.decode(read_small(index, LONGEST_INDEX), type=_Index).weight_map
    for name in placed.values():
        # A plain file name in the same folder, on any system.
        if Path(name).name != name or "\\" in name or not name.endswith(SAFETENSORS):
            raise InputError(f"{index}: names {name[:80]!r}, which is no .safetensors file beside it.")
    return placed


def _read_file(path: Path, max_bytes: int) -> Weights:
    suffix = path.suffix.lower()
    if suffix in PICKLES:
        raise InputError(f"{path}{_PICKLED}")
    with open_data(path) as file:
        size = file_size(file)
        refuse_larger(path, size, max_bytes, "save only the weights")
        with parsing(f"{path}: cannot be read", "is the disk damaged?"):
            data = file.read(size)
    if not data:
        raise InputError(f"{path}: is empty; was it written to its end?")
    content = _content(data)
    if content == "pickle":
        raise InputError(f"{path}{_PICKLED}")
    format_name = "safetensors" if suffix == SAFETENSORS else "msgpack" if suffix in MSGPACK else content
    if format_name is None:
        raise InputError(f"{path}: is neither safetensors nor Flax msgpack; weights are {KINDS}.")
    if content not in (None, format_name):
        raise InputError(f"{path}: does not match its suffix: its content is {content}; rename it if that is right.")
    return _read_safetensors(data, path) if format_name == "safetensors" else read_msgpack(data, str(path))


def _content(data: bytes) -> str | None:
    # Checked first, because the length of a header may equal the first two bytes of a pickle. Pickles are never loaded.
    if data[8:9] == b"{" and int.from_bytes(data[:8], "little") <= len(data) - 8:
        return "safetensors"
    if (data[0] == 0x80 and data[1:2] in (b"\2", b"\3", b"\4", b"\5")) or data[:2] == b"PK":
        return "pickle"
    return "msgpack" if looks_like_msgpack(data) else None


def _read_safetensors(data: bytes, path: Path) -> Weights:
    from safetensors import deserialize

    weights = {}
    with parsing(f"{path}: is not a complete safetensors file", "was it written completely?"):
        for name, stored in deserialize(data):
            dtype = _DTYPES.get(stored["dtype"])
            if dtype is None:
                raise InputError(f"{path}: {name} has numbers of type {stored['dtype']}; save them as float32.")
            values = np.frombuffer(stored["data"], dtype.newbyteorder("<")).reshape(stored["shape"])
            weights[name] = values.astype(dtype, copy=False)
    return weights


def _finite(weights: Weights, path: Path) -> Weights:
    if not weights:
        raise InputError(f"{path}: has no arrays; save the network's parameters.")
    for name, values in weights.items():
        inexact = values.dtype.kind in "fc" or values.dtype == ml_dtypes.bfloat16
        bad = int((~np.isfinite(values)).sum()) if inexact else 0
        if bad:
            raise InputError(
                f"{path}: {bad} of the {values.size} numbers of {name} are NaN or infinite; did training diverge?"
            )
    return weights

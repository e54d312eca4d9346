"""Reads and writes the weights of a network as named arrays, independently of any module.

They are safetensors. Pickles are never loaded, and sizes are checked before memory is allocated.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import ml_dtypes
import msgspec
import numpy as np

from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import exists, expanded, file_size, open_data, read_small
from jaxaudit.errors import InputError

Weights = dict[str, np.ndarray]
"""Arrays by name, such as the path of each in its tree, joined by `/`."""

METADATA = {"jaxaudit_weights": "1"}
"""The metadata of a file written here: the version of its names. The order of several entries would be undefined."""

KINDS = "a .safetensors file or a folder of save_pretrained"
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
    "Of a PyTorch state: safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW), then name the PyTorch "
    "module (`model`). Of a tree of Flax: safetensors.numpy.save_file(flax.traverse_util.flatten_dict(tree, sep='/'), "
    "NEW), with NumPy's arrays"
)
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
    | folder | `model.safetensors`, or the files that its index names, as `save_pretrained` writes |

    Names are as they were saved; `jaxaudit.models.restore` fits them to a module.
    """
    path = expanded(path)
    path = _saved_weights(path) if path.is_dir() else path
    return _finite((_read_sharded if path.name.endswith(INDEX) else _read_file)(path, max_bytes), path)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder that `save_pretrained` wrote."""
    saved = _saved_weights(folder)
    names = set(_placed(saved).values()) if saved.name.endswith(INDEX) else [saved.name]
    return [folder / name for name in sorted(names)]


def safetensors_bytes(weights: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of a safetensors file, which `read_weights` restores exactly."""
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


def _saved_weights(folder: Path) -> Path:
    """The file of weights, or their index, in a folder that `save_pretrained` wrote."""
    saved = next((path for path in (folder / WHOLE, folder / f"model{INDEX}") if exists(path)), None)
    if saved is None:
        raise InputError(
            f"{folder}: has no {WHOLE}, and no index of such files. Other files there may be pickles, which are never "
            f"loaded; save the model by save_pretrained(folder), which writes safetensors. {TO_SAFETENSORS}."
        )
    return saved


def _read_sharded(index: Path, max_bytes: int) -> Weights:
    placed = _placed(index)
    weights: Weights = {}
    for shard in sorted({*placed.values()}):
        arrays = _read_file(index.parent / shard, max_bytes - sum(array.nbytes for array in weights.values()))
        if arrays.keys() != {name for name, place in placed.items() if place == shard}:
            raise InputError(f"{index.parent / shard}: does not hold the arrays that {index.name} says; another save?")
        weights |= arrays
    return weights


class _Index(msgspec.Struct):
    # A plain file name in the same folder, on any system.
    weight_map: Annotated[
        dict[str, Annotated[str, msgspec.Meta(pattern=r"^[^/\\:]+\.safetensors\Z")]], msgspec.Meta(min_length=1)
    ]


def _placed(index: Path) -> dict[str, str]:
    with parsing(
        f"{index}: is not JSON with a weight_map from arrays to .safetensors files beside it",
        "was it written by save_pretrained?",
    ):
        return msgspec.json.decode(read_small(index, LONGEST_INDEX), type=_Index).weight_map


def _read_file(path: Path, max_bytes: int) -> Weights:
    if path.suffix.lower() != SAFETENSORS:
        raise InputError(
            f"{path}: weights are {KINDS}. Other files may be pickles, which run code when they are loaded, so they "
            f"are not. {TO_SAFETENSORS}."
        )
    with open_data(path) as file:
        size = file_size(file)
        refuse_larger(path, size, max_bytes, "save only the weights")
        with parsing(f"{path}: cannot be read", "is the disk damaged?"):
            data = file.read(size)
    from safetensors import deserialize

    weights: Weights = {}
    with parsing(f"{path}: is not a complete safetensors file of usual numbers", "save them as float32, whole."):
        for name, stored in deserialize(data):
            dtype = _DTYPES[stored["dtype"]]
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

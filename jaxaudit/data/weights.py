"""Reads and writes the weights of a network as named arrays, independently of any module.

Pickles are never loaded, and sizes are checked before memory is allocated. Trees of arrays as Flax (msgpack) and Orbax
save them are read without these two libraries: Orbax opens arrays before their size can be checked, and for a damaged
array it prints messages as long as the other arrays are being read; TensorStore gives shapes first.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import ml_dtypes
import msgpack
import msgspec
import numpy as np

from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import exists, expanded, file_size, open_data, read_small, regular_files
from jaxaudit.errors import InputError

Weights = dict[str, np.ndarray]
"""Arrays by name, the path of each in its tree joined by `/`."""

METADATA = {"jaxaudit_weights": "1"}
"""The metadata of a file written here: the version of its names. The order of several entries would be undefined."""

KINDS = "a .safetensors file or a folder of save_pretrained, a Flax .msgpack file, or a folder of Orbax with _METADATA"
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
MSGPACK = ".msgpack"
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
    | `.msgpack` | what `flax.serialization.to_bytes` made of a tree of arrays |
    | folder | `model.safetensors`, or the files that its index names, as `save_pretrained` writes |
    | folder with `_METADATA` | what an Orbax checkpointer saved; a checkpoint manager has it in STEP/default |

    Names are as they were saved, a tree's paths joined by `/`; `jaxaudit.models.restore` fits them to a module.

    Raises:
        InputError: the path does not exist, is damaged, is not what its suffix says, could be a pickle, holds no array,
            more than `max_bytes`, or a number that is NaN or infinite (with the array's name).
    """
    path = expanded(path)
    if (path / TREE).is_file():
        return _finite(read_orbax(path, max_bytes), path)
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
            f"{folder}: has no {WHOLE}, no index of such files, and no {TREE} of Orbax (name the folder that has it). "
            "Other files there may be pickles, which are never loaded; save the model by save_pretrained(folder), "
            "which writes safetensors."
        )
    return saved


def _read_sharded(index: Path, max_bytes: int) -> Weights:
    placed = _placed(index)
    shards = sorted(set(placed.values()))
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
    suffix = path.suffix.lower()
    if suffix not in (SAFETENSORS, MSGPACK):
        raise InputError(
            f"{path}: weights are {KINDS}. Other files may be pickles, which run code when they are loaded, so they "
            f"are not. {TO_SAFETENSORS}."
        )
    with open_data(path) as file:
        size = file_size(file)
        refuse_larger(path, size, max_bytes, "save only the weights")
        with parsing(f"{path}: cannot be read", "is the disk damaged?"):
            data = file.read(size)
    return _read_safetensors(data, path) if suffix == SAFETENSORS else read_msgpack(data, str(path))


def _read_safetensors(data: bytes, path: Path) -> Weights:
    from safetensors import deserialize

    weights = {}
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


MOST_VALUES = 1_000_000
"""The most keys and values outside arrays; a tree of weights has a few thousand."""
LONGEST_NAME, MOST_NAMES = 1_000, 2**24
"""The most characters of a path, and of all paths."""
MOST_AXES = 64
ARRAY, COMPLEX, SCALAR = 1, 2, 3
"""Flax's codes for types that msgpack does not have."""
CHUNKED = "__msgpack_chunked_array__"
_TREE_DTYPES = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in ("f2", "f4", "f8", ml_dtypes.bfloat16, "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16")
}
TREE = "_METADATA"
"""The file in which Orbax describes a tree."""
LARGEST_TREE = 2**24
MOST_CHUNKS = 100_000
_SPARE_BYTES = 2**20
_NO_ARRAYS = {"None", "Dict", "List", "Tuple", "NamedTuple", "string"}
_SEQUENCE = 1  # Orbax's code for a key that is a number


def read_msgpack(data: bytes, source: str) -> dict[str, np.ndarray]:
    """The arrays of the tree by their paths, joined by `/`; single numbers as arrays without axes, None left out."""
    left = MOST_VALUES

    def count(values: Any) -> Any:
        nonlocal left
        left -= len(values)
        if left < 0:
            raise ValueError(f"more than {MOST_VALUES:,} values outside arrays")
        return values

    with parsing(f"{source}: is not a tree of arrays as flax.serialization writes it", "was it written to its end?"):
        tree = msgpack.unpackb(
            data,
            ext_hook=_extension,
            object_pairs_hook=lambda pairs: dict(count(pairs)),
            list_hook=count,
            max_map_len=MOST_VALUES,
            max_array_len=MOST_VALUES,
        )
        return _flat(tree)


def _flat(tree: Any) -> dict[str, np.ndarray]:
    if not isinstance(tree, dict):
        raise ValueError("its root is not a map")
    leaves_by_name: dict[str, np.ndarray] = {}
    waiting: list[tuple[str, Any]] = [("", tree)]
    characters = 0
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, dict) and CHUNKED in node:
            node = _joined(node)
        if isinstance(node, dict | list):
            items = list(node.items() if isinstance(node, dict) else enumerate(node))
            # Checked before paths are built, since each child's path repeats its parent's.
            lengths = [len(name) + 1 + len(str(key)) for key, _ in items]
            characters += sum(lengths)
            if max(lengths, default=0) > LONGEST_NAME or characters > MOST_NAMES:
                raise ValueError("names that are too long for those of arrays")
            waiting += [(f"{name}/{key}" if name else str(key), value) for key, value in reversed(items)]
        elif isinstance(node, bool | int | float | complex | np.ndarray):
            leaves_by_name[name] = np.asarray(node)
        elif node is not None:
            raise TypeError("a value that is not a number")
    return leaves_by_name


def _extension(code: int, data: bytes) -> Any:
    if code == COMPLEX:
        real, imaginary = msgpack.unpackb(data, max_array_len=2, max_map_len=0)
        return complex(real, imaginary)
    if code not in (ARRAY, SCALAR):
        raise ValueError(f"a value of the unknown kind {code}")
    shape, name, values = msgpack.unpackb(data, raw=True, max_array_len=MOST_AXES, max_map_len=0)
    dtype = _TREE_DTYPES.get(name.decode("ascii", "replace"))
    if dtype is None:
        raise ValueError(f"an array of type {name[:20]!r}")
    return np.frombuffer(values, dtype).reshape(shape)


def _joined(node: dict[Any, Any]) -> np.ndarray:
    """An array that was too large for one msgpack value, which Flax splits into several."""
    shape, chunks = node.get("shape"), node.get("chunks")
    if not (isinstance(shape, dict) and isinstance(chunks, dict) and chunks):
        raise ValueError("an array in pieces without its shape")
    try:
        pieces = [np.asarray(chunks[str(index)]) for index in range(len(chunks))]
        return np.concatenate(pieces).reshape([shape[str(axis)] for axis in range(len(shape))])
    except KeyError as error:
        raise ValueError(f"an array in pieces without its piece {error}") from error


def read_orbax(path: Path, max_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of an Orbax checkpoint by their paths, joined by `/`; text is left out."""
    stored = sum(status.st_size for _, status in regular_files(path))
    with parsing(f"{path}: is not a whole Orbax checkpoint", "was it written to its end?"):
        paths, driver = _described(path)
        arrays = {name: _opened(path, inner, driver) for name, inner in paths.items()}
        claimed = max(stored, sum(array.dtype.numpy_dtype.itemsize * array.size for array in arrays.values()))
        refuse_larger(path, claimed, max_bytes, "save only the weights")
        return {name: np.asarray(array.read().result()) for name, array in arrays.items()}


def _described(tree: Path) -> tuple[dict[str, str], str]:
    """The path of each array by its name, in the tree's order, and the storage format."""
    described = json.loads(read_small(tree / TREE, LARGEST_TREE))
    ordered_names: list[tuple[list[tuple[int, int, str]], str, str]] = []
    for leaf in described["tree_metadata"].values():
        value = leaf["value_metadata"]
        if value.get("skip_deserialize") or value["value_type"] in _NO_ARRAYS:
            continue
        keys = [(int(key["key_type"]), str(key["key"])) for key in leaf["key_metadata"]]
        # In JAX's order of a tree: keys by name, positions in a sequence by number.
        order = [(kind, int(key) if kind == _SEQUENCE else 0, key) for kind, key in keys]
        ordered_names.append((order, "/".join(key for _, key in keys), ".".join(key for _, key in keys)))
    names = {name: path for _, name, path in sorted(ordered_names)}
    if len(set(names.values())) < len(ordered_names) or any(".." in Path(path).parts for path in names.values()):
        raise ValueError("names that occur twice, or point outside it")
    if any(len(name) > LONGEST_NAME for name in names):
        raise ValueError(f"names of more than {LONGEST_NAME} characters")
    return names, "zarr3" if described.get("use_zarr3") else "zarr"


def _opened(tree: Path, path: str, driver: str) -> Any:
    """An opened array; its storage format is checked so that reading takes little more memory than the array."""
    import tensorstore

    base = f"{tree.resolve()}/"
    if (tree / "manifest.ocdbt").is_file():
        store: dict[str, Any] = {"driver": "ocdbt", "base": f"file://{quote(base)}", "path": f"{path}/"}
    else:
        store = {"driver": "file", "path": f"{base}{path}/"}
    array: Any = tensorstore.open({"driver": driver, "kvstore": store}, read=True, open=True).result()
    itemsize = array.dtype.numpy_dtype.itemsize
    layout = array.chunk_layout
    for chunk in (layout.read_chunk.shape or (), layout.write_chunk.shape or ()):
        chunks = math.prod(-(-extent // max(1, part)) for extent, part in zip(array.shape, chunk, strict=True))
        if chunks > MOST_CHUNKS or itemsize * math.prod(chunk) > itemsize * array.size + _SPARE_BYTES:
            raise ValueError(f"chunks of shape {tuple(chunk)} for an array of shape {array.shape}")
    return array

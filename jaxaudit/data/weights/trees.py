"""Reads trees of arrays as Flax (msgpack) and Orbax save them, without these two libraries and within bounds.

Orbax opens arrays before their size can be checked, and for a damaged array it prints messages as long as the other
arrays are being read; TensorStore, its storage library, gives shapes first, then numbers.
"""

import json
import math
from pathlib import Path
from typing import Any
from urllib.parse import quote

import ml_dtypes
import msgpack
import numpy as np

from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.memory import refuse_larger
from jaxaudit.data.paths import entries, read_small, regular_files
from jaxaudit.errors import InputError

MOST_VALUES = 1_000_000
"""The most keys and values outside arrays; a tree of weights has a few thousand."""
LONGEST_NAME, MOST_NAMES = 1_000, 2**24
"""The most characters of a path, and of all paths."""
MOST_AXES = 64
ARRAY, COMPLEX, SCALAR = 1, 2, 3
"""Flax's codes for types that msgpack does not have."""
CHUNKED = "__msgpack_chunked_array__"
_DTYPES = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in ("f2", "f4", "f8", ml_dtypes.bfloat16, "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16")
}
TREE = "_METADATA"
"""The file in which Orbax describes a tree."""
NAMES_SHOWN = 5
LARGEST_TREE = 2**24
MOST_CHUNKS = 100_000
_SPARE_BYTES = 2**20
_NO_ARRAYS = {"None", "Dict", "List", "Tuple", "NamedTuple", "string"}
_SEQUENCE = 1  # Orbax's code for a key that is a number


def looks_like_msgpack(data: bytes) -> bool:
    """Whether the first byte begins a map, as every tree of named arrays does."""
    return 0x81 <= data[0] <= 0x8F or data[0] in (0xDE, 0xDF)


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
    dtype = _DTYPES.get(name.decode("ascii", "replace"))
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
    """The arrays of an Orbax checkpoint by their paths, joined by `/`; text is left out.

    `path` may be the folder that a checkpointer saved, a step of a checkpoint manager, or a manager's folder with one
    step.
    """
    tree = _tree_folder(path)
    stored = sum(status.st_size for _, status in regular_files(tree))
    with parsing(f"{path}: is not a whole Orbax checkpoint", "was it written to its end?"):
        paths, driver = _described(tree)
        arrays = {name: _opened(tree, path, driver) for name, path in paths.items()}
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


def _tree_folder(path: Path) -> Path:
    """The folder that holds the tree: this one, that of its only step, or of its only item."""
    folder = path
    while not (folder / TREE).is_file():
        inner = [child for child in entries(folder) if child.is_dir() and _holds_tree(child)]
        if len(inner) > 1:
            shown = ", ".join(child.name[:40] for child in inner[:NAMES_SHOWN])
            raise InputError(f"{path}: contains several Orbax checkpoints ({shown}); name the folder of one.")
        if not inner:
            raise InputError(f"{path}: is a folder but no Orbax checkpoint; weights are also read from .safetensors.")
        folder = inner[0]
    return folder


def _holds_tree(folder: Path) -> bool:
    return (folder / TREE).is_file() or any((child / TREE).is_file() for child in entries(folder) if child.is_dir())

"""Reads trees of arrays serialised by Flax with msgpack, without Flax and within bounds."""

from typing import Any

import ml_dtypes
import msgpack
import numpy as np

from jaxaudit.data.formats.parsing import parsing

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
    found: dict[str, np.ndarray] = {}
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
            found[name] = np.asarray(node)
        elif node is not None:
            raise TypeError("a value that is not a number")
    return found


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

"""Trees of arrays as Flax serialises them with msgpack, read without Flax and within bounds."""

from typing import Any

import ml_dtypes
import msgpack
import numpy as np

from jaxaudit.errors import InputError

MOST_VALUES = 1_000_000
"""Keys and values outside arrays: a tree of weights has a few thousand."""
ARRAY, COMPLEX, SCALAR = 1, 2, 3
"""Flax's codes for what msgpack has no type for."""
CHUNKED = "__msgpack_chunked_array__"
_DTYPES = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in ("f2", "f4", "f8", ml_dtypes.bfloat16, "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16")
}


class _Broken(ValueError):
    """What is wrong with a file that msgpack itself can read."""


def looks_like_msgpack(data: bytes) -> bool:
    """Whether the first byte begins a map, as every tree of named arrays does."""
    return 0x81 <= data[0] <= 0x8F or data[0] in (0xDE, 0xDF)


def read_msgpack(data: bytes, source: str) -> dict[str, np.ndarray]:
    """The arrays of the tree by their paths, joined by `/`; single numbers as arrays without axes, None left out.

    Raises:
        InputError: where the bytes are no such tree, or hold more values than a network's weights would.
    """
    left = MOST_VALUES

    def count(values: Any) -> Any:
        nonlocal left
        left -= len(values)
        if left < 0:
            raise _Broken(f"more than {MOST_VALUES:,} values outside arrays")
        return values

    try:
        tree = msgpack.unpackb(
            data,
            ext_hook=_extension,
            object_pairs_hook=lambda pairs: dict(count(pairs)),
            list_hook=count,
            max_map_len=MOST_VALUES,
            max_array_len=MOST_VALUES,
        )
        return _flat(tree)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{source}: is not a tree of arrays as flax.serialization writes it ({reason}); was it written to its end?"
        ) from error


def _flat(tree: Any) -> dict[str, np.ndarray]:
    if not isinstance(tree, dict):
        raise _Broken("its root is no map")
    found: dict[str, np.ndarray] = {}
    waiting: list[tuple[str, Any]] = [("", tree)]
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, dict) and CHUNKED in node:
            node = _joined(node)
        if isinstance(node, dict | list):
            items = list(node.items() if isinstance(node, dict) else enumerate(node))
            waiting += [(f"{name}/{key}" if name else str(key), value) for key, value in reversed(items)]
        elif node is not None:
            found[name] = np.asarray(node)
    return found


def _extension(code: int, data: bytes) -> Any:
    if code == COMPLEX:
        real, imaginary = msgpack.unpackb(data)
        return complex(real, imaginary)
    if code not in (ARRAY, SCALAR):
        raise _Broken(f"a value of the unknown kind {code}")
    shape, name, values = msgpack.unpackb(data, raw=True)
    dtype = _DTYPES.get(name.decode("ascii", "replace"))
    if dtype is None:
        raise _Broken(f"an array of type {name[:20]!r}")
    return np.frombuffer(values, dtype).reshape(shape)


def _joined(node: dict[Any, Any]) -> np.ndarray:
    """An array too large for one msgpack value, of which Flax makes several."""
    shape, chunks = node.get("shape"), node.get("chunks")
    if not (isinstance(shape, dict) and isinstance(chunks, dict) and chunks):
        raise _Broken("an array in pieces without its shape")
    try:
        pieces = [np.asarray(chunks[str(index)]) for index in range(len(chunks))]
        return np.concatenate(pieces).reshape([shape[str(axis)] for axis in range(len(shape))])
    except KeyError as error:
        raise _Broken(f"an array in pieces without its piece {error}") from error

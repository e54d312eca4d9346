"""Weights that `save_pretrained` cut into several safetensors files, with an index of which array is in which."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.paths import entries, exists, file_size, open_data
from jaxaudit.errors import InputError

WHOLE = "model.safetensors"
INDEX = ".safetensors.index.json"
LONGEST = 64 * 2**20
"""Bytes of an index: a name and a file of each array."""


def saved_weights(folder: Path) -> Path | None:
    """The file of weights, or their index, in a folder that `save_pretrained` wrote; None if it is no such folder.

    Raises:
        InputError: there is a configuration, and no weights as safetensors beside it.
    """
    whole, index = folder / WHOLE, folder / f"model{INDEX}"
    if exists(whole) or exists(index):
        return whole if exists(whole) else index
    if not exists(folder / "config.json"):
        return None
    pickled = [each.name for each in entries(folder) if each.suffix == ".bin"]
    why = f", and {pickled[0]} may be a pickle, which is never loaded" if pickled else ""
    raise InputError(
        f"{folder}: has config.json, but neither {WHOLE} nor its index{why}; save the model by "
        "save_pretrained(folder), which writes safetensors."
    )


def read_sharded(
    index: Path, read: Callable[[Path, int], dict[str, np.ndarray]], max_bytes: int
) -> dict[str, np.ndarray]:
    """The arrays of all files that an index names.

    Args:
        index: `model.safetensors.index.json`.
        read: reads one of its files, of at most so many bytes.
        max_bytes: refuse to read more than this from all files.

    Raises:
        InputError: the index is damaged, names a file elsewhere or one that is missing, or the files do not hold
            the arrays that it says.
    """
    placed = _placed(index)
    shards = sorted(set(placed.values()))
    missing = [name for name in shards if not exists(index.parent / name)]
    if missing:
        raise InputError(
            f"{index}: names {missing[0][:80]}, and there is no such file beside it ({len(missing)} of {len(shards)} "
            "are missing); were all files copied?"
        )
    found: dict[str, np.ndarray] = {}
    for shard in shards:
        path = index.parent / shard
        arrays = read(path, max_bytes - sum(each.nbytes for each in found.values()))
        wanted = {name for name, place in placed.items() if place == shard}
        if arrays.keys() != wanted:
            name = sorted(arrays.keys() ^ wanted)[0]
            raise InputError(
                f"{path}: does not hold the arrays that {index.name} says ({name[:80]}); is it another save?"
            )
        found |= arrays
    return found


def _placed(index: Path) -> dict[str, str]:
    """The file of each array."""
    with open_data(index) as file:
        size = file_size(file)
        if size > LONGEST:
            raise InputError(f"{index}: has {size / 2**20:.0f} MiB, too many for an index; is it one?")
        with parsing(f"{index}: is not JSON", "was it written to its end?"):
            stated = json.loads(file.read(size))
    placed = stated.get("weight_map") if isinstance(stated, dict) else None
    if not isinstance(placed, dict) or not placed or not all(isinstance(each, str) for each in placed.values()):
        raise InputError(f"{index}: has no weight_map from arrays to files; was it written by save_pretrained?")
    for name in placed.values():
        # As a name in this very folder, on any system.
        if Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
            raise InputError(f"{index}: names {name[:80]!r}, which is no .safetensors file beside it.")
    return placed

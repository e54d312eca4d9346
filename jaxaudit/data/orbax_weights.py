"""Trees of arrays as Orbax saves them: shapes first, then the numbers."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxaudit.errors import InputError

TREE = "_METADATA"
"""The file in which Orbax describes a tree."""
NAMES_SHOWN = 5


def read_orbax(path: Path, max_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of an Orbax checkpoint by their paths, joined by `/`; text is left out.

    `path` may be what a checkpointer saved, a step of a checkpoint manager, or the manager's own folder where it holds
    one step.

    Raises:
        InputError: where it is no such folder, holds several steps or items, is damaged, or claims more than
            `max_bytes`.
    """
    tree = _tree_folder(path)
    import jax
    import orbax.checkpoint as ocp
    from etils import epath

    handler, place = ocp.PyTreeCheckpointHandler(), epath.Path(tree.resolve())
    try:
        described: Any = handler.metadata(place).tree
        leaves = jax.tree.leaves(described)
        claimed = sum(_bytes(leaf) for leaf in leaves)
        if claimed > max_bytes:
            raise InputError(
                f"{path}: claims to hold {claimed / 2**30:.1f} GiB, more than the {max_bytes / 2**30:.1f} GiB that "
                "are allowed; save only the weights."
            )
        # Text has no shape, and is read as what it is.
        how = jax.tree.map(
            lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray if hasattr(leaf, "shape") else None), described
        )
        found = handler.restore(place, args=ocp.args.PyTreeRestore(restore_args=how))
    except InputError:
        raise
    except Exception as error:  # what TensorStore and Orbax raise for damaged files has no common base
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise InputError(f"{path}: is not a whole Orbax checkpoint ({reason}); was it written to its end?") from error
    named = jax.tree_util.tree_leaves_with_path(found)
    return {
        jax.tree_util.keystr(place, simple=True, separator="/"): np.asarray(leaf)
        for place, leaf in named
        if not isinstance(leaf, str)
    }


def _tree_folder(path: Path) -> Path:
    """The folder that holds the tree: this one, its only step's, or its only item's."""
    place = path
    while not (place / TREE).is_file():
        inner = sorted(child for child in place.iterdir() if child.is_dir() and _holds_tree(child))
        if len(inner) > 1:
            shown = ", ".join(child.name for child in inner[:NAMES_SHOWN])
            more = ", ..." if len(inner) > NAMES_SHOWN else ""
            raise InputError(f"{path}: holds several Orbax checkpoints ({shown}{more}); name the folder of one.")
        if not inner:
            raise InputError(f"{path}: is a folder but no Orbax checkpoint; weights are also read from .safetensors.")
        place = inner[0]
    return place


def _holds_tree(place: Path) -> bool:
    return (place / TREE).is_file() or any((child / TREE).is_file() for child in place.iterdir() if child.is_dir())


def _bytes(leaf: Any) -> int:
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        return 0
    return int(np.prod([int(size) for size in shape], dtype=object)) * np.dtype(dtype).itemsize

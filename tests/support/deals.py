"""A deal and a model as `jaxaudit ks` reads them: a folder of sets, and outputs by the set that they are on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROLES = ("query", "holdout", "members")


def write_deal(folder: str | Path, **sets: Any) -> str:
    """`query.npz` and so on, each of inputs and labels or of arrays by name; the folder's name. What is there stays."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for role, records in sets.items():
        arrays = records if isinstance(records, Mapping) else dict(zip("xy", records, strict=True))
        np.savez(Path(folder, f"{role}.npz"), **arrays)
    return str(folder)


def write_model(path: str | Path, **outputs: Any) -> str:
    """A model's outputs by set: a `.npz`, a `.csv` with a column `set`, or a folder of `.npy`; the path's name."""
    place = Path(path)
    if place.suffix == ".npz":
        np.savez(place, **outputs)
    elif place.suffix == ".csv":
        rows = [",".join((role, *(f"{number:.6f}" for number in row))) for role in outputs for row in outputs[role]]
        classes = len(next(iter(outputs.values()))[0])
        place.write_text("\n".join((",".join(("set", *(f"p_{k}" for k in range(classes)))), *rows, "")))
    else:
        place.mkdir(parents=True, exist_ok=True)
        for role, values in outputs.items():
            np.save(place / f"{role}.npy", values)
    return str(path)


def read_deal(folder: str | Path) -> dict[str, dict[str, np.ndarray]]:
    """The arrays of each set in a folder of `.npz`, by role."""
    return {role: dict(np.load(path)) for role in ROLES if (path := Path(folder, f"{role}.npz")).exists()}

"""Files of model outputs, and the outputs in them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

LOGITS = np.random.default_rng(0).normal(0, 3, (20, 4))
P = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
NAMES = ("ant", "bee", "cat", "dog")


def csv(values, header=None, decimals=17, index=None):
    lines = [] if header is None else [header]
    for row, line in enumerate(np.asarray(values)):
        cells = [f"{value:.{decimals}f}" for value in np.atleast_1d(line)]
        lines.append(",".join(cells if index is None else [str(index(row)), *cells]))
    return "\n".join(lines) + "\n"


def write_outputs(folder: Path, content: Any) -> Path:
    """`content` in a file of the kind that suits it."""
    if isinstance(content, str):
        path = folder / "out.csv"
        path.write_text(content)
    elif isinstance(content, dict):
        path = folder / "out.npz"
        np.savez(path, **content)
    elif isinstance(content, pa.Table):
        path = folder / "out.parquet"
        parquet.write_table(content, path)
    else:
        path = folder / "out.npy"
        np.save(path, content)
    return path


def table(values, names=None):
    return pa.table({(names or NAMES)[k]: values[:, k] for k in range(values.shape[1])})

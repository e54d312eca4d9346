"""The target model's outputs on the query set, from any framework."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's outputs on a data set, one row a record.

    Attributes:
        probabilities: `float32[n, classes]`, rows sum to 1.
        kind: what the file held.
        decimals: the number of decimals the file was printed with, None where it was not rounded.
        dtype: the file's number type, such as "float16"; "text" for CSV.
        name: the file's name.
        content_hash: of the file's numbers, `blake2b:...`.
    """

    probabilities: np.ndarray
    kind: Literal["probabilities", "logits"]
    decimals: int | None
    dtype: str
    name: str
    content_hash: str


def load_outputs(
    path: str | Path,
    classes: int | Sequence[str],
    rows: int,
    kind: Literal["auto", "probabilities", "logits"] = "auto",
) -> Outputs:
    """The outputs in a .npz, .npy, .csv or .parquet file, as probabilities."""
    raise NotImplementedError


def confidence_of(outputs: Outputs, labels: np.ndarray) -> np.ndarray:
    """`float32[n]`: each row's probability of its ground-truth class."""
    raise NotImplementedError

"""Leave-one-out without refits: checks, chunks of equal size, and pieces that are trained like any other models."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxaudit.errors import InputError
from jaxaudit.learners.learner import LeftOut, Progress, ReadsAllForEach

PIECE = 4096
"""Records that are answered together: a minute or less of one worker for a pool of a million."""


@dataclass(frozen=True)
class LeftOutModels:
    """The leave-one-out models of a learner as one that `fit_many` trains: its parameters are its models' outputs.

    Chunks are handed to workers, tried again and kept like those of any learner.

    Attributes:
        learner: answers for all records of a chunk at once.
    """

    learner: ReadsAllForEach

    def fit(self, key: Key[Array, ""], inputs: Array, labels: Array, weights: Array) -> Any:
        """A single model, refitted."""
        return self.learner.fit(key, inputs, labels, weights)

    def log_probs(self, params: Any, inputs: Array) -> Array:
        """Of a single model."""
        return self.learner.log_probs(params, inputs)

    def outputs(self, key: Key[Array, ""], pool: tuple[Array, Array], left_out: Int[np.ndarray, " models"]) -> LeftOut:
        """With and without each of these records of the pool, on it."""
        return self.learner.leave_one_out(key, np.asarray(pool[0]), np.asarray(pool[1]), left_out)


def check_left_out(
    inputs: Float[np.ndarray, "n ..."],
    labels: Int[np.ndarray, " m"],
    records: Int[np.ndarray, " k"],
    classes: int,
) -> None:
    """Whether these records can be left out.

    Raises:
        InputError: inputs and labels differ in number, or a label or a record does not exist.
    """
    if len(inputs) != len(labels):
        raise InputError(
            f"there are {len(inputs)} inputs and {len(labels)} labels: give one label per input, in the same order."
        )
    for name, values, bound in (("label", labels, classes), ("record", records, len(inputs))):
        if len(values) and not 0 <= values.min() <= values.max() < bound:
            wrong = values.min() if values.min() < 0 else values.max()
            raise InputError(f"{name} {wrong} does not exist: there are {bound}, numbered from 0.")


def check_columns(inputs: Float[np.ndarray, "..."], columns: int) -> None:
    """Whether every record has the columns the learner was made for.

    Raises:
        InputError: `inputs` do not have shape (records, columns).
    """
    if inputs.ndim != 2 or inputs.shape[1] != columns:
        raise InputError(
            f"inputs have shape {inputs.shape} but the learner was made for {columns} columns: give one row per record "
            "and one number per column."
        )


def check_finite(values: Float[np.ndarray, "n columns"], columns: Int[np.ndarray, " columns"]) -> None:
    """Whether all numbers are finite; `columns` are their places among all columns.

    Raises:
        InputError: one is NaN or infinite.
    """
    bad = ~np.isfinite(values).all(axis=0)
    if bad.any():
        raise InputError(
            f"column {columns[bad.argmax()]} contains a number that is NaN or infinite: drop such records, or give "
            "missing values their own category."
        )


def tell(progress: Progress | None, done: int, records: int) -> None:
    """Reports the number of records done; padding of the last chunk does not count."""
    if progress is not None:
        progress(min(done, records), records)


def in_chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """The rows, `size` at a time (all, where there are fewer); the last chunk is filled up with its last row.

    One size is one compilation. The caller drops what lies past the last row.

    >>> [chunk.tolist() for chunk in in_chunks(np.arange(5), 3)]
    [[0, 1, 2], [3, 4, 4]]
    """
    size = min(size, len(rows))
    for start in range(0, len(rows), max(size, 1)):
        chunk = rows[start : start + size]
        yield np.concatenate([chunk, np.repeat(chunk[-1:], size - len(chunk), axis=0)])

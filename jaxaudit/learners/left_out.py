"""Helpers for learners that compute leave-one-out models without refitting: checks, chunks, pieces, class counts.

Leave-one-out compares like with like. A(T) and every A(T without t) have one key and take the same minibatches, and
A(T) is trained in the very program of the others: another one would round otherwise, and training amplifies that. A
learner that knows its leave-one-out models (`LeavesOneOut`) is asked instead; each is pinned to refits by a test. One
that reads the whole pool for each record (`ReadsAllForEach`) is asked for a piece of the records at a time, and a piece
is a chunk like any other: kept, tried again, handed to workers. Pieces follow from the number of records alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int, Key, Real

from jaxaudit.errors import InputError
from jaxaudit.learners.learner import LeftOut, Progress, ReadsAllForEach

PIECE = 4096
"""Left-out records per piece: at most a minute of a worker's time for a pool of a million records."""


@dataclass(frozen=True)
class LeftOutModels:
    """Makes a `LeavesOneOut` learner trainable by `fit_many`: the outputs of its models take the place of parameters.

    So pieces of left-out records are given to workers, repeated and saved like the chunks of any other learner.
    """

    learner: ReadsAllForEach

    def fit(self, key: Key[Array, ""], inputs: Array, labels: Array, weights: Array) -> Any:
        """A single model, trained from the start by the learner's own `fit`."""
        return self.learner.fit(key, inputs, labels, weights)

    def log_probs(self, params: Any, inputs: Array) -> Array:
        """The log-probabilities of a single model."""
        return self.learner.log_probs(params, inputs)

    def outputs(self, key: Key[Array, ""], pool: tuple[Array, Array], left_out: Int[np.ndarray, " models"]) -> LeftOut:
        """The outputs on each left-out record of the pool, of the models with it and without it."""
        return self.learner.leave_one_out(key, np.asarray(pool[0]), np.asarray(pool[1]), left_out)


def check_left_out(
    inputs: Float[np.ndarray, "n ..."], labels: Int[np.ndarray, " m"], records: Int[np.ndarray, " k"], classes: int
) -> None:
    """Refuses inputs and labels that differ in number, and labels and indices of records that are out of range."""
    if len(inputs) != len(labels):
        raise InputError(
            f"there are {len(inputs)} inputs and {len(labels)} labels: give one label per input, in the same order."
        )
    for name, values, bound in (("label", labels, classes), ("record", records, len(inputs))):
        if len(values) and not 0 <= values.min() <= values.max() < bound:
            wrong = values.min() if values.min() < 0 else values.max()
            raise InputError(f"{name} {wrong} does not exist: there are {bound}, numbered from 0.")


def check_columns(inputs: Float[np.ndarray, "..."], columns: int) -> None:
    """Refuses inputs that do not have shape (records, columns), as the learner was made for."""
    if inputs.ndim != 2 or inputs.shape[1] != columns:
        raise InputError(
            f"inputs have shape {inputs.shape} but the learner was made for {columns} columns: give one row per record "
            "and one number per column."
        )


def check_finite(values: Float[np.ndarray, "n columns"], columns: Int[np.ndarray, " columns"]) -> None:
    """Refuses numbers that are not finite; `columns` are the indices of their columns, for the message."""
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
    """Splits rows into chunks of `size` (or one chunk of all, if there are fewer); pads the last with its last row.

    Chunks of one size need one compilation. The caller drops the results of the padding.

    >>> [chunk.tolist() for chunk in in_chunks(np.arange(5), 3)]
    [[0, 1, 2], [3, 4, 4]]
    """
    size = min(size, len(rows))
    for start in range(0, len(rows), max(size, 1)):
        chunk = rows[start : start + size]
        yield np.concatenate([chunk, np.repeat(chunk[-1:], size - len(chunk), axis=0)])


def log_shares(counts: Real[Array | np.ndarray, "*many classes"], smoothing: float) -> Any:
    """log((n_y + smoothing) / (n + smoothing * classes)), in nats, for NumPy and JAX arrays.

    If this is 0 / 0 (no record and no smoothing), every class is equally likely. Without smoothing, a class without
    records has minus infinity.

    >>> np.exp(log_shares(np.array([[3, 1], [0, 0]]), 1.0)).round(3)
    array([[0.667, 0.333],
           [0.5  , 0.5  ]])
    """
    xp: Any = counts.__array_namespace__()
    classes = counts.shape[-1]
    total = counts.sum(axis=-1, keepdims=True) + smoothing * classes
    share = xp.where(total > 0, (counts + smoothing) / xp.where(total > 0, total, 1), 1 / classes)
    with np.errstate(divide="ignore"):
        return xp.log(share)

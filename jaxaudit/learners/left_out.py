"""Shared by learners with leave-one-out without refits: checks, and chunks of equal size."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.errors import InputError
from jaxaudit.learners.learner import Progress


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

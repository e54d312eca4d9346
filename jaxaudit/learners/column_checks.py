"""What learners of columns ask of the inputs they are given."""

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.errors import InputError


def check_columns(inputs: Float[np.ndarray, "..."], columns: int) -> None:
    """Whether every record has the columns the learner was made for.

    Raises:
        InputError: where `inputs` are not of shape (records, columns).
    """
    if inputs.ndim != 2 or inputs.shape[1] != columns:
        raise InputError(
            f"inputs have shape {inputs.shape} but the learner was made for {columns} columns: give one row a record "
            "and one number a column."
        )


def check_finite(values: Float[np.ndarray, "n columns"], columns: Int[np.ndarray, " columns"]) -> None:
    """Whether all numbers are finite; `columns` are their places among all columns.

    Raises:
        InputError: where one is NaN or infinite.
    """
    bad = ~np.isfinite(values).all(axis=0)
    if bad.any():
        raise InputError(
            f"column {columns[bad.argmax()]} holds a number that is NaN or infinite: drop such records, or give "
            "missing values a category of their own."
        )

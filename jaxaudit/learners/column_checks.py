"""Checks of inputs for learners of columns."""

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.errors import InputError


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

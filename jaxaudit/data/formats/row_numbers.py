"""Columns that number the rows of a table."""

import numpy as np

INDEX_NAMES = ("", "index", "id", "row", "unnamed: 0")
"""What a column that numbers the rows is called, in small letters."""


def counting(numbers: np.ndarray) -> bool:
    """Whether these are 0, 1, 2, ... or 1, 2, 3, ..."""
    return len(numbers) > 0 and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())

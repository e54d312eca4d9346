"""The columns of tables as they were in their files: words and numbers, for estimators with an encoder of their own.

Sets are compared as numbers, of which a column of words has several (`codes_of_words`). Here they become an index into
the words of the column again, and a frame with the words themselves where an estimator is fitted.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Float, Real

from jaxaudit.data.examples import Examples
from jaxaudit.data.own_table import WIDTH, codes_of_texts
from jaxaudit.data.table import MISSING, Column
from jaxaudit.errors import InputError


def columns_as_read(sets: Sequence[Examples]) -> tuple[Column, ...]:
    """The columns of these tables, which have the same ones, with the words of all of them; none if they are no tables.

    An empty cell is the last of a column's words, `MISSING`.
    """
    columns, titles = list[Column](), list(sets[0].titles)
    words_of_sets = [examples.words for examples in sets]
    while titles:
        name = next((name for name in words_of_sets[0] if titles[0] == f"{name} (0)"), None)
        words = {word for words in words_of_sets for word in words.get(name or "", ())}
        present = sorted(words - {""})
        columns.append(Column(name or titles[0], (*present, *((MISSING,) if "" in words else ()))))
        del titles[: 1 if name is None else WIDTH]
    return tuple(columns)


def as_indices(inputs: Real[np.ndarray, "n inputs"], columns: Sequence[Column]) -> Float[np.ndarray, "n columns"]:
    """Records as `codes_of_words` has them, with the index of each word in place of its codes."""
    values, at = np.empty((len(inputs), len(columns)), inputs.dtype), 0
    for place, column in enumerate(columns):
        width = WIDTH if column.categories else 1
        part, at = inputs[:, at : at + width], at + width
        if not column.categories:
            values[:, place] = part[:, 0]
            continue
        codes = codes_of_texts(["" if word == MISSING else word for word in column.categories]).astype(inputs.dtype)
        keys, rows = (np.ascontiguousarray(array).view(f"V{array.itemsize * WIDTH}")[:, 0] for array in (codes, part))
        order = np.argsort(keys)
        values[:, place] = order[np.searchsorted(keys[order], rows)]
    return values


def frame(values: Real[np.ndarray, "n columns"], columns: Sequence[Column]) -> Any:
    """A pandas frame of these records: words as text, numbers as numbers, and what is missing as None or NaN."""
    try:
        import pandas
    except ImportError as error:
        raise InputError(
            "an estimator with an encoder of its own gets the columns as they are, in a frame of pandas, which is not "
            "installed: pip install pandas."
        ) from error
    arrays = {column.name: _cells(column, values[:, place]) for place, column in enumerate(columns)}
    return pandas.DataFrame(arrays)


def _cells(column: Column, values: Real[np.ndarray, " n"]) -> np.ndarray:
    if not column.categories:
        return values.astype(np.float64)
    words = [None if word == MISSING else word for word in column.categories]
    with suppress(ValueError):
        return np.array([np.nan if word is None else float(word) for word in words])[values.astype(int)]
    return np.array(words, object)[values.astype(int)]

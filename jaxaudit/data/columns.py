"""The columns of tables as they were in their files: words and numbers, for estimators with an encoder of their own.

Sets are compared as numbers, of which a column of words has several (`codes_of_words`). Here they become an index into
the words of the column again, and a frame with the words themselves where an estimator is fitted.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Float, Real

from jaxaudit.data.examples import Examples
from jaxaudit.data.labels import as_number
from jaxaudit.data.table import MISSING, Column
from jaxaudit.errors import InputError

WIDTH = 16
"""Numbers that stand for a word: as many as a digest has, of 32 bits each."""


def codes_of_words(words: Sequence[str]) -> Float[np.ndarray, "n numbers"]:
    """`float64[n, WIDTH]` within [-1, 1] by the digest of each word: random directions keep distances, whichever words
    a file has (the hashing trick: Weinberger et al. 2009). A missing word is empty.
    """
    digests = b"".join(hashlib.blake2b(word.encode()).digest() for word in words)
    return np.frombuffer(digests, "<u4").reshape(len(words), WIDTH) / 2.0**31 - 1


def columns_as_read(sets: Sequence[Examples]) -> tuple[Column, ...]:
    """The columns of these tables, with the words of all of them; a missing one is empty. None if they are no tables.

    They are in the order of the first table, as the inputs of all tables must be.
    """
    return tuple(
        Column(name, tuple(sorted({word for examples in sets for word in examples.words[name]})))
        for name in sets[0].words
    )


def as_indices(inputs: Real[np.ndarray, "n inputs"], columns: Sequence[Column]) -> Float[np.ndarray, "n columns"]:
    """Records as `codes_of_words` has them, with the index of each word in place of its codes."""
    values, at = np.empty((len(inputs), len(columns)), inputs.dtype), 0
    for place, column in enumerate(columns):
        width = WIDTH if column.categories else 1
        part, at = inputs[:, at : at + width], at + width
        if not column.categories:
            values[:, place] = part[:, 0]
            continue
        codes = codes_of_words(column.categories).astype(inputs.dtype)
        keys, rows = (np.ascontiguousarray(array).view(f"V{array.itemsize * WIDTH}")[:, 0] for array in (codes, part))
        order = np.argsort(keys)
        index = order[np.searchsorted(keys[order], rows).clip(max=len(keys) - 1)]
        assert (codes[index] == part).all(), "a record has a word that is none of its column's"
        values[:, place] = index
    return values


def frame(values: Real[np.ndarray, "n columns"], columns: Sequence[Column]) -> Any:
    """A pandas frame of these records: words as text, numbers as numbers, and what is missing as pandas has it."""
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
    words = [None if word in ("", MISSING) else word for word in column.categories]
    with suppress(ValueError):
        numbers = np.array([np.nan if word is None else as_number(word) for word in words])
        # Codes such as 01 and 1 are two words.
        if len(np.unique(numbers)) == len(numbers):
            return numbers[values.astype(int)]
    return np.array(words, object)[values.astype(int)]

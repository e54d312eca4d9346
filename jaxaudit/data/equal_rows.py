"""Which rows of an array are equal, exactly and without sorting whole rows."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

_BLOCK = 2**20


def count_equal(rows: np.ndarray, labels: np.ndarray) -> Int[np.ndarray, " records"]:
    """How many rows equal each row of `[n, columns]` in all columns and in label; itself alone is 1."""
    # Equal rows have equal sums; the rare unequal ones that have too are told apart by a look at every row.
    _, first, group, counts = np.unique(
        mixed_sums(rows, labels), return_index=True, return_inverse=True, return_counts=True
    )
    alike = labels == labels[first[group]]
    for start, block in blocks(rows):
        here = slice(start, start + len(block))
        alike[here] &= (block == rows[first[group[here]]]).all(axis=1)
    if not alike.all():
        _, group, counts = np.unique(np.column_stack([rows, labels]), axis=0, return_inverse=True, return_counts=True)
    return counts[group.reshape(-1)].astype(np.int64)


def mixed_sums(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """`uint64[n]`: sums of the rows' scrambled values times odd numbers, modulo 2^64 (multilinear hashing)."""
    word = np.dtype(f"u{rows.dtype.itemsize}")
    # Any fixed odd numbers will do; how many records are equal does not depend on them.
    factors = np.random.default_rng(rows.shape[1]).integers(2**63, size=rows.shape[1] + 1, dtype=np.uint64) * 2 + 1
    sums = labels.astype(np.uint64) * factors[-1]
    for start, block in blocks(rows):
        words = plain_zero(block).view(word).astype(np.uint64)
        # High bits reach only the high bits of a product, and small whole numbers as floats have no others: mix first.
        words ^= words >> np.uint64(32)
        words *= factors[-1]
        words ^= words >> np.uint64(29)
        sums[start : start + len(block)] += words @ factors[:-1]
    return sums


def blocks(rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(number of the first row, rows) of blocks of about a million values, as views."""
    step = max(1, _BLOCK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        yield start, rows[start : start + step]


def plain_zero(rows: np.ndarray) -> np.ndarray:
    """Contiguous, and with 0.0 for -0.0, which equals it but has other bytes."""
    rows = np.ascontiguousarray(rows)
    return rows + rows.dtype.type(0) if rows.dtype.kind == "f" else rows

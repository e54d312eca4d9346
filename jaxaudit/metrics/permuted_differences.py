"""Differences of mean scores between query set and holdout, for the deal as it was and for random other deals.

All deals are equally likely if the query set was never used. So the observed differences and those of other random
deals are exchangeable, and any statistic of one row, compared with the same statistic of all rows, gives an exact
p-value: see `share_as_large`.
"""

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxaudit.metrics.permutation import PERMUTATIONS, check_groups
from jaxaudit.randomness import generator_of

MOST_PERMUTED = 20_000
"""Up to this many records or groups are permuted; more are rotated in one random order, which is exact, too."""
CHUNK = 1 << 22


def permuted_differences(
    key: Key[Array, ""],
    values: Float[np.ndarray, "n kinds"],
    size: int,
    *,
    groups: Int[np.ndarray, " n"] | None = None,
    pairs: Int[np.ndarray, " n"] | None = None,
    permutations: int = PERMUTATIONS,
) -> Float[np.ndarray, "deals kinds"]:
    """The mean of the first `size` records minus that of the others: first as dealt, then for random other deals.

    What was dealt is what is permuted: records; whole groups; or, within each pair, which of its two records is in the
    query set. Of more than `MOST_PERMUTED` records or groups, the sets are rotated in a random order of all records:
    rotations are a group of permutations, so random ones are exact (Hemerik & Goeman 2018), and a Fourier transform
    gives the sums of all of them at once.

    Args:
        key: random key of the deals.
        values: scores of the query records, and then of the holdout records; one or more kinds of scores.
        size: the number of query records.
        groups: the group of each record, if whole groups were dealt.
        pairs: the pair of each record, from 0 without gaps, if one record of each pair was dealt to the query set.
        permutations: the number of random deals.

    Returns:
        `permutations + 1` rows; the first is observed.

    Raises:
        InputError: as `check_groups`.

    >>> import jax
    >>> found = permuted_differences(jax.random.key(1), np.array([[3.0], [4.0], [0.0], [1.0]]), 2, permutations=5)
    >>> found.shape, found[0]
    ((6, 1), array([3.]))
    """
    generator, n = generator_of(key), len(values)
    centred = values - values.mean(axis=0)
    if pairs is not None:
        # A stable sort keeps a pair's query record before its holdout record.
        return _flipped(generator, centred[np.argsort(pairs, kind="stable")], permutations)
    totals, sizes, first = centred, np.ones(n), np.arange(n) < size
    if groups is not None:
        check_groups(groups, size, n)
        _, own = np.unique(groups, return_inverse=True)
        sizes = np.bincount(own).astype(np.float64)
        totals = np.stack([np.bincount(own, each) for each in centred.T], axis=1)
        first = np.isin(np.arange(len(sizes)), own[:size])
    both = np.concatenate([totals, sizes[:, None]], axis=1)
    observed = first.astype(np.float64)[None] @ both
    dealt = _permuted if len(first) <= MOST_PERMUTED else _rotated
    sums = np.concatenate([observed, dealt(generator, first, both, permutations)])
    counts = sums[:, -1:]
    return sums[:, :-1] * (1 / counts + 1 / (n - counts))


def share_as_large(statistics: Float[np.ndarray, " deals"]) -> float:
    """The exact p-value of the first statistic: the share of all, itself included, that are at least as large.

    Statistics that are equal up to rounding count as equal, which makes the p-value larger.

    >>> share_as_large(np.array([2.0, 1.0, 2.0, 0.0]))
    0.5
    """
    slack = 1e-9 * (1e-12 + float(np.abs(statistics).max()))
    return float(np.mean(statistics >= statistics[0] - slack))


def _permuted(
    generator: np.random.Generator, first: Bool[np.ndarray, " units"], totals: np.ndarray, permutations: int
) -> np.ndarray:
    """The sum of the query set's totals in each random deal of records or groups."""
    found, rows = [], max(1, CHUNK // len(first))
    for start in range(0, permutations, rows):
        dealt = generator.permuted(np.tile(first, (min(rows, permutations - start), 1)), axis=1)
        found.append(dealt.astype(np.float64) @ totals)
    return np.concatenate(found)


def _rotated(
    generator: np.random.Generator, first: Bool[np.ndarray, " units"], totals: np.ndarray, permutations: int
) -> np.ndarray:
    """As `_permuted`, for random rotations of the units in a random order."""
    order, steps = generator.permutation(len(first)), generator.integers(len(first), size=permutations)
    row = np.conj(np.fft.rfft(first[order].astype(np.float64)))
    # One kind of scores at a time, so that a million records take tens of megabytes.
    return np.stack([np.fft.irfft(row * np.fft.rfft(each[order]), len(first))[steps] for each in totals.T], axis=1)


def _flipped(
    generator: np.random.Generator, values: Float[np.ndarray, "n kinds"], permutations: int
) -> Float[np.ndarray, "deals kinds"]:
    """The mean difference within pairs, as dealt and with random signs; the two records of a pair follow each other."""
    apart = values[::2] - values[1::2]
    found, rows = [apart.mean(axis=0)[None]], max(1, CHUNK // len(apart))
    for start in range(0, permutations, rows):
        signs = generator.integers(0, 2, (min(rows, permutations - start), len(apart)), np.int8)
        found.append((2.0 * signs - 1) @ apart / len(apart))
    return np.concatenate(found)

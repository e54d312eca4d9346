"""A permutation test of the difference of two means, of records or of whole groups. Arrays in, numbers out."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int, Key

from jaxaudit.errors import InputError
from jaxaudit.metrics.deal import ways
from jaxaudit.metrics.effect import ALPHA
from jaxaudit.randomness import generator_of

PERMUTATIONS = 1999
CHUNK = 1 << 22


class Permuted(NamedTuple):
    """A permutation test of the difference of two means.

    Attributes:
        difference: the mean of the first sample minus that of the second.
        p_larger: one-sided p-value for a larger difference than by chance; `p_smaller` for a smaller one.
        critical: the critical value: `p_larger` is at most alpha exactly if `difference` is above it.
    """

    difference: float
    p_larger: float
    p_smaller: float
    critical: float


def permutation_test(
    key: Key[Array, ""],
    first: Float[Array | np.ndarray, " n"],
    second: Float[Array | np.ndarray, " m"],
    *,
    groups: Int[Array | np.ndarray, " n_plus_m"] | None = None,
    permutations: int = PERMUTATIONS,
    alpha: float = ALPHA,
) -> Permuted:
    """A permutation test of the difference of two means; p = (1 + #{as extreme}) / (1 + permutations).

    If the numbers are exchangeable, each p-value is at most u with probability u at most, for every u and any sizes,
    ties included. Memory is bounded: about 32 MB.

    Args:
        key: random key of the permutations.
        first, second: the samples.
        groups: the group of each number, of the first sample and then of the second. Whole groups are permuted, as many
            in the first sample as there are: exact if the groups are exchangeable, whatever happens within them.
        permutations: random permutations.
        alpha: the level of `critical`.

    Raises:
        InputError: a sample is empty, a number is not finite, or there are too few permutations to ever reach `alpha`;
            with groups: as `check_groups`.

    >>> import jax, numpy as np
    >>> test = permutation_test(jax.random.key(1), np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.0]))
    >>> test.difference, round(test.p_larger, 2), test.p_smaller
    (3.0, 0.05, 1.0)
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    values = np.concatenate([first, second])
    if not len(first) or not len(second) or not np.isfinite(values).all():
        raise InputError(
            f"a permutation test needs finite numbers in both samples; got {len(first)} and {len(second)} numbers, "
            f"{int((~np.isfinite(values)).sum())} of them not finite."
        )
    allowed = int(np.floor(alpha * (1 + permutations) + 1e-9))
    if allowed < 1:
        raise InputError(
            f"{permutations} permutations cannot give a p-value of {alpha:g} or less; use {1 / alpha:.0f} or more."
        )
    generator = generator_of(key)
    centred = values - values.mean()
    if groups is None:
        sums, per_sum = _permuted_records(generator, centred, len(first), permutations)
    else:
        check_groups(groups, len(first), len(values), alpha)
        sums, per_sum = _permuted_groups(generator, centred, np.asarray(groups), len(first), permutations)
    permuted = per_sum * sums
    observed = float(first.mean() - second.mean())
    # Sums of the same numbers in another order differ by rounding; counting them as equal errs on the safe side.
    slack = 1e-12 * (1 + np.abs(centred).sum()) * float(np.max(np.abs(per_sum)))
    return Permuted(
        observed,
        float((1 + (permuted >= observed - slack).sum()) / (1 + permutations)),
        float((1 + (permuted <= observed + slack).sum()) / (1 + permutations)),
        float(np.partition(permuted, permutations - allowed)[permutations - allowed]) + slack,
    )


def check_groups(groups: Int[Array | np.ndarray, " n_plus_m"], size: int, records: int, alpha: float = ALPHA) -> int:
    """The number of groups among the first `size` of all records.

    Raises:
        InputError: there is not one group per record, a group is on both sides, or there are so few groups that no
            p-value could reach `alpha`.

    >>> check_groups(np.array([0, 0, 1, 2, 3, 4, 5]), 4, 7)
    3
    """
    groups = np.asarray(groups)
    if groups.shape != (records,) or not 0 < size < records:
        raise InputError(
            f"there are groups of shape {groups.shape} for {size} and {records - size} records: give each record of "
            "both sets its group."
        )
    first, second = np.unique(groups[:size]), np.unique(groups[size:])
    both = np.intersect1d(first, second)
    if len(both):
        raise InputError(
            f"{len(both)} groups have records in the query set and in the holdout: groups must be dealt whole. Give "
            "all records of a group to one of the two, or leave groups out if records were dealt one by one."
        )
    deals = ways(len(first) + len(second), len(first))
    if deals * alpha < 1:
        raise InputError(
            f"{len(first)} groups of the query set and {len(second)} of the holdout can be dealt in {deals} ways, too "
            f"few for a p-value of {alpha:g}: there must be {1 / alpha:.0f} ways or more, such as 3 and 3 groups."
        )
    return len(first)


def _permuted_records(
    generator: np.random.Generator, centred: Float[np.ndarray, " n"], size: int, permutations: int
) -> tuple[Float[np.ndarray, " permutations"], float]:
    """For each permutation, the sum of the smaller sample, and what times it is the difference of the means."""
    # Sums of one sample order the differences of means, and are the cheaper statistic.
    fewer, flip = (size, 1.0) if 2 * size <= len(centred) else (len(centred) - size, -1.0)
    sums = []
    rows = max(1, CHUNK // len(centred))
    for start in range(0, permutations, rows):
        tiled = np.tile(centred, (min(rows, permutations - start), 1))
        sums.append(generator.permuted(tiled, axis=1, out=tiled)[:, :fewer].sum(axis=1))
    return np.concatenate(sums), flip * (1 / size + 1 / (len(centred) - size))


def _permuted_groups(
    generator: np.random.Generator,
    centred: Float[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"],
    size: int,
    permutations: int,
) -> tuple[Float[np.ndarray, " permutations"], Float[np.ndarray, " permutations"]]:
    """The same of the first sample; its size depends on the groups in it, and so does the factor."""
    _, own = np.unique(groups, return_inverse=True)
    sizes, totals = np.bincount(own), np.bincount(own, centred)
    first = np.isin(np.arange(len(sizes)), own[:size])
    found = []
    rows = max(1, CHUNK // len(sizes))
    for start in range(0, permutations, rows):
        dealt = generator.permuted(np.tile(first, (min(rows, permutations - start), 1)), axis=1)
        found.append((dealt @ totals, dealt @ sizes))
    sums, counts = (np.concatenate(each) for each in zip(*found, strict=True))
    return sums, 1 / counts + 1 / (len(centred) - counts)

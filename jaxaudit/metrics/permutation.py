"""Permutation tests of query set against holdout, and of the answers of attacks on models of random halves.

All deals of the records are equally likely if the query set was never used. So the rank of the observed statistic among
those of random other deals is an exact p-value, whatever the statistic is. Records may be dealt within strata, such as
those of each author. Tests of free deals then find little where the records of an author are alike (sets 0.6 standard
deviations apart: none of 1,000 tables of 20 authors, within authors 69% of 250), and they err more often than stated
where all authors have the same records (1.9% of 3,000 at the level of 1%).
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from jaxaudit.errors import InputError, check_ranges, check_shapes
from jaxaudit.metrics.arrays import (
    AnyIntegers,
    AnyNumbers,
    AnyOthers,
    Deals,
    Integers,
    Kinds,
    Numbers,
    OneKey,
    units_of_records,
)
from jaxaudit.metrics.deal import ways
from jaxaudit.metrics.usage import ALPHA
from jaxaudit.randomness import generator_of


def set_effects(
    scores: Numbers, sets: Integers, strata: Integers
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, "sets sets"], int]:
    """How much higher the scores of each set are than those of set 0, within strata, by least squares; the covariance
    of these effects, and its degrees of freedom. It is the sandwich estimate, with each residual as that from a mean
    over its stratum.
    """
    indicators = (sets[:, None] == np.arange(1, sets.max() + 1)).astype(np.float64)
    design, values = without_strata(indicators, strata), without_strata(scores[:, None], strata)[:, 0]
    inverse = np.linalg.pinv(design.T @ design)
    effects = inverse @ (design.T @ values)
    stratum, sizes = np.unique(strata, return_inverse=True, return_counts=True)[1:]
    left = (values - design @ effects) ** 2 * sizes[stratum] / np.maximum(sizes[stratum] - 1, 1)
    counted = (design != 0).any(axis=1)
    records, levels = int(counted.sum()), len(np.unique(stratum[counted]))
    free = max(1, records - levels - len(effects))
    covariance = inverse @ (design.T @ (design * left[:, None])) @ inverse * records / (free + levels)
    smallest = int(np.bincount(sets[counted], minlength=len(effects) + 1).min())
    return effects, covariance, max(1, smallest * free // max(records, 1))


def without_strata(columns: Float[np.ndarray, "n columns"], strata: Integers) -> np.ndarray:
    """Numbers minus the mean of their stratum.

    >>> without_strata(np.array([[1.0], [3.0], [10.0]]), np.array([5, 5, 6])).T
    array([[-1.,  1.,  0.]])
    """
    stratum, sizes = np.unique(strata, return_inverse=True, return_counts=True)[1:]
    means = np.stack([np.bincount(stratum, column) for column in columns.T], axis=1) / sizes[:, None]
    return columns - means[stratum]


PERMUTATIONS = 1999
CHUNK = 1 << 22
"""Numbers that are permuted at a time: about 32 MB."""
MOST_PERMUTED = 20_000
"""Up to this many records or groups are permuted; more are rotated in one random order, which is exact, too (Hemerik &
Goeman 2018)."""


class Permuted(NamedTuple):
    """A permutation test of the difference of two means.

    Attributes:
        difference: the mean of the first sample minus that of the second.
        p_larger, p_smaller: one-sided p-values for a difference that is larger, or smaller, than by chance.
        critical: `p_larger` is at most 5% if and only if `difference` is above this.
    """

    difference: float
    p_larger: float
    p_smaller: float
    critical: float


def least_permutations(targets: int) -> int:
    """The number of permutations needed for p-values, adjusted for `targets`, to reach 5%; at least 1,999.

    >>> least_permutations(1), least_permutations(100), least_permutations(500)
    (1999, 1999, 9999)
    """
    return max(PERMUTATIONS, round(targets / ALPHA) - 1)


def permutation_test(
    key: OneKey,
    first: AnyNumbers,
    second: AnyOthers,
    *,
    groups: Int[Array | np.ndarray, " n_plus_m"] | None = None,
    permutations: int = PERMUTATIONS,
) -> Permuted:
    """A permutation test of the difference of two means; p = (1 + #{as extreme}) / (1 + permutations).

    If the numbers are exchangeable, each p-value is at most u with probability u at most, for every u and any sizes,
    ties included. `groups` has the group of each number, of the first sample and then of the second. Whole groups are
    permuted; that is exact if groups are exchangeable, for any dependence within. More than `MOST_PERMUTED` of them are
    rotated. Too few permutations or groups to ever reach 5% are an `InputError`.

    >>> import jax, numpy as np
    >>> test = permutation_test(jax.random.key(1), np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.0]))
    >>> test.difference, round(test.p_larger, 2), test.p_smaller
    (3.0, 0.05, 1.0)
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    values, size = np.concatenate([first, second]), len(first)
    check_ranges("[1, inf)", size_of_first=len(first), size_of_second=len(second))
    check_ranges("(-inf, inf)", first=first, second=second)
    allowed = int(np.floor(ALPHA * (1 + permutations) + 1e-9))
    if allowed < 1:
        raise InputError(
            f"{permutations} permutations cannot give a p-value of {ALPHA:g} or less; use {1 / ALPHA:.0f} or more."
        )
    generator, centred = generator_of(key), values - values.mean()
    if groups is not None:
        check_groups(groups, size, len(values))
    inside, unit_of_record = _units(units_of_records(groups, len(values)), size)
    sizes, totals = np.bincount(unit_of_record), np.bincount(unit_of_record, centred)
    if len(inside) > MOST_PERMUTED:
        sums, counts = _rotated(generator, inside, np.stack([totals, sizes], axis=1), permutations).T
        counts = np.rint(counts)
    elif groups is None:
        # The difference of means is a multiple of the smaller sample's sum, which is cheaper to compute.
        fewer, flip = (size, 1.0) if 2 * size <= len(values) else (len(second), -1.0)
        rows = shuffled(generator, centred, permutations)
        sums, counts = flip * np.concatenate([drawn[:, :fewer].sum(axis=1) for drawn in rows]), size
    else:
        drawn = [(rows @ totals, rows @ sizes) for rows in shuffled(generator, inside, permutations)]
        sums, counts = (np.concatenate(column) for column in zip(*drawn, strict=True))
    per_sum = 1 / counts + 1 / (len(values) - counts)
    permuted = per_sum * sums
    observed = float(first.mean() - second.mean())
    # Sums of the same numbers in another order differ by rounding. Counting them as equal is conservative.
    slack = 1e-12 * (1 + np.abs(centred).sum()) * float(np.max(np.abs(per_sum)))
    return Permuted(
        observed,
        float((1 + (permuted >= observed - slack).sum()) / (1 + permutations)),
        float((1 + (permuted <= observed + slack).sum()) / (1 + permutations)),
        float(np.partition(permuted, permutations - allowed)[permutations - allowed]) + slack,
    )


def shuffled(
    generator: np.random.Generator, row: Shaped[np.ndarray, "*shape n"], times: int, most: int | None = None
) -> Iterator[Shaped[np.ndarray, "some *shape n"]]:
    """Random permutations of the row, or of each row, `most` at a time; by default as many as `CHUNK` allows."""
    most = max(1, CHUNK // row.size) if most is None else most
    for start in range(0, times, most):
        tiled = np.tile(row, (min(most, times - start), *(1,) * row.ndim))
        yield generator.permuted(tiled, axis=-1, out=tiled)


def _units(groups: AnyIntegers, size: int) -> tuple[Bool[np.ndarray, " units"], np.ndarray]:
    """Which groups the first `size` records are of, and the number of each record's group, from 0."""
    names, unit_of_record = np.unique(groups, return_inverse=True)
    return np.isin(np.arange(len(names)), unit_of_record[:size]), unit_of_record


def permuted_differences(
    key: OneKey,
    values: Kinds,
    size: int,
    *,
    groups: Integers | None = None,
    pairs: Integers | None = None,
    strata: Integers | None = None,
    permutations: int = PERMUTATIONS,
) -> Deals:
    """The mean of the first `size` records minus that of the others: first as dealt, then for random other deals.

    What was dealt is what is permuted: records, `groups`, records within `strata`, or the two of each of `pairs`. More
    than `MOST_PERMUTED` records or groups are rotated in a random order, which is exact, too (Hemerik & Goeman 2018).
    """
    generator, n = generator_of(key), len(values)
    centred = values - values.mean(axis=0)
    if pairs is not None:
        # A stable sort keeps a pair's query record before its holdout record.
        return _flipped(generator, centred[np.argsort(pairs, kind="stable")], permutations)
    if strata is not None:
        return _within_strata(generator, values, size, strata, permutations)
    if groups is not None:
        check_groups(groups, size, n)
    first, unit_of_record = _units(units_of_records(groups, n), size)
    totals = np.stack([np.bincount(unit_of_record, column) for column in (*centred.T, np.ones(n))], axis=1)
    if len(first) <= MOST_PERMUTED:
        rows = chain([first[None]], shuffled(generator, first, permutations))
        sums = np.concatenate([deals.astype(np.float64) @ totals for deals in rows])
    else:
        observed = first.astype(np.float64)[None] @ totals
        sums = np.concatenate([observed, _rotated(generator, first, totals, permutations)])
    counts = sums[:, -1:]
    return sums[:, :-1] * (1 / counts + 1 / (n - counts))


def share_as_large(statistics: Float[np.ndarray, " deals"]) -> float:
    """The exact p-value of the first statistic: the share of all, itself included, that are at least as large."""
    slack = 1e-9 * (1e-12 + float(np.abs(statistics).max()))
    return float(np.mean(statistics >= statistics[0] - slack))


def _rotated(
    generator: np.random.Generator, first: Bool[np.ndarray, " units"], totals: np.ndarray, permutations: int
) -> np.ndarray:
    """The sums of the totals of `first`, for random rotations of the units in a random order."""
    order, steps = generator.permutation(len(first)), generator.integers(len(first), size=permutations)
    row = np.conj(np.fft.rfft(first[order].astype(np.float64)))
    # One kind of scores at a time, so that a million records take tens of megabytes.
    return np.stack(
        [np.fft.irfft(row * np.fft.rfft(total_of_column[order]), len(first))[steps] for total_of_column in totals.T],
        axis=1,
    )


def _flipped(generator: np.random.Generator, values: Kinds, permutations: int) -> Deals:
    """The mean difference within pairs, as dealt and with random signs; the two records of a pair follow each other."""
    apart = values[::2] - values[1::2]
    parts, rows = [apart.mean(axis=0)[None]], max(1, CHUNK // len(apart))
    for start in range(0, permutations, rows):
        signs = generator.integers(0, 2, (min(rows, permutations - start), len(apart)), np.int8)
        parts.append((2.0 * signs - 1) @ apart / len(apart))
    return np.concatenate(parts)


def _within_strata(
    generator: np.random.Generator,
    values: Kinds,
    size: int,
    strata: Integers,
    permutations: int,
) -> Deals:
    """The differences as dealt, and with the records of each stratum permuted."""
    by_stratum, n = np.argsort(strata, kind="stable"), len(values)
    apart = without_strata(values[by_stratum], strata[by_stratum])
    in_query = np.flatnonzero(by_stratum < size)
    parts = [apart[in_query].sum(axis=0)[None]]
    for orders in orders_within(generator, strata[by_stratum], permutations):
        parts.append(apart[orders[:, in_query]].sum(axis=1))
    return np.concatenate(parts) * (1 / size + 1 / (n - size))


def orders_within(generator: np.random.Generator, strata: Integers, times: int) -> Iterator[Int[np.ndarray, "some n"]]:
    """Random orders of records that are sorted by stratum, some at a time; each record stays within its stratum."""
    stratum, rows = np.unique(strata, return_inverse=True)[1], max(1, CHUNK // max(1, len(strata)))
    for start in range(0, times, rows):
        yield np.argsort(stratum + generator.random((min(rows, times - start), len(strata))), axis=1)


def better_than_guessing(
    key: OneKey,
    called: Bool[np.ndarray, "attacks models targets"],
    truth: Bool[np.ndarray, "models targets"],
    *,
    permutations: int = PERMUTATIONS,
) -> float:
    """The p-value of "no attack is right more often than by guessing", exact for any dependence between attacks.

    Models 2 i and 2 i + 1 have the halves of random split i: halves are swapped, targets of a split permuted.

    >>> import jax
    >>> truth = np.random.default_rng(1).permuted(np.tile([[True, False]], (5, 10)), axis=1)
    >>> truth = np.stack([truth, ~truth], axis=1).reshape(10, 20)
    >>> better_than_guessing(jax.random.key(1), truth[None], truth)
    0.0005
    """
    if called.shape[1:] != truth.shape or len(truth) % 2 or (truth[::2] == truth[1::2]).any():
        raise InputError(
            f"there are answers of shape {called.shape} and truths of shape {truth.shape}: give both for the two "
            "models of each random split, one after the other, each target in the half of exactly one."
        )
    generator = generator_of(key)
    # If an attack gives a target the same answer for both halves, exactly one answer is right in every permutation.
    apart = called[:, ::2].astype(np.float64) - called[:, 1::2]
    apart /= np.maximum(np.sqrt((apart**2).sum(axis=(1, 2), keepdims=True)), 1)
    sides = np.where(truth[::2], 1.0, -1.0)

    def statistic(flips: Float[np.ndarray, "rows splits targets"]) -> Float[np.ndarray, " rows"]:
        return np.tensordot(flips, apart, axes=([1, 2], [1, 2])).max(axis=1)

    observed, larger = statistic(sides[None])[0], 0
    for flips in shuffled(generator, sides, permutations):
        swapped = flips * generator.choice([-1.0, 1.0], (len(flips), len(sides), 1))
        larger += int((statistic(swapped) >= observed - 1e-9).sum())
    return (1 + larger) / (1 + permutations)


def check_groups(groups: Int[Array | np.ndarray, " n_plus_m"], size: int, records: int) -> int:
    """The number of groups among the first `size` records; refuses groups on both sides, and too few to reach 5%."""
    groups = np.asarray(groups)
    check_shapes((records,), groups=groups)
    check_ranges(f"[1, {records - 1}]", size=size)
    first, second = np.unique(groups[:size]), np.unique(groups[size:])
    common_groups = np.intersect1d(first, second)
    if len(common_groups):
        raise InputError(
            f"{len(common_groups)} groups have records in the query set and in the holdout: groups must be dealt "
            "whole. Give "
            "all records of a group to one of the two, or leave groups out if records were dealt one by one."
        )
    deals = ways(len(first) + len(second), len(first))
    if deals * ALPHA < 1:
        raise InputError(
            f"{len(first)} groups of the query set and {len(second)} of the holdout can be dealt in {deals} ways, too "
            f"few for a p-value of {ALPHA:g}: there must be {1 / ALPHA:.0f} ways or more, such as 3 and 3 groups."
        )
    return len(first)

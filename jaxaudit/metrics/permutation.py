"""Permutation tests: of the difference of two means, and of the answers of attacks on models of random halves."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

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
        p_larger, p_smaller: one-sided p-values for a difference that is larger, or smaller, than by chance.
        critical: the critical value: `p_larger` is at most alpha if and only if `difference` is above it.
    """

    difference: float
    p_larger: float
    p_smaller: float
    critical: float


def least_permutations(targets: int, alpha: float = ALPHA) -> int:
    """The number of permutations needed for p-values, adjusted for `targets`, to reach `alpha`; at least 1,999.

    >>> least_permutations(1), least_permutations(100), least_permutations(500)
    (1999, 1999, 9999)
    """
    return max(PERMUTATIONS, round(targets / alpha) - 1)


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
        groups: the group of each number, of the first sample and then of the second. Whole groups are permuted, and the
            number of groups in the first sample is kept: exact if groups are exchangeable, for any dependence within.
        permutations: the number of random permutations.
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
    # Sums of the same numbers in another order differ by rounding. Counting them as equal is conservative.
    slack = 1e-12 * (1 + np.abs(centred).sum()) * float(np.max(np.abs(per_sum)))
    return Permuted(
        observed,
        float((1 + (permuted >= observed - slack).sum()) / (1 + permutations)),
        float((1 + (permuted <= observed + slack).sum()) / (1 + permutations)),
        float(np.partition(permuted, permutations - allowed)[permutations - allowed]) + slack,
    )


def better_than_guessing(
    key: Key[Array, ""],
    called: Bool[np.ndarray, "attacks models targets"],
    truth: Bool[np.ndarray, "models targets"],
    *,
    permutations: int = PERMUTATIONS,
) -> float:
    """The p-value of "no attack is right more often than by guessing", corrected for the number of attacks.

    Models 2 i and 2 i + 1 were trained on the two halves of random split i. If outputs do not depend on the half, the
    split can be drawn again: the two halves are swapped, and the targets of a split permuted, at random. The statistic
    is the largest, over attacks, of the number of right answers minus its expectation by guessing, in standard
    deviations. Under the null hypothesis the p-value is at most u with probability at most u, for every u and any
    dependence between attacks.

    Args:
        key: random key of the permutations.
        called: whether each attack calls each target a member of each model's training set.
        truth: whether the target is a member.
        permutations: random permutations.

    Raises:
        InputError: shapes disagree, or two models do not share a split.

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

    def statistic(dealt: Float[np.ndarray, "rows splits targets"]) -> Float[np.ndarray, " rows"]:
        return np.tensordot(dealt, apart, axes=([1, 2], [1, 2])).max(axis=1)

    observed, larger = statistic(sides[None])[0], 0
    rows = max(1, CHUNK // sides.size)
    for start in range(0, permutations, rows):
        tiled = np.tile(sides, (min(rows, permutations - start), 1, 1))
        tiled = generator.permuted(tiled, axis=2, out=tiled)
        swapped = tiled * generator.choice([-1.0, 1.0], (len(tiled), len(sides), 1))
        larger += int((statistic(swapped) >= observed - 1e-9).sum())
    return (1 + larger) / (1 + permutations)


def check_groups(groups: Int[Array | np.ndarray, " n_plus_m"], size: int, records: int, alpha: float = ALPHA) -> int:
    """Refuses groups that cannot be permuted; returns the number of groups among the first `size` records.

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
    """The sum of the smaller sample in each permutation, and the factor that makes it the difference of the means."""
    # The difference of means is a multiple of one sample's sum, which is cheaper to compute.
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
    """As `_permuted_records`, for the first sample; the factor depends on its size, and so on the groups in it."""
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

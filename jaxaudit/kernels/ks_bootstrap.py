"""Bootstrap of Kolmogorov-Smirnov distances over records; on the host with one sort for all replicates.

Resampling changes how often a value occurs, never the order of the values: samples are sorted once, and a replicate is
a running sum of resampled counts in that order. The gap only rises while values of the first sample pass and only falls
while values of the second do, so counts are collected by such runs (`bincount`), not by value.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Bool, Float, Int, Key, UInt

from jaxaudit.errors import check_ranges, check_shapes
from jaxaudit.kernels.kolmogorov_smirnov import (
    as_samples,
    host_keys,
    refuse_nan,
    sorted_union,
    uniform_indices,
    widest,
)

_CHUNK_VALUES = 2**25  # resampled values in flight on an accelerator, at about 40 bytes each


def bootstrap_ks(
    key: Key[Array, ""] | UInt[Array, "2"],
    first: Float[Array | np.ndarray, " n"],
    second: Float[Array | np.ndarray, " m"],
    replicates: int,
    *,
    paired: bool,
) -> Float[Array, " replicates"]:
    """Kolmogorov-Smirnov distances of samples resampled with replacement: larger means further apart.

    Each replicate draws n records from the first sample and m from the second, and measures `ks_distance` between the
    draws (Efron 1979). With `paired`, both samples are outputs of two models for the same n records in the same order,
    and one draw of records serves both. Two resampled copies of one sample are not at distance 0, so quantiles are an
    interval for distances well above 1 / sqrt(n), not a test of equality.

    Works under `jit` and `vmap`. The result is a function of the key, and of where it runs: on a CPU NumPy's SFC64
    generator draws, seeded by 128 bits of the key, and the counts are exactly multinomial; elsewhere `jax.random`
    draws, each record with probability 1/n to within n / 2**64. The first r replicates are the same however many are
    asked for, and for any number of cores.

    Memory: on a CPU about 60 bytes a value of the samples plus 40 a value for each core; elsewhere chunks of replicates
    that hold 2**25 resampled values (some 1.3 GB) or one replicate.

    >>> import jax, jax.numpy as jnp
    >>> from jaxaudit.kernels import ks_distance
    >>> first, second = jnp.linspace(0.0, 1.0, 200), jnp.linspace(0.3, 1.3, 200)
    >>> distances = bootstrap_ks(jax.random.key(0), first, second, 500, paired=False)
    >>> low, high = jnp.quantile(distances, jnp.array([0.025, 0.975]))
    >>> bool(low < ks_distance(first, second) < high)
    True
    """
    first, second = as_samples(first, second)
    return _bootstrap(key, first, second[None], replicates, paired)[:, 0]


def bootstrap_ks_paired(
    key: Key[Array, ""] | UInt[Array, "2"],
    reference: Float[Array | np.ndarray, " n"],
    other_samples: Float[Array | np.ndarray, "k m"],
    replicates: int,
) -> Float[Array, "replicates k"]:
    """Bootstrap distances of one model's outputs to those of k other models, with the same draw of records for all.

    A column equals `bootstrap_ks(key, reference, others[j], replicates, paired=True)`. Ratios and differences of
    columns are bootstrapped jointly: of `others = (target, calibration)`, column 0 over column 1 is distributed as rho.
    """
    reference, other_samples = as_samples(reference, other_samples)
    return _bootstrap(key, reference, other_samples, replicates, paired=True)


def _bootstrap(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k m"], replicates: int, paired: bool
) -> Float[Array, "replicates k"]:
    check_ranges("[1, inf)", replicates=replicates)
    if paired:
        check_shapes((len(other_samples), first.size), other_samples=other_samples)
    distances = _dispatch(key, first, other_samples, replicates, paired)
    refuse_nan(distances, first, other_samples)
    return distances


@partial(jax.jit, static_argnames=("replicates", "paired"))
def _dispatch(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k m"], replicates: int, paired: bool
) -> Float[Array, "replicates k"]:
    return jax.lax.platform_dependent(
        key,
        first,
        other_samples,
        cpu=partial(_bootstrap_on_host, replicates=replicates, paired=paired),
        default=partial(bootstrap_by_sort, replicates=replicates, paired=paired),
    )


def _bootstrap_on_host(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k m"], *, replicates: int, paired: bool
) -> Float[Array, "replicates k"]:
    result = jax.ShapeDtypeStruct((replicates, other_samples.shape[0]), first.dtype)
    fill = buffer_callback(partial(_fill, paired=paired), result, vmap_method="expand_dims")
    return fill(jax.random.bits(key, (4,), jnp.uint32), first, other_samples)


def _fill(_context: object, output: Any, words: Any, first: Any, other_samples: Any, *, paired: bool) -> None:
    result = np.asarray(output)
    of_one = partial(bootstrap_distances, replicates=result.shape[-2], paired=paired)
    of_rows = np.vectorize(of_one, signature="(words),(n),(k,m)->(replicates,k)")
    result[...] = of_rows(np.asarray(words), np.asarray(first), np.asarray(other_samples))


def bootstrap_by_sort(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k m"], *, replicates: int, paired: bool
) -> Float[Array, "replicates k"]:
    """`bootstrap_ks_paired` (or unpaired) in XLA, for accelerators, in chunks of replicates; NaN if a number is."""
    n, (k, m) = first.size, other_samples.shape
    records = jnp.arange(n + m, dtype=jnp.int32)  # n and more are of the other sample
    unions = jax.vmap(lambda other: sorted_union(first, other, records))(other_samples)

    def replicate(index: Int[Array, ""]) -> Float[Array, " k"]:
        first_key, second_key = jax.random.split(jax.random.fold_in(key, index))
        first_count = _counts(uniform_indices(first_key, n, n))
        second_count = first_count if paired else _counts(uniform_indices(second_key, m, m))
        return jax.vmap(partial(_distance_of_counts, first_count, second_count, dtype=first.dtype))(*unions)

    chunk = max(1, min(replicates, _CHUNK_VALUES // (k * (n + m))))
    distances = jax.lax.map(replicate, jnp.arange(replicates), batch_size=chunk)
    spoilt = jnp.isnan(first).any() | jnp.isnan(other_samples).any()
    return jnp.where(spoilt, jnp.nan, distances)


def _distance_of_counts(
    first_count: Int[Array, " n"],
    second_count: Int[Array, " m"],
    record: Int[Array, " union"],
    is_end: Bool[Array, " union"],
    dtype: Any,
) -> Float[Array, ""]:
    n, m = first_count.size, second_count.size
    of_first = record < n
    first = jnp.where(of_first, first_count[jnp.minimum(record, n - 1)], 0)
    second = jnp.where(of_first, 0, second_count[jnp.maximum(record - n, 0)])
    return widest(jnp.cumsum(first), jnp.cumsum(second), is_end, (n, m), dtype)


def _counts(indices: Int[Array, " n"]) -> Int[Array, " n"]:
    """How often each record was drawn."""
    return jnp.zeros(indices.size, jnp.int32).at[indices].add(1)


_BLOCK = 16  # replicates a random stream serves: threads share the work, yet the result does not depend on them


class Runs(NamedTuple):
    """For each record, the number of the run that contains its value. Runs ascend; the gap is monotone within a run."""

    first: Int[np.ndarray, " n"]
    second: Int[np.ndarray, " m"]
    count: int


def runs_of(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> Runs:
    """Sorts both samples together and cuts the order into runs of one sample; a value in both is a run of its own."""
    keys = host_keys(np.concatenate([first, second]))
    order = np.argsort(keys)
    ordered, of_first = keys[order], order < first.size
    starts = np.append(True, ordered[1:] != ordered[:-1])
    value = np.cumsum(starts) - 1  # the rank of each distinct value
    has_first, has_second = _holds(value, of_first), _holds(value, ~of_first)
    in_both = has_first & has_second
    new_run = np.append(True, in_both[1:] | in_both[:-1] | (has_first[1:] != has_first[:-1]))
    run_of_value = np.cumsum(new_run) - 1
    run = np.empty(keys.size, np.intp)
    run[order] = run_of_value[value]
    return Runs(run[: first.size], run[first.size :], int(run_of_value[-1]) + 1)


def distance_of_draws(runs: Runs, first_draw: Int[np.ndarray, " n"], second_draw: Int[np.ndarray, " m"]) -> float:
    """The Kolmogorov-Smirnov distance of the drawn records, named by their indices in the original samples."""
    common = math.gcd(first_draw.size, second_draw.size)
    up, down = second_draw.size // common, first_draw.size // common
    gap = np.bincount(runs.first[first_draw], minlength=runs.count)
    falls = np.bincount(runs.second[second_draw], minlength=runs.count)
    if up > 1:
        gap *= up
    if down > 1:
        falls *= down
    gap -= falls
    np.cumsum(gap, out=gap)
    return max(int(gap.max()), -int(gap.min())) / (up * first_draw.size)


def bootstrap_distances(
    words: UInt[np.ndarray, " words"],
    first: Float[np.ndarray, " n"],
    other_samples: Float[np.ndarray, "k m"],
    replicates: int,
    paired: bool,
) -> Float[np.ndarray, "replicates k"]:
    """KS distances of resampled `first` to each of resampled `other_samples`, all by one draw per replicate; NaN if a
    number is.

    `words` seed the generator (SFC64, one stream for every 16 replicates); draws are exactly multinomial.
    """
    result = np.full((replicates, len(other_samples)), np.nan, first.dtype)
    if np.isnan(first.min()) or np.isnan(other_samples.min()):
        return result
    runs = [runs_of(first, other) for other in other_samples]
    n, m = first.size, other_samples.shape[1]

    def fill(block: int) -> None:
        random = np.random.Generator(np.random.SFC64(np.random.SeedSequence([*words.tolist(), block])))
        for replicate in range(block * _BLOCK, min((block + 1) * _BLOCK, replicates)):
            first_draw = random.integers(0, n, n)
            second_draw = first_draw if paired else random.integers(0, m, m)
            result[replicate] = [distance_of_draws(run, first_draw, second_draw) for run in runs]

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(fill, range(-(-replicates // _BLOCK))))
    return result


def _holds(value: Int[np.ndarray, " union"], member: Bool[np.ndarray, " union"]) -> Bool[np.ndarray, " distinct"]:
    """Which distinct values have at least one record that is a member."""
    return np.bincount(value[member], minlength=int(value[-1]) + 1) > 0

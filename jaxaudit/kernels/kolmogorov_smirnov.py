"""Two-sample Kolmogorov-Smirnov distance, for any jax transformation of the surrounding program but gradients.

Floats become unsigned integers in the same order, so sorting and ties are exact, whatever XLA does with numbers below
1.2e-38. XLA's CPU sort is 8 to 50 times slower than NumPy's (two CPU cores, jax 0.10.2), so on a CPU the host sorts,
and evaluates the gap only where bounds allow it to be the widest (`ks_distance_on_host`). The bootstrap over records
has one sort for all replicates: resampling changes how often a value occurs, never the order of the values. The gap
rises only at values of the first sample and falls only at those of the second: counts are collected by such runs.
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
from jax.core import Tracer
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Bool, Float, Int, Integer, Key, UInt

from jaxaudit.errors import check_ranges, check_shapes

_UNSIGNED = {4: np.uint32, 8: np.uint64}
_BLOCK = 2**15  # values at a time: they stay in the cache, and fresh memory takes longer than the arithmetic


def host_keys(values: Float[np.ndarray, "*shape"]) -> UInt[np.ndarray, "*shape"]:
    """Unsigned integers in the order of the values (float32 to uint32, float64 to uint64): IEEE 754 bits, all of them
    flipped for negative numbers, else the sign. Both zeros have the same key; the key of NaN has no meaning.

    >>> bool(host_keys(np.float32([-np.inf]))[0] < host_keys(np.float32([-0.5]))[0])
    True
    """
    size = values.dtype.itemsize
    unsigned = _UNSIGNED[size]
    sign = unsigned(1 << (8 * size - 1))
    keys = np.empty(values.shape, unsigned)
    signed, bits, flat = values.reshape(-1).view(f"i{size}"), values.reshape(-1).view(unsigned), keys.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        some = flat[block]
        np.right_shift(signed[block], 8 * size - 1, out=some.view(f"i{size}"))  # all ones where negative
        some |= sign
        some ^= bits[block]
        some += some == ~sign  # -0.0, the key just below that of 0.0
    return keys


def device_keys(values: Float[Array, "*shape"]) -> UInt[Array, "*shape"]:
    """`host_keys` in jax: float32 to uint32, and float64 to uint64 where x64 is enabled."""
    size = values.dtype.itemsize
    unsigned = _UNSIGNED[size]
    sign = unsigned(1 << (8 * size - 1))
    bits = jax.lax.bitcast_convert_type(values, unsigned)
    bits = jnp.where(bits == sign, 0, bits)  # -0.0 to 0.0
    return jnp.where(bits & sign, ~bits, bits | sign)


def sorted_union(
    first: Float[Array, " n"], second: Float[Array, " m"], of_values: Integer[Array, " union"]
) -> tuple[Integer[Array, " union"], Bool[Array, " union"]]:
    """A number of each value, in the order of both samples sorted together, and where runs of equal values end."""
    keys = device_keys(jnp.concatenate([first, second]))
    keys, of_values = jax.lax.sort((keys, of_values), num_keys=1, is_stable=False)
    return of_values, jnp.append(keys[1:] != keys[:-1], True)


def ks_distance_by_sort(first: Float[Array, " n"], second: Float[Array, " m"]) -> Float[Array, ""]:
    """The distance, NaN with a NaN. The sort carries two bytes, the fewest that XLA takes."""
    is_first = (jnp.arange(first.size + second.size) < first.size).astype(jnp.uint16)
    is_first, is_end = sorted_union(first, second, is_first)
    below_first = jnp.cumsum(is_first, dtype=jnp.int32)
    below_second = jnp.arange(1, is_end.size + 1, dtype=jnp.int32) - below_first
    distance = widest(below_first, below_second, is_end, (first.size, second.size), first.dtype)
    return jnp.where(jnp.isnan(first).any() | jnp.isnan(second).any(), jnp.nan, distance)


def widest(
    below_first: Int[Array, " union"],
    below_second: Int[Array, " union"],
    is_end: Bool[Array, " union"],
    sizes: tuple[int, int],
    dtype: Any,
) -> Float[Array, ""]:
    """The largest |below_first / n - below_second / m| where a run ends."""
    n, m = sizes
    common = math.gcd(n, m)
    up, down = m // common, n // common
    rise, fall = multiply(below_first, up), multiply(below_second, down)
    is_above = (rise.high > fall.high) | ((rise.high == fall.high) & (rise.low >= fall.low))
    gap = subtract(where_wide(is_above, rise, fall), where_wide(is_above, fall, rise))
    high = jnp.where(is_end, gap.high, 0)
    low = jnp.where(is_end, gap.low, 0)
    best_high = high.max()
    best_low = jnp.where(high == best_high, low, 0).max()
    return (best_high.astype(dtype) * 2.0**32 + best_low.astype(dtype)) / jnp.asarray(up * n, dtype)


class Wide(NamedTuple):
    """high * 2**32 + low, since JAX has no 64-bit integers unless x64 is enabled."""

    high: UInt[Array, "*shape"]
    low: UInt[Array, "*shape"]


def multiply(numbers: Integer[Array, "*shape"], factor: int) -> Wide:
    """Exact products of 32-bit numbers (none negative) and one factor below 2**31, by 16-bit digits."""
    numbers = numbers.astype(jnp.uint32)
    number_high, number_low = numbers >> 16, numbers & 0xFFFF
    factor_high, factor_low = factor >> 16, factor & 0xFFFF
    middle = number_high * factor_low + (number_low * factor_low >> 16)
    other = number_low * factor_high + (middle & 0xFFFF)
    high = number_high * factor_high + (middle >> 16) + (other >> 16)
    return Wide(high, numbers * jnp.uint32(factor))


def subtract(large: Wide, small: Wide) -> Wide:
    """large - small, for large >= small."""
    return Wide(large.high - small.high - (large.low < small.low), large.low - small.low)


def where_wide(condition: Bool[Array, "*shape"], yes: Wide, no: Wide) -> Wide:
    """`jnp.where` of both halves."""
    return Wide(jnp.where(condition, yes.high, no.high), jnp.where(condition, yes.low, no.low))


def uniform_indices(key: Array, count: int, below: int) -> Int[Array, " count"]:
    """Integers below `below`, alike to within 2**-64; above 2**16 `jax.random.randint` prefers some values."""
    high, low = jax.random.bits(key, (2, count), jnp.uint32)
    product, carried = multiply(high, below), multiply(low, below).high
    carry = product.low + carried < product.low
    return (product.high + carry).astype(jnp.int32)


STRIDE = 128
"""The step between the keys of the sorted samples that are evaluated first."""


def ks_distance_on_host(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> float:
    """The distance, one rounding off the exact one, of samples that are not empty; NaN if one holds NaN.

    Between two keys the gap rises by at most the first sample's share there, and falls by at most the second's. So it
    is computed at a few keys, and then only where it may exceed the best so far. Memory: about 40 bytes per value.
    """
    if np.isnan(first.min()) or np.isnan(second.min()):  # a minimum is NaN if any value is
        return math.nan
    common = math.gcd(first.size, second.size)
    up, down = second.size // common, first.size // common  # steps of the gap, in units of 1 / (up * first.size)
    ordered_first, ordered_second = (np.sort(host_keys(np.ascontiguousarray(sample))) for sample in (first, second))
    few = [ordered_first[::STRIDE], ordered_first[-1:], ordered_second[::STRIDE], ordered_second[-1:]]
    cuts = np.sort(np.concatenate(few))
    first_at, second_at = _counts(ordered_first, cuts), _counts(ordered_second, cuts)
    at_cuts = first_at * up - second_at * down
    best, before = np.abs(at_cuts).max(), at_cuts[:-1]
    open_ = (before + np.diff(first_at) * up > best) | (np.diff(second_at) * down - before > best)
    places = [_between(counts[:-1][open_], counts[1:][open_]) for counts in (first_at, second_at)]
    inside = np.concatenate([ordered_first[places[0]], ordered_second[places[1]]])
    gaps = _counts(ordered_first, inside) * up - _counts(ordered_second, inside) * down
    return int(np.abs(gaps).max(initial=best)) / (up * first.size)


def _counts(ordered: UInt[np.ndarray, " n"], keys: UInt[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
    """How many values are at most each key."""
    return np.searchsorted(ordered, keys, side="right")


def _between(starts: Int[np.ndarray, " k"], ends: Int[np.ndarray, " k"]) -> Int[np.ndarray, " places"]:
    """All indices from each start up to, but excluding, its end: of [2, 7] and [4, 10] these are [2, 3, 7, 8, 9]."""
    lengths = ends - starts
    return np.repeat(ends - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


def ks_distance(first: Float[Array | np.ndarray, " n"], second: Float[Array | np.ndarray, " m"]) -> Float[Array, ""]:
    """The largest gap between the empirical distribution functions of two samples: 0 if equal, 1 if disjoint.

    The functions are right-continuous and compared over the union of the samples, ties included, so that the result
    equals `scipy.stats.ks_2samp(first, second).statistic` up to one rounding. Counting is in integers and exact at any
    sizes below 2**31. -0.0 equals 0.0; infinities are values like any other. Samples are compared as float32, or as
    float64 where an input is float64 and jax's x64 mode is on.

    Works under `jit`, `vmap` and any nesting of them; a batch is one call. Not differentiable. Memory: 40 bytes a
    value, on a CPU (NumPy in a host callback) of one pair of samples, elsewhere (the device's sort) of the whole batch.

    Raises:
        InputError: a sample is empty or holds NaN; inside `jit` or `vmap` NaN gives NaN.

    >>> import jax.numpy as jnp
    >>> float(ks_distance(jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.array([0.3, 0.5])))
    0.5
    """
    first, second = as_samples(first, second)
    distance = _distance(first, second)
    refuse_nan(distance, first, second)
    return distance


def as_samples(
    first: Float[Array | np.ndarray, "*shape_first"], second: Float[Array | np.ndarray, "*shape_second"]
) -> tuple[Float[Array, "*shape_first"], Float[Array, "*shape_second"]]:
    """Both samples as jax arrays of one precision, float32 at least; an `InputError` if one is empty."""
    check_ranges("[1, inf)", size_of_first=first.size, size_of_second=second.size)
    dtype = jnp.result_type(first, second, jnp.float32)
    return jnp.asarray(first, dtype), jnp.asarray(second, dtype)


def refuse_nan(result: Array, *samples: Array) -> None:
    """Turns a NaN result into an `InputError` that counts the NaN input; silent while tracing."""
    if not isinstance(result, Tracer) and jnp.isnan(result).any():
        check_ranges("[-inf, inf]", values=np.concatenate([np.ravel(sample) for sample in samples]), result=result)


@jax.jit
def _distance(first: Float[Array, " n"], second: Float[Array, " m"]) -> Float[Array, ""]:
    return jax.lax.platform_dependent(first, second, cpu=_by_callback, default=ks_distance_by_sort)


def _by_callback(first: Float[Array, " n"], second: Float[Array, " m"]) -> Float[Array, ""]:
    # Not `pure_callback`: it copies its arguments through the same threads that wait for it, and was seen to
    # hang at 10 million values on one core. A buffer callback reads and writes in place.
    result = jax.ShapeDtypeStruct((), first.dtype)
    return buffer_callback(_fill_distances, result, vmap_method="expand_dims")(first, second)


def _fill_distances(_context: object, output: Any, first: Any, second: Any) -> None:
    of_rows = np.vectorize(ks_distance_on_host, signature="(n),(m)->()")
    np.asarray(output)[...] = of_rows(np.asarray(first), np.asarray(second))


_CHUNK_VALUES = 2**25  # resampled values in flight on an accelerator, at about 40 bytes each


def bootstrap_ks_paired(
    key: Key[Array, ""] | UInt[Array, "2"],
    reference: Float[Array | np.ndarray, " n"],
    other_samples: Float[Array | np.ndarray, "k n"],
    replicates: int,
) -> Float[Array, "replicates k"]:
    """Kolmogorov-Smirnov distances of one model's outputs to those of k other models, of resampled records.

    Outputs are of the same n records in the same order. Each replicate draws n records with replacement, the same for
    all models, and measures `ks_distance` between their outputs (Efron 1979). So ratios and differences of columns are
    bootstrapped jointly. Quantiles are an interval for distances well above 1 / sqrt(n), not a test of equality.

    Works under `jit` and `vmap`. The result is a function of the key, and of where it runs: on a CPU NumPy's SFC64
    generator draws, seeded by 128 bits of the key, and the counts are exactly multinomial; elsewhere `jax.random`
    draws, each record with probability 1/n to within n / 2**64. The first r replicates are the same however many are
    asked for, and for any number of cores. Memory: on a CPU about 60 bytes a value of the samples plus 40 a value for
    each core; elsewhere chunks of replicates that hold 2**25 resampled values (some 1.3 GB) or one replicate.

    >>> import jax, jax.numpy as jnp
    >>> from jaxaudit.kernels import ks_distance
    >>> first, second = jax.random.normal(jax.random.key(1), (2, 200)) + jnp.array([[0.0], [0.5]])
    >>> distances = bootstrap_ks_paired(jax.random.key(0), first, second[None], 500)
    >>> low, high = jnp.quantile(distances, jnp.array([0.025, 0.975]))
    >>> bool(low < ks_distance(first, second) < high)
    True
    """
    reference, other_samples = as_samples(reference, other_samples)
    check_ranges("[1, inf)", replicates=replicates)
    check_shapes((len(other_samples), reference.size), other_samples=other_samples)
    distances = _dispatch(key, reference, other_samples, replicates)
    refuse_nan(distances, reference, other_samples)
    return distances


@partial(jax.jit, static_argnames="replicates")
def _dispatch(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k n"], replicates: int
) -> Float[Array, "replicates k"]:
    return jax.lax.platform_dependent(
        key,
        first,
        other_samples,
        cpu=partial(_bootstrap_on_host, replicates=replicates),
        default=partial(bootstrap_by_sort, replicates=replicates),
    )


def _bootstrap_on_host(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k n"], *, replicates: int
) -> Float[Array, "replicates k"]:
    result = jax.ShapeDtypeStruct((replicates, other_samples.shape[0]), first.dtype)
    fill = buffer_callback(_fill, result, vmap_method="expand_dims")
    return fill(jax.random.bits(key, (4,), jnp.uint32), first, other_samples)


def _fill(_context: object, output: Any, words: Any, first: Any, other_samples: Any) -> None:
    result = np.asarray(output)
    of_one = partial(bootstrap_distances, replicates=result.shape[-2])
    of_rows = np.vectorize(of_one, signature="(words),(n),(k,n)->(replicates,k)")
    result[...] = of_rows(np.asarray(words), np.asarray(first), np.asarray(other_samples))


def bootstrap_by_sort(
    key: Array, first: Float[Array, " n"], other_samples: Float[Array, "k n"], *, replicates: int
) -> Float[Array, "replicates k"]:
    """`bootstrap_ks_paired` in XLA, for accelerators, in chunks of replicates; NaN if a number is."""
    k, n = other_samples.shape
    records = jnp.arange(2 * n, dtype=jnp.int32)  # n and more are of the other sample
    unions = jax.vmap(lambda other: sorted_union(first, other, records))(other_samples)

    def replicate(index: Int[Array, ""]) -> Float[Array, " k"]:
        own_key, _ = jax.random.split(jax.random.fold_in(key, index))
        count = jnp.zeros(n, jnp.int32).at[uniform_indices(own_key, n, n)].add(1)
        of_samples = jnp.concatenate([count, -count])

        def distance(record: Int[Array, " union"], is_end: Bool[Array, " union"]) -> Float[Array, ""]:
            return jnp.abs(jnp.where(is_end, jnp.cumsum(of_samples[record]), 0)).max().astype(first.dtype) / n

        return jax.vmap(distance)(*unions)

    chunk = max(1, min(replicates, _CHUNK_VALUES // (2 * k * n)))
    distances = jax.lax.map(replicate, jnp.arange(replicates), batch_size=chunk)
    spoilt = jnp.isnan(first).any() | jnp.isnan(other_samples).any()
    return jnp.where(spoilt, jnp.nan, distances)


# Threads share the work of a random stream, yet the result does not depend on them.
_REPLICATES_A_STREAM = 16


class Runs(NamedTuple):
    """For each record, the number of the run that contains its value. Runs ascend; the gap is monotone within a run."""

    first: Int[np.ndarray, " n"]
    second: Int[np.ndarray, " n"]
    count: int


def runs_of(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " n"]) -> Runs:
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


def distance_of_draw(runs: Runs, draw: Int[np.ndarray, " n"]) -> float:
    """The Kolmogorov-Smirnov distance of the drawn records, named by their indices in the original samples."""
    gap = np.bincount(runs.first[draw], minlength=runs.count)
    gap -= np.bincount(runs.second[draw], minlength=runs.count)
    np.cumsum(gap, out=gap)
    return max(int(gap.max()), -int(gap.min())) / draw.size


def bootstrap_distances(
    words: UInt[np.ndarray, " words"],
    first: Float[np.ndarray, " n"],
    other_samples: Float[np.ndarray, "k n"],
    replicates: int,
) -> Float[np.ndarray, "replicates k"]:
    """`bootstrap_ks_paired` on the host; NaN if a number is. `words` seed the generator (SFC64)."""
    result = np.full((replicates, len(other_samples)), np.nan, first.dtype)
    if np.isnan(first.min()) or np.isnan(other_samples.min()):
        return result
    runs = [runs_of(first, other) for other in other_samples]

    def fill(block: int) -> None:
        random = np.random.Generator(np.random.SFC64(np.random.SeedSequence([*words.tolist(), block])))
        for replicate in range(block * _REPLICATES_A_STREAM, min((block + 1) * _REPLICATES_A_STREAM, replicates)):
            draw = random.integers(0, first.size, first.size)
            result[replicate] = [distance_of_draw(run, draw) for run in runs]

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(fill, range(-(-replicates // _REPLICATES_A_STREAM))))
    return result


def _holds(value: Int[np.ndarray, " union"], member: Bool[np.ndarray, " union"]) -> Bool[np.ndarray, " distinct"]:
    """Which distinct values have at least one record that is a member."""
    return np.bincount(value[member], minlength=int(value[-1]) + 1) > 0

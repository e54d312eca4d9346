"""Two-sample Kolmogorov-Smirnov distance, for any jax transformation of the surrounding program but gradients.

Floats become unsigned integers in the same order, so that sorting and ties are exact, whatever XLA does with numbers
below 1.2e-38. On an accelerator, whose sort is fast, the distance is one sort and running counts. XLA's CPU sort is 8
to 50 times slower than NumPy's (two CPU cores, jax 0.10.2), so the host sorts with NumPy, and evaluates the gap only
where bounds allow it to be the widest (`ks_distance_on_host`).
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Bool, Float, Int, Integer, UInt

from jaxaudit.errors import check_ranges

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
    """The distance; NaN if a sample contains NaN. Memory: about 40 bytes per value.

    The sort carries one number of two bytes, the fewest that XLA's radix sort takes.
    """
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
    """Random integers from 0 to below - 1, each with probability 1/below to within 2**-64.

    Above a range of 2**16, `jax.random.randint` uses 32 random bits, and so prefers some values over others.
    """
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
    """All indices from each start up to, but excluding, its end.

    >>> _between(np.array([2, 7]), np.array([4, 10])).tolist()
    [2, 3, 7, 8, 9]
    """
    lengths = ends - starts
    return np.repeat(ends - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


def ks_distance(first: Float[Array | np.ndarray, " n"], second: Float[Array | np.ndarray, " m"]) -> Float[Array, ""]:
    """The largest gap between the empirical distribution functions of two samples: 0 if equal, 1 if disjoint.

    The functions are right-continuous and compared over the union of the samples, ties included, so that the result
    equals `scipy.stats.ks_2samp(first, second).statistic` up to one rounding. Counting is in integers and exact at any
    sizes below 2**31. -0.0 equals 0.0; infinities are values like any other. Samples are compared as float32, or as
    float64 where an input is float64 and jax's x64 mode is on.

    Works under `jit`, `vmap` and any nesting of them; a batch is one call. Not differentiable. On a CPU the work is
    done by NumPy inside a host callback (memory is some 40 bytes a value of one pair of samples); elsewhere by the
    device's sort (40 bytes a value of the whole batch).

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

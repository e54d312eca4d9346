"""Two-sample Kolmogorov-Smirnov distance, for any jax transformation of the surrounding program but gradients.

Floats become unsigned integers in the same order, so that sorting and ties are exact, whatever XLA does with numbers
below 1.2e-38. On an accelerator, whose sort is fast, the widest gap is one sort and running counts. XLA's CPU sort is 8
to 50 times slower than NumPy's (two CPU cores, jax 0.10.2), so the host sorts with NumPy, and evaluates the gap only
where bounds allow it to be widest (`widest_gap`).
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


def host_values(keys: UInt[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The values of keys made by `host_keys` (both zeros come back as 0.0)."""
    size = keys.dtype.itemsize
    sign = keys.dtype.type(1 << (8 * size - 1))
    return np.where(keys & sign, keys ^ sign, ~keys).view(f"f{size}")


def device_keys(values: Float[Array, "*shape"]) -> UInt[Array, "*shape"]:
    """`host_keys` in jax: float32 to uint32, and float64 to uint64 where x64 is enabled."""
    size = values.dtype.itemsize
    unsigned = _UNSIGNED[size]
    sign = unsigned(1 << (8 * size - 1))
    bits = jax.lax.bitcast_convert_type(values, unsigned)
    bits = jnp.where(bits == sign, 0, bits)  # -0.0 to 0.0
    return jnp.where(bits & sign, ~bits, bits | sign)


def device_values(keys: UInt[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The values of keys made by `device_keys` (both zeros come back as 0.0)."""
    size = keys.dtype.itemsize
    sign = _UNSIGNED[size](1 << (8 * size - 1))
    bits = jnp.where(keys & sign, keys ^ sign, ~keys)
    return jax.lax.bitcast_convert_type(bits, jnp.dtype(f"float{8 * size}"))


class Union(NamedTuple):
    """Two samples sorted together: the sample of each value, and where runs of equal values end."""

    keys: UInt[Array, " union"]
    record: Int[Array, " union"]  # 0..n-1 in the first sample, n.. in the second
    is_end: Bool[Array, " union"]


def sorted_union(first: Float[Array, " n"], second: Float[Array, " m"]) -> Union:
    """Sorts both samples together; equal values of either sample are one run."""
    return Union(*_sorted(first, second, jnp.arange(first.size + second.size, dtype=jnp.int32)))


def _sorted(first: Float[Array, " n"], second: Float[Array, " m"], of_values: Array) -> tuple[Array, Array, Array]:
    """The keys of both samples, a number of each value in their order, and where runs of equal values end."""
    keys = device_keys(jnp.concatenate([first, second]))
    keys, of_values = jax.lax.sort((keys, of_values), num_keys=1, is_stable=False)
    return keys, of_values, jnp.append(keys[1:] != keys[:-1], True)


def ks_gap_by_sort(first: Float[Array, " n"], second: Float[Array, " m"]) -> tuple[Array, Array, Array]:
    """Distance, location and sign of the widest gap; NaN if a sample contains NaN. Memory: about 40 bytes per value.

    The sort carries one number of two bytes, the fewest that XLA's radix sort takes.
    """
    is_first = (jnp.arange(first.size + second.size) < first.size).astype(jnp.uint16)
    keys, is_first, is_end = _sorted(first, second, is_first)
    below_first = jnp.cumsum(is_first, dtype=jnp.int32)
    below_second = jnp.arange(1, keys.size + 1, dtype=jnp.int32) - below_first
    distance, place, sign = widest(below_first, below_second, is_end, (first.size, second.size), first.dtype)
    at = device_values(keys[place])
    spoilt = jnp.isnan(first).any() | jnp.isnan(second).any()
    return jnp.where(spoilt, jnp.nan, distance), jnp.where(spoilt, jnp.nan, at), jnp.where(spoilt, jnp.nan, sign)


def widest(
    below_first: Int[Array, " union"],
    below_second: Int[Array, " union"],
    is_end: Bool[Array, " union"],
    sizes: tuple[int, int],
    dtype: Any,
) -> tuple[Float[Array, ""], Int[Array, ""], Float[Array, ""]]:
    """Largest |below_first / n - below_second / m| where a run ends, the first such place, and its sign."""
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
    place = jnp.argmax(is_end & (high == best_high) & (low == best_low))
    distance = (best_high.astype(dtype) * 2.0**32 + best_low.astype(dtype)) / jnp.asarray(up * n, dtype)
    sign = jnp.where(distance == 0, 0, jnp.where(is_above[place], 1, -1)).astype(dtype)
    return distance, place, sign


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


class HostGap(NamedTuple):
    """A gap as exact integers: distance |numerator| / denominator, positive where the first CDF is above."""

    numerator: int
    denominator: int
    key: np.unsignedinteger


def widest_gap(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> HostGap:
    """The widest gap and the smallest key where it is attained; the samples hold no NaN and are not empty.

    Between two keys the gap rises by at most the first sample's share there, and falls by at most the second's. So it
    is computed at a few keys, and then only where it may exceed the best so far. Memory: about 40 bytes per value.
    """
    common = math.gcd(first.size, second.size)
    up, down = second.size // common, first.size // common  # steps of the gap, in units of 1 / denominator
    ordered_first, ordered_second = np.sort(host_keys(first)), np.sort(host_keys(second))
    cuts = np.sort(
        np.concatenate([ordered_first[::STRIDE], ordered_first[-1:], ordered_second[::STRIDE], ordered_second[-1:]])
    )
    first_at, second_at = _counts(ordered_first, cuts), _counts(ordered_second, cuts)
    at_cuts = first_at * up - second_at * down
    best, before = np.abs(at_cuts).max(), at_cuts[:-1]
    rises, falls = np.diff(first_at) * up, np.diff(second_at) * down
    open_ = ((rises > 0) & (before + rises >= best)) | ((falls > 0) & (falls - before >= best))
    places = [_between(counts[:-1][open_], counts[1:][open_]) for counts in (first_at, second_at)]
    inside = np.concatenate([ordered_first[places[0]], ordered_second[places[1]]])
    keys = np.concatenate([cuts, inside])
    gap = np.concatenate([at_cuts, _counts(ordered_first, inside) * up - _counts(ordered_second, inside) * down])
    size = np.abs(gap)
    widest = np.flatnonzero(size == size.max())
    place = int(widest[np.argmin(keys[widest])])
    return HostGap(int(gap[place]), up * first.size, keys[place])


def ks_gap_rows(
    first: Float[np.ndarray, "*lead_first n"], second: Float[np.ndarray, "*lead_second m"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distance, place and sign for every pair of rows, leading axes broadcast; NaN where a row holds NaN."""
    lead = np.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    first = np.broadcast_to(first, (*lead, first.shape[-1]))
    second = np.broadcast_to(second, (*lead, second.shape[-1]))
    distance, at, sign = (np.full(lead, np.nan, first.dtype) for _ in range(3))
    for row in np.ndindex(lead):
        if np.isnan(first[row].min()) or np.isnan(second[row].min()):  # a minimum is NaN if any value is
            continue
        gap = widest_gap(np.ascontiguousarray(first[row]), np.ascontiguousarray(second[row]))
        distance[row] = abs(gap.numerator) / gap.denominator
        at[row] = host_values(np.asarray([gap.key]))[0]
        sign[row] = np.sign(gap.numerator)
    return distance, at, sign


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


class KSGap(NamedTuple):
    """The widest gap between two empirical distribution functions: its size, location and sign; see `ks_gap`."""

    distance: Float[Array, ""]
    at: Float[Array, ""]
    sign: Float[Array, ""]


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
    return ks_gap(first, second).distance


def ks_gap(first: Float[Array | np.ndarray, " n"], second: Float[Array | np.ndarray, " m"]) -> KSGap:
    """The widest gap of two empirical distribution functions: its size, location and sign; see `ks_distance`.

    `at` is the smallest value of either sample at which the gap is attained; `sign` is +1 if the first function is
    larger there (the first sample is smaller), -1 if it is smaller, 0 if the functions are equal.
    """
    first, second = as_samples(first, second)
    gap = KSGap(*_gap(first, second))
    refuse_nan(gap.distance, first, second)
    return gap


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
def _gap(first: Float[Array, " n"], second: Float[Array, " m"]) -> tuple[Array, Array, Array]:
    return jax.lax.platform_dependent(first, second, cpu=_gap_on_host, default=ks_gap_by_sort)


def _gap_on_host(first: Float[Array, " n"], second: Float[Array, " m"]) -> tuple[Array, Array, Array]:
    # Not `pure_callback`: it copies its arguments through the same threads that wait for it, and was seen to
    # hang at 10 million values on one core. A buffer callback reads and writes in place.
    scalar = jax.ShapeDtypeStruct((), first.dtype)
    return buffer_callback(_fill_gap, (scalar, scalar, scalar), vmap_method="expand_dims")(first, second)


def _fill_gap(_context: object, outputs: tuple[Any, ...], first: Any, second: Any) -> None:
    results = ks_gap_rows(np.asarray(first), np.asarray(second))
    for output, result in zip(outputs, results, strict=True):
        np.asarray(output)[...] = result

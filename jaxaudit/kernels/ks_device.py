"""The widest gap of two empirical distribution functions in XLA, by one sort and running counts.

This version is for accelerators, whose sort is fast. Counts are integers. A product of counts that may exceed 31 bits
is stored as two 32-bit halves (`Wide`), because JAX has no 64-bit integers unless x64 is enabled.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Integer, UInt

from jaxaudit.kernels.ordered_keys import device_keys, device_values


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

    The sort carries one number of two bytes, the fewest that XLA's radix sort takes: whether a value is of `first`.
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
    """high * 2**32 + low."""

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

    The whole part of a random 64-bit fraction times `below`. Not `jax.random.randint`, which uses 32 random
    bits once its range is above 2**16, and so prefers some values over others.
    """
    high, low = jax.random.bits(key, (2, count), jnp.uint32)
    product, carried = multiply(high, below), multiply(low, below).high
    carry = product.low + carried < product.low
    return (product.high + carry).astype(jnp.int32)

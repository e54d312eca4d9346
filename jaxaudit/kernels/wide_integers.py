"""Unsigned 64-bit arithmetic in 32-bit halves, for devices where jax has no 64-bit integers (x64 is off)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int, Integer, UInt


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


def choose(condition: Bool[Array, "*shape"], yes: Wide, no: Wide) -> Wide:
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

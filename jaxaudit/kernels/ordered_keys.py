"""Maps floats to unsigned integers in the same order, on the host (NumPy) and on the device (JAX).

IEEE 754 numbers have the order of their bits, once all bits of negative numbers and the sign bit of the others are
flipped. Integer keys make sorting, bucketing and testing for ties exact. Both zeros have the same key. The key of NaN
has no meaning: callers check for NaN first.

Only integer operations are used: floating-point operations of XLA may treat numbers below 1.2e-38 as zero, and so do
NumPy's in XLA's threads, where host callbacks run.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, UInt

_UNSIGNED = {4: np.uint32, 8: np.uint64}
_BLOCK = 2**15  # values at a time: they stay in the cache, and fresh memory takes longer than the arithmetic


def host_keys(values: Float[np.ndarray, "*shape"]) -> UInt[np.ndarray, "*shape"]:
    """Unsigned integers that compare as the values do (float32 to uint32, float64 to uint64).

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

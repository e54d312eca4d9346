"""How finely numbers were stored or printed, and how to make others as coarse."""

import numpy as np

MOST_DECIMALS = 6
# Beyond these, a decimal grid is finer than the numbers of the type near 1, and every number would seem to lie on it.
_DECIMALS_OF = {"float16": 3, "bfloat16": 2}


def decimals_of(values: np.ndarray, dtype: str) -> int | None:
    """The fewest decimals, 1 to 6, that print every one of `values` in [0, 1] exactly; None if none do.

    Exactly means: rounding to that many decimals and storing as `dtype` gives the same bits.

    >>> decimals_of(np.array([0.25, 0.5, 1.0]), "float64"), decimals_of(np.array([1 / 3]), "float64")
    (2, None)
    """
    for decimals in range(1, _DECIMALS_OF.get(dtype, MOST_DECIMALS) + 1):
        if np.array_equal(_as_dtype(np.rint(values * 10**decimals) / 10**decimals, dtype), values):
            return decimals
    return None


def coarsest_dtype(values: np.ndarray, dtype: str) -> str:
    """The coarsest of bfloat16, float16 and `dtype` that holds every one of `values` exactly.

    Outputs computed in half precision are often saved as float32.
    """
    if dtype in ("text", "float16"):
        return dtype
    for coarse in ("bfloat16", "float16"):
        if np.array_equal(_as_dtype(values, coarse), values):
            return coarse
    return dtype


def round_like(values: np.ndarray, decimals: int | None, dtype: str) -> np.ndarray:
    """`values` as `float32`, first rounded to `decimals` and to the half precision `dtype` names, if any."""
    values = values.astype(np.float64)
    if decimals is not None:
        values = np.rint(values * 10**decimals) / 10**decimals
    if dtype in ("float16", "bfloat16"):
        values = _as_dtype(values, dtype)
    return values.astype(np.float32)


def _as_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    """`float64`: `values` rounded to the nearest number of the type."""
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            # NumPy has no bfloat16: keep the upper half of a float32, rounding half to even.
            bits = values.astype(np.float32).view(np.uint32)
            kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
            return kept.view(np.float32).astype(np.float64)
        if dtype in ("float16", "float32"):
            return values.astype(dtype).astype(np.float64)
    return values

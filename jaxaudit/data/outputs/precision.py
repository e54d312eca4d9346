"""Detects the precision with which numbers were stored or printed, and rounds other numbers to it."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

# Applied to probabilities from any file: frameworks round a float32 softmax near 1 differently, by up to 1.2e-7, and
# where many confidences lie there, this alone separates two equal samples.
MOST_DECIMALS = 6
# With more decimals, the grid is finer than the type's numbers near 1, and every number would appear to lie on it.
_DECIMALS_OF = {"float16": 3, "bfloat16": 2}
_NOTHING = 1e-30  # numbers below it are 0 to any comparison, and their powers of ten overflow
_BITS_OF = {"bfloat16": 8, "float16": 11, "float32": 24}
_SAMPLE = 256
_BLOCK = 1 << 19


def decimals_of(values: np.ndarray, dtype: str, least: int = 1) -> int | None:
    """The fewest decimals, `least` to 6, that print all of `values` exactly; None if 6 are not enough.

    Exactly means: rounding to that many decimals and storing as `dtype` gives the same bits.

    >>> decimals_of(np.array([0.25, 0.5, 1.0]), "float64"), decimals_of(np.array([1 / 3]), "float64")
    (2, None)
    """

    def printed(decimals: int, part: np.ndarray) -> bool:
        with np.errstate(over="ignore"):
            return np.array_equal(as_dtype(round_decimals(part, decimals), dtype), part)

    tried = range(least, _DECIMALS_OF.get(dtype, MOST_DECIMALS) + 1)
    return next((each for each in tried if _everywhere(partial(printed, each), values)), None)


def significant_of(values: np.ndarray, dtype: str, most: int = MOST_DECIMALS) -> int | None:
    """The fewest significant digits, 1 to `most`, that print all of `values` exactly; None if `most` are not enough.

    Exactly means: within the last bits of `dtype`, a tolerance that no other grid of 6 digits or fewer reaches.

    >>> significant_of(np.array([0.9876, 1.234e-09]), "text"), significant_of(np.array([1 / 3]), "float64")
    (4, None)
    """

    def printed(digits: int, part: np.ndarray) -> bool:
        rounded = as_dtype(round_significant(part, digits), dtype)
        # Powers of ten beyond 1e22 are themselves rounded, so the last bits of a float64 may differ.
        return bool((np.abs(rounded - part) <= np.maximum(1e-14 * np.abs(part), _NOTHING)).all())

    tried = range(1, min(most, _DECIMALS_OF.get(dtype, MOST_DECIMALS)) + 1)
    return next((each for each in tried if _everywhere(partial(printed, each), values)), None)


def coarsest_dtype(values: np.ndarray, dtype: str) -> str:
    """The coarsest of bfloat16, float16 and `dtype` that holds every one of `values` exactly.

    Outputs computed in half precision are often saved as float32.
    """
    if dtype in ("text", "float16"):
        return dtype
    for coarse in ("bfloat16", "float16"):
        if _everywhere(lambda part, coarse=coarse: np.array_equal(as_dtype(part, coarse), part), values):
            return coarse
    return dtype


def step_near(size: float, decimals: int | None, significant: int | None, dtype: str) -> float:
    """The step between two neighbouring numbers just below `size` in a file with this precision: of its coarsest grid.

    >>> step_near(1.0, 4, None, "float64"), step_near(1.0, None, None, "float16"), step_near(20.0, None, 3, "text")
    (0.0001, 0.00048828125, 0.1)
    """
    below = math.nextafter(size, 0)
    steps = [2.0 ** (math.frexp(below)[1] - _BITS_OF.get(dtype, 53))]
    if decimals is not None:
        steps.append(10.0**-decimals)
    if significant is not None and below > 0:
        steps.append(10.0 ** (math.floor(math.log10(below)) + 1 - significant))
    return max(steps)


def round_like(values: np.ndarray, decimals: int | None, significant: int | None, dtype: str) -> np.ndarray:
    """`values` in [0, 1] as `float32`, rounded to significant digits, decimals and a half-precision `dtype`.

    None, and any other type, round nothing; but at most 6 decimals are kept.
    """
    values = values.astype(np.float64)
    if significant is not None:
        values = round_significant(values, significant)
    if decimals is not None:
        values = round_decimals(values, decimals)
    if dtype in ("float16", "bfloat16"):
        values = as_dtype(values, dtype)
    return round_decimals(values, MOST_DECIMALS).astype(np.float32)


def round_to(values: np.ndarray, step: float) -> np.ndarray:
    """`float32`: the nearest multiples of `step`; infinite numbers become the largest finite ones."""
    largest = np.finfo(np.float32).max
    return np.clip(np.rint(values.astype(np.float64) / step) * step, -largest, largest).astype(np.float32)


def _everywhere(holds: Callable[[np.ndarray], bool], values: np.ndarray) -> bool:
    """Whether a condition holds for all of `values`; a few rows are tested first, since most failures show there.

    `holds` is called with blocks of `float64`: rows of very many classes take more memory than their file.
    """
    rows = max(1, _BLOCK // max(1, math.prod(values.shape[1:])))
    asked = min(_SAMPLE, rows)
    sample = values[:: max(1, len(values) // asked)][:asked]
    blocks = (values[start : start + rows] for start in range(0, len(values), rows))
    return holds(sample.astype(np.float64)) and all(holds(block.astype(np.float64, copy=False)) for block in blocks)


def round_decimals(values: np.ndarray, decimals: int) -> np.ndarray:
    return np.rint(values * 10**decimals) / 10**decimals


def round_significant(values: np.ndarray, digits: int) -> np.ndarray:
    exponent = np.floor(np.log10(np.maximum(np.abs(values), _NOTHING)))
    scale = 10.0 ** (digits - 1 - exponent)
    return np.rint(values * scale) / scale


def as_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    """`float64`: `values` rounded to bfloat16, float16 or float32; other types leave them unchanged."""
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            # NumPy has no bfloat16: keep the upper half of a float32, rounding half to even.
            bits = values.astype(np.float32).view(np.uint32)
            kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
            return kept.view(np.float32).astype(np.float64)
        if dtype in ("float16", "float32"):
            return values.astype(dtype).astype(np.float64)
    return values

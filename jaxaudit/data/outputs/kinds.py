"""What the numbers of a model's outputs are: probabilities or logits, or neither, refused; and how precise they are."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np

from jaxaudit.errors import InputError

HARD_LABELS = "these are predicted labels, but confidences are needed; save the probabilities or logits of every class"

Found = Literal["probabilities", "logits"]
Kind = Literal["auto", "probabilities", "logits"]
Span = tuple[float, float]
# A softmax in float32 can leave [0, 1] by about 1e-7.
SLACK = 1e-6
LARGEST_WHOLE = 1 << 12
"""No outputs are whole numbers as large; the bits of 1 are, as bfloat16 or float16 have them."""
SOFTMAX_TWICE, REACHED, NEAR = 1.01, 0.95, 0.25
"""After a second softmax no two logits of a row are further apart than the first, and a share of rows, the third, reach
the second, since most models are sure of some records."""
_OTHER_LOGARITHMS = {
    "logarithms to base 10 of probabilities": np.log(10),
    "logarithms to base 2 of probabilities": np.log(2),
    "negative logarithms of probabilities": -1.0,
}
"""What to multiply them with for natural logarithms."""
_BLOCK = 1 << 19


def blocks(values: np.ndarray) -> Iterator[np.ndarray]:
    """The rows in order, in blocks, so that a copy in float64 stays small."""
    rows = max(1, _BLOCK // max(1, math.prod(values.shape[1:])))
    return (values[start : start + rows] for start in range(0, len(values), rows))


def first(rows: np.ndarray) -> int:
    """The number of the first true row, counted from 1 as lines are."""
    return int(np.flatnonzero(rows)[0]) + 1


def span_of(values: np.ndarray, source: str) -> Span:
    """The smallest and the largest number, all of which must be finite."""
    # Both are NaN if any number is, so that no separate pass is needed to check that all are finite.
    with np.errstate(invalid="ignore"):
        low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        broken = np.logical_not(np.isfinite(values).all(axis=1))
        raise InputError(
            f"{source}: {int(broken.sum())} rows contain NaN or infinite values (first: row {first(broken)}); did the "
            "model diverge? If they are logarithms of probabilities of 0 or 1, give the probabilities."
        )
    return low, high


def of_infinite(values: np.ndarray, source: str) -> np.ndarray | None:
    """The probabilities of which `values` are the logarithms, if some are those of 0, as forests and naive Bayes give
    them; None if all of `values` are finite, or one is NaN or infinite in another way.

    They are rounded to 12 decimals (`float32`: to 6), which the logarithm keeps, so that printed ones are found again.
    """
    with np.errstate(invalid="ignore"):
        low, high = values.min(), values.max()
    if low != -np.inf or not high <= SLACK or values.shape[1] == 1:
        return None
    decimals = 6 if values.dtype == np.float32 else 12
    probabilities = np.round(np.exp(values.astype(np.float64)), decimals)
    sums = probabilities.sum(axis=1)
    if (np.abs(sums - 1) > 1e-3).any():
        raise InputError(
            f"{source}: has -inf, as the logarithm of a probability of 0, but row {first(np.abs(sums - 1) > 1e-3)} is "
            "not of logarithms of probabilities that sum to 1; give the probabilities, or finite logits."
        )
    return probabilities


def are_log_probabilities(values: np.ndarray, span: Span) -> bool:
    """Whether these logits are logarithms of probabilities of several classes."""
    if values.shape[1] == 1 or span[1] > SLACK or span[0] >= 0:
        return False
    return _powers_sum_to_one(values, 1.0)


def _powers_sum_to_one(values: np.ndarray, factor: float) -> bool:
    """Whether the rows are logarithms of probabilities, divided by a factor."""
    with np.errstate(over="ignore"):
        return all(
            bool((np.abs(np.exp(factor * block).sum(axis=1, dtype=np.float64) - 1) <= 1e-3).all())
            for block in blocks(values)
        )


def inside(span: Span) -> bool:
    """Whether all numbers lie in [0, 1], up to rounding."""
    return span[0] >= -SLACK and span[1] <= 1 + SLACK


def are_probabilities(values: np.ndarray, span: Span, tolerance: float) -> bool:
    """Whether all numbers lie in [0, 1] and every row sums to 1 within `tolerance`."""
    return inside(span) and bool((np.abs(_sums(values) - 1) <= tolerance).all())


def refuse_hard_labels(values: np.ndarray, source: str, otherwise: str = "") -> None:
    """Rejects predicted labels: all 0 or 1, a single 1 in a row of several columns. `otherwise` ends the message."""
    if not np.isin(values[:1], (0, 1)).all() or not ((values == 0) | (values == 1)).all():
        return
    if values.shape[1] == 1 or (values.sum(axis=1) == 1).all():
        raise InputError(f"{source}: contains only 0 and 1: {HARD_LABELS}.{f' {otherwise}' if otherwise else ''}")


def refuse_bits(values: np.ndarray, source: str) -> None:
    """Rejects whole numbers that are too large to be outputs, such as the bits of floating-point numbers."""
    if values.dtype.kind in "iu" and values.size and int(values.max()) >= LARGEST_WHOLE:
        raise InputError(
            f"{source}: has whole numbers of type {values.dtype}, up to {int(values.max())}: the bits of bfloat16 or "
            "of other floating-point numbers, or numbers on a scale of their own? Give logits or probabilities, as "
            "float32."
        )


def rounding_of_sums(classes: int, decimals: int | None, significant: int | None, dtype: str) -> float:
    """How far from 1 rounding to `decimals` or `significant` digits (None: no), or `dtype` can move a row's sum."""
    if significant is not None:
        return max(1e-3, 0.5 * 10.0**-significant * min(classes, 10) + SLACK)
    if decimals is not None:
        return min(0.5, classes * 0.5 * 10.0**-decimals) + SLACK
    return {"float16": 4e-3, "bfloat16": 2e-2}.get(dtype, 1e-3)


def kind_of_outputs(values: np.ndarray, kind: Kind, span: Span, tolerance: float, source: str) -> Found:
    """What `values` are, which must be of this `kind`, by their `span` and the tolerance for sums of probabilities."""
    if kind == "logits":
        return kind
    single = values.shape[1] == 1
    likely = inside(span) if single else are_probabilities(values, span, tolerance)
    if kind == "probabilities":
        trouble = "" if likely else _no_probabilities(values, tolerance)
    elif likely:
        trouble = _softmax_again(values)
    elif single:
        trouble = _one_sign(span)
    else:
        # What a softmax would turn into something else.
        trouble = _other_logarithms(values, span) or _other_sums(values, span, tolerance) or _other_scale(values, span)
    if trouble:
        raise InputError(f"{source}: {trouble}")
    return "probabilities" if likely else "logits"


def _no_probabilities(values: np.ndarray, tolerance: float) -> str:
    """The first row that is no probabilities, in words."""
    sums = _sums(values)
    outside = np.logical_not(((values >= -SLACK) & (values <= 1 + SLACK)).all(axis=1))
    row = first(outside | ((np.abs(sums - 1) > tolerance) & (values.shape[1] > 1)))
    trouble = "is outside [0, 1]" if outside[row - 1] else f"sums to {sums[row - 1]:g}"
    return f"row {row} {trouble}, so these are not probabilities; are they logits (`kind`)?"


def _softmax_again(values: np.ndarray) -> str:
    """Probabilities that a softmax gave of numbers from 0 to 1, such as probabilities."""
    near = 0
    for block in blocks(values):
        low, high = block.min(axis=1).astype(np.float64), block.max(axis=1).astype(np.float64)
        if values.shape[1] == 1:
            low, high = np.minimum(low, 1 - low), np.maximum(low, 1 - low)
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.log(high / low)
        if not (apart <= SOFTMAX_TWICE).all():
            return ""
        near += int((apart >= REACHED).sum())
    if near < NEAR * len(values):
        return ""
    return (
        "these look like probabilities that went through a softmax once more: in no row is the largest more than 2.72 "
        f"times the smallest, and in {near} of {len(values)} it is about that. Give them as they were before; if they "
        "are right as they are, give `kind` probabilities."
    )


def _other_logarithms(values: np.ndarray, span: Span) -> str:
    """Logarithms of probabilities that are no natural ones, which a softmax would not turn back."""
    if span[0] < 0 < span[1] or span[0] == span[1] or are_log_probabilities(values, span):
        return ""
    for name, factor in _OTHER_LOGARITHMS.items():
        if (factor < 0) == (span[1] > 0) and _powers_sum_to_one(values, factor) and _unsure(values, factor):
            return (
                f"has {name}; multiply them by {factor:.6g} for natural logarithms, or give the probabilities. If they "
                "are logits, give `kind` logits."
            )
    return ""


def _unsure(values: np.ndarray, factor: float) -> bool:
    """Whether a tenth of the rows have a second probability; else any logits with a 0 and large others sum to one."""
    seconds = [np.exp(np.partition(factor * block, -2, axis=1)[:, -2]) for block in blocks(values)]
    return float(np.mean(np.concatenate(seconds) > 0.01)) >= 0.1


def _other_sums(values: np.ndarray, span: Span, tolerance: float) -> str:
    """Numbers in [0, 1] of which a row does not sum to 1."""
    if not inside(span):
        return ""
    sums = _sums(values)
    row = first(np.abs(sums - 1) > tolerance)
    return (
        f"neither probabilities nor logits: all values lie in [0, 1] but row {row} sums to {sums[row - 1]:g}; if they "
        "are logits, give `kind` logits; if they are independent scores (sigmoid), renormalise the rows."
    )


def _other_scale(values: np.ndarray, span: Span) -> str:
    """Percentages, 8-bit probabilities and votes: rows have one sum, which is not 1."""
    if span[0] < 0:
        return ""
    sums = _sums(values)
    total = float(np.median(sums))
    # Logits may have a constant sum, and a large number added to all: then none is near 0.
    if (np.abs(sums - total) > 0.02 * total).any() or span[0] > 0.1 * total / values.shape[1]:
        return ""
    scale = {100: "percentages", 255: "8-bit probabilities"}.get(round(total), "counts, such as votes of trees")
    return (
        f"every row sums to about {total:g}: these look like {scale}; divide them by {total:g}, or give `kind` logits "
        "if they are logits."
    )


def _one_sign(span: Span) -> str:
    """One column of numbers of one sign, some beyond [0, 1]: logits have both, unless all records are of one class."""
    if span[0] < 0 < span[1]:
        return ""
    return (
        "its one column has numbers of one sign, some beyond 0 to 1: percentages (divide them by 100), 8-bit "
        "probabilities (divide them by 255), logarithms of probabilities (give the probabilities themselves), or "
        "logits of one sign (give `kind` logits)?"
    )


def _sums(values: np.ndarray) -> np.ndarray:
    return np.concatenate([block.sum(axis=1, dtype=np.float64) for block in blocks(values)])


# Of any file: frameworks round a float32 softmax near 1 differently, by up to 1.2e-7: enough to separate equal samples.
MOST_DECIMALS = 6
# With more decimals, the grid is finer than the type's numbers near 1, and every number would appear to lie on it.
_DECIMALS_OF = {"float16": 3, "bfloat16": 2}
_NOTHING = 1e-30  # numbers below it are 0 to any comparison, and their powers of ten overflow
_BITS_OF = {"bfloat16": 8, "float16": 11, "float32": 24}
_SAMPLE = 256


def decimals_of(values: np.ndarray, dtype: str, least: int = 1) -> int | None:
    """The fewest decimals, `least` to 6, that print `values` to the same bits of `dtype`; None if 6 are not enough.

    >>> decimals_of(np.array([0.25, 0.5, 1.0]), "float64"), decimals_of(np.array([1 / 3]), "float64")
    (2, None)
    """

    def printed(decimals: int, part: np.ndarray) -> bool:
        with np.errstate(over="ignore"):
            return np.array_equal(as_dtype(round_decimals(part, decimals), dtype), part)

    return _fewest(printed, range(least, _DECIMALS_OF.get(dtype, MOST_DECIMALS) + 1), values)


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

    return _fewest(printed, range(1, min(most, _DECIMALS_OF.get(dtype, MOST_DECIMALS)) + 1), values)


def _fewest(printed: Callable[[int, np.ndarray], bool], numbers: range, values: np.ndarray) -> int | None:
    """The first of these numbers of digits that print all values."""
    return next((digits for digits in numbers if _everywhere(partial(printed, digits), values)), None)


def coarsest_dtype(values: np.ndarray, dtype: str) -> str:
    """The coarsest of bfloat16, float16 and `dtype` that holds all: half precision is often saved as float32."""
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
    """`values` in [0, 1] as `float32`, rounded to these digits and a half-precision `dtype`, and at most 6 decimals."""
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
    """Whether a condition holds for all of `values`, by blocks in `float64`, a few rows first, where most fail."""
    sample_size = min(_SAMPLE, max(1, _BLOCK // max(1, math.prod(values.shape[1:]))))
    sample = values[:: max(1, len(values) // sample_size)][:sample_size]
    return holds(sample.astype(np.float64)) and all(
        holds(block.astype(np.float64, copy=False)) for block in blocks(values)
    )


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

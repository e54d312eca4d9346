"""Slow, obvious twins of the kernels: definitions written out, to compare with."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats


def ks_by_scipy(first: np.ndarray, second: np.ndarray) -> float:
    """The two-sample statistic of SciPy, which since 1.18 counts in the precision it is given."""
    with np.errstate(divide="ignore"):  # in its p-value of one value against one
        result: Any = stats.ks_2samp(np.float64(first), np.float64(second), method="asymp")
    return float(result.statistic)


def ks_gap_by_definition(first: Sequence[float], second: Sequence[float]) -> tuple[Fraction, float, int]:
    """Largest gap of the empirical distribution functions, the smallest value that attains it, its sign."""
    best, at, sign = Fraction(-1), 0.0, 0
    for x in sorted({float(value) + 0.0 for value in [*first, *second]}):
        below_first = Fraction(sum(value <= x for value in first), len(first))
        below_second = Fraction(sum(value <= x for value in second), len(second))
        gap = below_first - below_second
        if abs(gap) > best:
            best, at, sign = abs(gap), x, (gap > 0) - (gap < 0)
    return best, at, sign
